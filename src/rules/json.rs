//! Reading a payload whose syntax PostgreSQL has already accepted: its tokens, and a value to hold against a schema.
//!
//! A parser of our own, because the usual ones answer questions that must not be answered silently: which of two members
//! of the same name counts, what half a surrogate pair means, whether a number survives. Numbers keep their digits, and
//! nothing here recurses: the depth of a payload is the sender's choice.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Number, Value};

/// Deepest nesting that a value may have: validating and freeing one recurses.
pub const MAX_DEPTH: usize = 1_000;
/// Longest path that is shown, in characters.
const MAX_PATH: usize = 200;

/// Why a text has no value, and at which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong, as the end of a sentence.
    pub reason: &'static str,
    /// Where the token begins.
    pub at: usize,
}

/// A token; texts are what stands between the quotation marks, undecoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'t> {
    /// `{` or `[`.
    Begin(char),
    /// `}` or `]`.
    End,
    /// The name of a member.
    Key(&'t str),
    /// A string that is no name.
    Text(&'t str),
    /// A number, true, false or null.
    Plain(&'t str),
}

/// The tokens of a text, each with the byte at which it begins.
#[derive(Clone)]
pub struct Tokens<'t> {
    text: &'t str,
    at: usize,
}

/// Reads the tokens of a JSON text. Of a text that is none it yields something, and ends.
pub fn tokens(text: &str) -> Tokens<'_> {
    Tokens { text, at: 0 }
}

impl<'t> Iterator for Tokens<'t> {
    type Item = (usize, Token<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.text.as_bytes();
        while matches!(
            bytes.get(self.at),
            Some(b' ' | b'\t' | b'\n' | b'\r' | b',' | b':')
        ) {
            self.at += 1;
        }
        let at = self.at;
        let token = match *bytes.get(at)? {
            open @ (b'{' | b'[') => {
                self.at += 1;
                Token::Begin(char::from(open))
            }
            b'}' | b']' => {
                self.at += 1;
                Token::End
            }
            b'"' => self.string(),
            _ => {
                let ends = |byte: &u8| {
                    matches!(
                        byte,
                        b' ' | b'\t'
                            | b'\n'
                            | b'\r'
                            | b','
                            | b':'
                            | b'}'
                            | b']'
                            | b'{'
                            | b'['
                            | b'"'
                    )
                };
                let length = bytes[at..].iter().position(ends);
                self.at = length.map_or(bytes.len(), |length| at + length);
                Token::Plain(&self.text[at..self.at])
            }
        };
        Some((at, token))
    }
}

impl<'t> Tokens<'t> {
    /// The byte after the last token.
    pub fn end(&self) -> usize {
        self.at
    }

    fn string(&mut self) -> Token<'t> {
        let bytes = self.text.as_bytes();
        let begin = self.at + 1;
        let mut end = begin;
        while let Some(byte) = bytes.get(end) {
            match byte {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        // A text that ends inside the string, or inside an escape, is none that PostgreSQL has accepted.
        let end = end.min(bytes.len());
        let inside = self.text.get(begin..end).unwrap_or_default();
        self.at = (end + 1).min(bytes.len());
        let mut next = self.at;
        while matches!(bytes.get(next), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            next += 1;
        }
        if bytes.get(next) == Some(&b':') {
            Token::Key(inside)
        } else {
            Token::Text(inside)
        }
    }
}

/// What an undecoded string means; none when it holds half a surrogate pair.
pub fn decoded(inside: &str) -> Option<Cow<'_, str>> {
    if !inside.contains('\\') {
        return Some(Cow::Borrowed(inside));
    }
    let mut text = String::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let escape = *rest.as_bytes().get(at + 1)?;
        rest = rest.get(at + 2..)?;
        match escape {
            b'b' => text.push('\u{8}'),
            b'f' => text.push('\u{c}'),
            b'n' => text.push('\n'),
            b'r' => text.push('\r'),
            b't' => text.push('\t'),
            b'u' => {
                let first = unit(rest)?;
                rest = &rest[4..];
                let code = match first {
                    0xd800..=0xdbff => {
                        let second = unit(rest.strip_prefix("\\u")?)?;
                        if !(0xdc00..=0xdfff).contains(&second) {
                            return None;
                        }
                        rest = &rest[6..];
                        0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                    }
                    code => code,
                };
                text.push(char::from_u32(code)?);
            }
            other => text.push(char::from(other)),
        }
    }
    text.push_str(rest);
    Some(Cow::Owned(text))
}

