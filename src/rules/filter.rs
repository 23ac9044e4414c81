//! Filters of endpoints: which jsonpath predicates may decide about deliveries, and what deciding costs at most.
//!
//! PostgreSQL parses and evaluates them. This file reads the text that PostgreSQL gives back of a parsed one
//! (`filter::jsonpath::text`), whose spelling is regular: keys and texts quoted, comments gone. What could take more
//! time than the payload has values is refused: regular expressions, recursion, arithmetic, methods but two, lists of
//! subscripts (each doubles what follows), `$` inside of a condition. What is left visits each value once a step, but for
//! comparisons of two paths, which compare all values of one with all of the other. So the cost is known beforehand, and
//! an evaluation needs no clock: it is decided in the same way whenever it is made again.

/// Bytes of a filter as its user wrote it.
pub const LONGEST: usize = 1_000;
/// Bytes of a filter as PostgreSQL spells it: a number in scientific notation becomes longer.
const LONGEST_SPELT: usize = 4_000;
/// Parentheses within each other.
const DEEPEST: usize = 40;
/// Steps over values in one evaluation at most: some 0.05 s. Measured on PostgreSQL 15: 0.015 to 0.04 microseconds each,
/// 0.27 for each value to read the payload, which counts as a step.
pub const MOST_COST: u64 = 500_000;

/// What a filter costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Visits of each value of the payload.
    steps: u64,
    /// Comparisons of two paths.
    products: u64,
}

/// Why a jsonpath cannot be a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It yields values, not one yes or no.
    NotPredicate,
    /// `like_regex`.
    Regex,
    /// `**`.
    Recursion,
    /// `+ - * / %`.
    Arithmetic,
    /// A method that is not `type()` or `size()`.
    Method(String),
    /// `$name`.
    Variable,
    /// Several subscripts in one pair of brackets, or one that is not a number.
    Subscript,
    /// `$` inside of `? ( )`.
    Root,
    /// Too many parentheses within each other, or too long.
    Large,
    /// Anything else that PostgreSQL may accept.
    Unsupported,
}

impl Filter {
    /// Reads a filter in PostgreSQL's spelling.
    pub fn parse(text: &str) -> Result<Filter, Fault> {
        if text.len() > LONGEST_SPELT {
            return Err(Fault::Large);
        }
        let mut parser = Parser {
            tokens: tokens(text)?,
            at: 0,
            depth: 0,
            inside: 0,
            filter: Filter {
                steps: 1,
                products: 0,
            },
        };
        if matches!(parser.peek(), Some(Token::Word("strict" | "lax"))) {
            parser.at += 1;
        }
        if parser.expression(OR)? != Kind::Predicate {
            return Err(Fault::NotPredicate);
        }
        match parser.peek() {
            None => Ok(parser.filter),
            Some(_) => Err(Fault::Unsupported),
        }
    }

    /// Most steps that deciding about a payload of so many values takes.
    pub fn cost(&self, values: u64) -> u64 {
        let squares = self.products.saturating_mul(values.saturating_mul(values));
        self.steps.saturating_mul(values).saturating_add(squares)
    }

    /// Whether a payload is decided about at all.
    pub fn fits(&self, values: u64) -> bool {
        self.cost(values) <= MOST_COST
    }
}

/// Values in a JSON text, at most: each but the first follows a comma or an opening bracket.
pub fn values(data: &str) -> u64 {
    let before = data
        .bytes()
        .filter(|byte| matches!(byte, b',' | b'[' | b'{'))
        .count();
    u64::try_from(before).unwrap_or(u64::MAX).saturating_add(1)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'t> {
    /// An operator or bracket.
    Sign(&'t str),
    Word(&'t str),
    Text,
    Number,
}

/// The longer ones first.
const SIGNS: [&str; 25] = [
    "**", "==", "!=", "<=", ">=", "&&", "||", "$", "@", ".", "[", "]", "(", ")", "{", "}", "?",
    "*", ",", "+", "-", "/", "%", "<", ">",
];

fn tokens(text: &str) -> Result<Vec<Token<'_>>, Fault> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (token, length) = if first.is_ascii_whitespace() {
            rest = &rest[1..];
            continue;
        } else if first == '"' {
            (Token::Text, quoted(rest).ok_or(Fault::Unsupported)?)
        } else if first.is_ascii_digit() {
            (Token::Number, number(rest))
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = run(rest, |c| c.is_ascii_alphanumeric() || c == '_');
            (Token::Word(&rest[..length]), length)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (Token::Sign(sign), sign.len())
        } else if first == '!' {
            (Token::Sign("!"), 1)
        } else {
            return Err(Fault::Unsupported);
        };
        tokens.push(token);
        rest = &rest[length..];
    }
    Ok(tokens)
}

fn run(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

/// Length of the quoted text at the beginning.
fn quoted(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Length of the number at the beginning; a full stop that no digit follows is not part of it.
fn number(text: &str) -> usize {
    let whole = run(text, |c| c.is_ascii_digit());
    match text[whole..].strip_prefix('.') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit()) => {
            whole + 1 + run(rest, |c| c.is_ascii_digit())
        }
        _ => whole,
    }
}

/// What a piece of a filter yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Predicate,
    Path,
    Literal,
    Text,
}

/// How strongly operators bind.
const OR: u8 = 1;
const AND: u8 = 2;
const COMPARISON: u8 = 3;

