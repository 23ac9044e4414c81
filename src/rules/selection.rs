//! Parts of a payload: chosen fields, and what a change has changed. Both are cut out of the stored text, byte for byte;
//! nothing is written anew but the brackets around it.
//!
//! Of two members of one name neither is preferred: chosen fields keep both, and a difference is not made of such an
//! object at all. Nothing here recurses: the depth of a payload is the sender's choice.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use crate::rules::json::{Token, Tokens, decoded, tokens};

/// Most fields that can be chosen.
pub const MOST_FIELDS: usize = 100;
/// Longest path, in bytes.
pub const LONGEST_PATH: usize = 512;
/// Most steps of a path.
pub const MOST_STEPS: usize = 16;

/// Members of a payload that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fields(Node);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Node {
    /// Kept with everything that is in it.
    whole: bool,
    children: BTreeMap<String, Node>,
}

/// Why paths are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathFault {
    /// There is none, or there are too many.
    Count,
    /// This one has an empty step, ends in a backslash, or is too long.
    Path(String),
}

impl Fields {
    /// Takes paths: names of members, joined by dots; `\.` is a dot within a name, `\\` a backslash. The elements of an
    /// array are passed through without a step of their own.
    pub fn parse<'p>(paths: impl IntoIterator<Item = &'p str>) -> Result<Fields, PathFault> {
        let mut root = Node::default();
        let mut count = 0;
        for path in paths {
            count += 1;
            let steps = steps(path).ok_or_else(|| PathFault::Path(path.to_owned()))?;
            let node = steps.into_iter().fold(&mut root, |node, step| {
                node.children.entry(step).or_default()
            });
            node.whole = true;
        }
        if count == 0 || count > MOST_FIELDS {
            return Err(PathFault::Count);
        }
        Ok(Fields(root))
    }

    /// What is kept of a payload. Of one that is neither object nor array nothing can be kept: an empty object.
    pub fn select(&self, text: &str) -> String {
        let mut kept = String::new();
        let mut open: Vec<Open<'_>> = Vec::new();
        let mut tokens = tokens(text);
        while let Some((at, token)) = tokens.next() {
            match token {
                Token::Key(inside) => {
                    let Some(object) = open.last_mut() else {
                        continue;
                    };
                    let name = decoded(inside);
                    let child = name.and_then(|name| object.node.children.get(name.as_ref()));
                    match child {
                        None => {
                            skip(&mut tokens);
                        }
                        Some(child) if child.whole => {
                            let end = skip(&mut tokens);
                            object.separate(&mut kept);
                            kept.push_str(&text[at..end]);
                        }
                        // A path leads on: there is something to keep in an object or an array only.
                        Some(child) => match tokens.next() {
                            Some((inner, Token::Begin(bracket))) => {
                                object.separate(&mut kept);
                                kept.push_str(&text[at..inner]);
                                kept.push(bracket);
                                open.push(Open::new(child, bracket));
                            }
                            Some(_) => {}
                            None => break,
                        },
                    }
                }
                Token::Begin(bracket) => {
                    let node = match open.last_mut() {
                        Some(array) => {
                            array.separate(&mut kept);
                            array.node
                        }
                        None => &self.0,
                    };
                    kept.push(bracket);
                    open.push(Open::new(node, bracket));
                }
                Token::End => {
                    let Some(closed) = open.pop() else { break };
                    kept.push(if closed.array { ']' } else { '}' });
                    if open.is_empty() {
                        return kept;
                    }
                }
                Token::Text(_) | Token::Plain(_) => {}
            }
        }
        // Only a text that is neither object nor array comes here, or one that is no JSON.
        String::from("{}")
    }
}

/// A container that is being written.
struct Open<'n> {
    node: &'n Node,
    array: bool,
    any: bool,
}