fn unit(text: &str) -> Option<u32> {
    u32::from_str_radix(text.get(..4)?, 16).ok()
}

/// A container that is being read.
enum Open<'t> {
    Object(Map<String, Value>, HashSet<Cow<'t, str>>, String),
    Array(Vec<Value>),
}

/// The value of a JSON text.
pub fn parse(text: &str) -> Result<Value, Fault> {
    let mut open: Vec<Open> = Vec::new();
    for (at, token) in tokens(text) {
        let fault = |reason| Fault { reason, at };
        let lone = || fault("holds half of a surrogate pair, which is no character");
        let value = match token {
            Token::Begin(kind) => {
                if open.len() >= MAX_DEPTH {
                    return Err(fault("is nested too deeply to be validated"));
                }
                open.push(if kind == '{' {
                    Open::Object(Map::new(), HashSet::new(), String::new())
                } else {
                    Open::Array(Vec::new())
                });
                continue;
            }
            Token::Key(inside) => {
                let name = decoded(inside).ok_or_else(lone)?;
                if let Some(Open::Object(_, seen, next)) = open.last_mut() {
                    name.as_ref().clone_into(next);
                    if !seen.insert(name) {
                        return Err(fault("stands there twice"));
                    }
                }
                continue;
            }
            Token::End => match open.pop() {
                Some(Open::Object(members, ..)) => Value::Object(members),
                Some(Open::Array(elements)) => Value::Array(elements),
                None => return Err(fault("is not JSON")),
            },
            Token::Text(inside) => Value::String(decoded(inside).ok_or_else(lone)?.into_owned()),
            Token::Plain("true") => Value::Bool(true),
            Token::Plain("false") => Value::Bool(false),
            Token::Plain("null") => Value::Null,
            // Kept as digits: the number is never made a float.
            Token::Plain(number) => {
                Value::Number(number.parse::<Number>().map_err(|_| fault("is not JSON"))?)
            }
        };
        match open.last_mut() {
            None => return Ok(value),
            Some(Open::Object(members, _, name)) => {
                members.insert(std::mem::take(name), value);
            }
            Some(Open::Array(elements)) => elements.push(value),
        }
    }
    Err(Fault {
        reason: "is not JSON",
        at: text.len(),
    })
}

/// The JSON pointer (RFC 6901) of what begins at a byte of the text.
pub fn path_at(text: &str, wanted: usize) -> String {
    // Per open container: the name of the member, or the number of the element, that is being read.
    let mut path: Vec<(Cow<'_, str>, Option<usize>)> = Vec::new();
    for (at, token) in tokens(text) {
        if let Token::Key(inside) = token
            && let Some((name, _)) = path.last_mut()
        {
            *name = decoded(inside).unwrap_or(Cow::Borrowed(inside));
        }
        if at >= wanted {
            break;
        }
        match token {
            Token::Begin('[') => path.push((Cow::Borrowed(""), Some(0))),
            Token::Begin(_) => path.push((Cow::Borrowed(""), None)),
            Token::Key(_) => continue,
            Token::End => {
                path.pop();
            }
            Token::Text(_) | Token::Plain(_) => {}
        }
        // A whole value is read: the next element has the next number.
        if !matches!(token, Token::Begin(_))
            && let Some((_, Some(number))) = path.last_mut()
        {
            *number += 1;
        }
    }
    let mut pointer = String::new();
    for (name, number) in path {
        pointer.push('/');
        match number {
            Some(number) => pointer.push_str(&number.to_string()),
            None => pointer.push_str(&name.replace('~', "~0").replace('/', "~1")),
        }
    }
    shown(&pointer)
}

/// A path that is short enough to be shown; the whole value has an empty one.
pub fn shown(pointer: &str) -> String {
    if pointer.chars().count() <= MAX_PATH {
        return pointer.to_owned();
    }
    let mut short: String = pointer.chars().take(MAX_PATH).collect();
    short.push('…');
    short
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