struct Parser<'t> {
    tokens: Vec<Token<'t>>,
    at: usize,
    depth: usize,
    /// Conditions `? ( )` around this place.
    inside: usize,
    filter: Filter,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<Token<'t>> {
        self.tokens.get(self.at).copied()
    }

    fn take(&mut self, sign: &str) -> bool {
        let there = matches!(self.peek(), Some(Token::Sign(found)) if found == sign);
        self.at += usize::from(there);
        there
    }

    fn take_word(&mut self, word: &str) -> bool {
        let there = matches!(self.peek(), Some(Token::Word(found)) if found == word);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, sign: &str) -> Result<(), Fault> {
        self.take(sign).then_some(()).ok_or(Fault::Unsupported)
    }

    /// Operands with the operators between them that bind at least so strongly.
    fn expression(&mut self, least: u8) -> Result<Kind, Fault> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Fault::Large);
        }
        let mut left = self.operand()?;
        loop {
            let binds = match self.peek() {
                Some(Token::Sign("||")) => OR,
                Some(Token::Sign("&&")) => AND,
                Some(Token::Sign("==" | "!=" | "<" | "<=" | ">" | ">=")) => COMPARISON,
                Some(Token::Word("starts")) => COMPARISON,
                Some(Token::Word("like_regex")) => return Err(Fault::Regex),
                Some(Token::Sign("+" | "-" | "*" | "/" | "%")) => return Err(Fault::Arithmetic),
                _ => break,
            };
            if binds < least {
                break;
            }
            self.filter.steps += 1;
            if self.take_word("starts") {
                if !self.take_word("with") {
                    return Err(Fault::Unsupported);
                }
                if left == Kind::Predicate || self.operand()? != Kind::Text {
                    return Err(Fault::Unsupported);
                }
                left = Kind::Predicate;
                continue;
            }
            self.at += 1;
            let right = self.expression(binds + 1)?;
            let predicates = [left, right].map(|kind| kind == Kind::Predicate);
            if binds == COMPARISON {
                if predicates.contains(&true) {
                    return Err(Fault::Unsupported);
                }
                self.filter.products += u64::from((left, right) == (Kind::Path, Kind::Path));
            } else if predicates != [true, true] {
                return Err(Fault::NotPredicate);
            }
            left = Kind::Predicate;
        }
        self.depth -= 1;
        Ok(left)
    }

    fn operand(&mut self) -> Result<Kind, Fault> {
        let token = self.peek().ok_or(Fault::Unsupported)?;
        self.at += 1;
        let kind = match token {
            Token::Sign("$") if self.peek() == Some(Token::Text) => return Err(Fault::Variable),
            Token::Sign("$") if self.inside > 0 => return Err(Fault::Root),
            Token::Sign("$") => return self.path(),
            Token::Sign("@") if self.inside > 0 => return self.path(),
            Token::Sign("(") => {
                let kind = self.expression(OR)?;
                self.expect(")")?;
                if kind == Kind::Predicate && self.take_word("is") {
                    if !self.take_word("unknown") {
                        return Err(Fault::Unsupported);
                    }
                    self.filter.steps += 1;
                }
                kind
            }
            Token::Sign("!") => {
                self.filter.steps += 1;
                self.expect("(")?;
                if self.expression(OR)? != Kind::Predicate {
                    return Err(Fault::NotPredicate);
                }
                self.expect(")")?;
                Kind::Predicate
            }
            Token::Word("exists") => {
                self.filter.steps += 1;
                self.expect("(")?;
                if self.expression(OR)? != Kind::Path {
                    return Err(Fault::Unsupported);
                }
                self.expect(")")?;
                Kind::Predicate
            }
            Token::Sign("-") if self.peek() == Some(Token::Number) => {
                self.at += 1;
                Kind::Literal
            }
            Token::Sign("-" | "+") => return Err(Fault::Arithmetic),
            Token::Number | Token::Word("true" | "false" | "null") => Kind::Literal,
            Token::Text => Kind::Text,
            _ => return Err(Fault::Unsupported),
        };
        // Only paths lead on.
        match self.peek() {
            Some(Token::Sign("." | "[" | "?")) => Err(Fault::Unsupported),
            _ => Ok(kind),
        }
    }

    /// The steps of a path, after its beginning.
    fn path(&mut self) -> Result<Kind, Fault> {
        loop {
            if self.take(".") {
                let token = self.peek().ok_or(Fault::Unsupported)?;
                self.at += 1;
                match token {
                    Token::Text | Token::Sign("*") => {}
                    Token::Sign("**") => return Err(Fault::Recursion),
                    Token::Word("type" | "size") => {
                        self.expect("(")?;
                        self.expect(")")?;
                    }
                    Token::Word(name) => return Err(Fault::Method(name.to_owned())),
                    _ => return Err(Fault::Unsupported),
                }
            } else if self.take("[") {
                self.subscript()?;
            } else if self.take("?") {
                self.expect("(")?;
                self.inside += 1;
                if self.expression(OR)? != Kind::Predicate {
                    return Err(Fault::NotPredicate);
                }
                self.inside -= 1;
                self.expect(")")?;
            } else {
                return Ok(Kind::Path);
            }
            self.filter.steps += 1;
        }
    }

    /// `*]`, `1]`, `last - 1]`, `1 to last]`.
    fn subscript(&mut self) -> Result<(), Fault> {
        if !self.take("*") {
            self.index()?;
            if self.take_word("to") {
                self.index()?;
            }
        }
        self.take("]").then_some(()).ok_or(Fault::Subscript)
    }

    fn index(&mut self) -> Result<(), Fault> {
        let last = self.take_word("last");
        if last && !(self.take("-") || self.take("+")) {
            return Ok(());
        }
        if !last {
            self.take("-");
        }
        if self.peek() != Some(Token::Number) {
            return Err(Fault::Subscript);
        }
        self.at += 1;
        Ok(())
    }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