impl<'n> Open<'n> {
    fn new(node: &'n Node, bracket: char) -> Open<'n> {
        Open {
            node,
            array: bracket == '[',
            any: false,
        }
    }

    fn separate(&mut self, kept: &mut String) {
        if std::mem::replace(&mut self.any, true) {
            kept.push(',');
        }
    }
}

/// Passes over one value; where it ends.
fn skip(tokens: &mut Tokens<'_>) -> usize {
    let mut depth = 0_usize;
    for (_, token) in tokens.by_ref() {
        match token {
            Token::Begin(_) => depth += 1,
            Token::End => depth = depth.saturating_sub(1),
            Token::Key(_) => continue,
            Token::Text(_) | Token::Plain(_) => {}
        }
        if depth == 0 {
            break;
        }
    }
    tokens.end()
}

/// The names of a path; none when it is no path.
fn steps(path: &str) -> Option<Vec<String>> {
    if path.len() > LONGEST_PATH {
        return None;
    }
    let mut steps = vec![String::new()];
    let mut characters = path.chars();
    while let Some(c) = characters.next() {
        match c {
            '.' => steps.push(String::new()),
            '\\' => {
                let escaped = characters.next().filter(|c| matches!(c, '.' | '\\'))?;
                steps.last_mut()?.push(escaped);
            }
            c => steps.last_mut()?.push(c),
        }
    }
    let sound = steps.len() <= MOST_STEPS && steps.iter().all(|step| !step.is_empty());
    sound.then_some(steps)
}

/// A member of an object, as slices of its text.
struct Member<'t> {
    name: Cow<'t, str>,
    /// The name in its quotation marks.
    key: &'t str,
    value: &'t str,
    /// The whole of it.
    text: &'t str,
}

/// The members of an object; none when the text is no object, or when two of its names are the same.
fn members(text: &str) -> Option<Vec<Member<'_>>> {
    let mut tokens = tokens(text);
    let (_, Token::Begin('{')) = tokens.next()? else {
        return None;
    };
    let mut members = Vec::new();
    let mut seen = HashSet::new();
    while let (at, Token::Key(inside)) = tokens.next()? {
        let name = decoded(inside)?;
        if !seen.insert(name.clone()) {
            return None;
        }
        let key = &text[at..tokens.end()];
        let mut ahead = tokens.clone();
        let (begin, _) = ahead.next()?;
        let end = skip(&mut tokens);
        members.push(Member {
            name,
            key,
            value: text.get(begin..end)?,
            text: text.get(at..end)?,
        });
    }
    Some(members)
}

/// What an event has changed, of a payload that says both: an object with `base_version` (a number or a text) and the
/// objects `before` and `after`. In the place of the two: `changed`, the members of `after` that `before` has not or
/// has otherwise, and `removed`, the names of those that `after` has no more. Everything else stays.
///
/// None when the payload does not say it. Values are compared token by token: a number that is spelled otherwise counts
/// as changed.
pub fn difference(text: &str) -> Option<String> {
    let whole = members(text)?;
    let find = |name: &str| whole.iter().find(|member| member.name == name);
    if find("changed").or(find("removed")).is_some() {
        return None;
    }
    match tokens(find("base_version")?.value).next()?.1 {
        Token::Text(_) => {}
        Token::Plain(plain) if !matches!(plain, "true" | "false" | "null") => {}
        _ => return None,
    }
    let before = members(find("before")?.value)?;
    let after = members(find("after")?.value)?;
    let former: BTreeMap<&str, &str> = before
        .iter()
        .map(|member| (member.name.as_ref(), member.value))
        .collect();
    let latter: HashSet<&str> = after.iter().map(|member| member.name.as_ref()).collect();
    let changed: Vec<&str> = after
        .iter()
        .filter(|member| {
            former
                .get(member.name.as_ref())
                .is_none_or(|value| !same(value, member.value))
        })
        .map(|member| member.text)
        .collect();
    let removed: Vec<&str> = before
        .iter()
        .filter(|member| !latter.contains(member.name.as_ref()))
        .map(|member| member.key)
        .collect();
    let parts: Vec<String> = whole
        .iter()
        .filter(|member| member.name != "before")
        .map(|member| {
            if member.name == "after" {
                format!(
                    "\"changed\":{{{}}},\"removed\":[{}]",
                    changed.join(","),
                    removed.join(",")
                )
            } else {
                member.text.to_owned()
            }
        })
        .collect();
    Some(format!("{{{}}}", parts.join(",")))
}

fn same(one: &str, other: &str) -> bool {
    let of = |text| tokens(text).map(|(_, token)| token);
    of(one).eq(of(other))
}

#[cfg(test)]
#[path = "selection_tests.rs"]
mod tests;
