//! Names that a payload must not have at any depth: passwords, tokens, keys, raw prompts, internal notes.
//!
//! It looks at names, not at values, and reads the text as it is: the payload is neither parsed nor bounded in depth.

use std::collections::HashSet;

use crate::rules::json::{Token, decoded, path_at, tokens};

/// Most names of a list, and their longest.
const MAX_NAMES: usize = 200;
const MAX_NAME: usize = 64;

/// The names, in the form that they are compared in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forbidden {
    whole: HashSet<String>,
    /// Names that are forbidden as a part of longer ones as well.
    parts: Vec<String>,
    shortest: usize,
}

impl Forbidden {
    /// A list as a setting writes it: separated by commas; `*name*` forbids every name that holds it. The error says why not.
    pub fn parse(text: &str) -> Result<Forbidden, String> {
        let mut list = Forbidden::default();
        for entry in text
            .split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
        {
            let inner = entry
                .strip_prefix('*')
                .and_then(|rest| rest.strip_suffix('*'));
            let name = inner.unwrap_or(entry);
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ' | '.');
            let folded = folded(name);
            if folded.len() < 2 || name.len() > MAX_NAME || !name.chars().all(plain) {
                return Err(format!(
                    "A name has 2 to {MAX_NAME} characters of A-Z, a-z, 0-9, \"_\", \"-\", \".\" and blanks, and may stand between two \"*\"; \"{}\" is none.",
                    entry.chars().take(MAX_NAME).collect::<String>()
                ));
            }
            if inner.is_some() {
                list.parts.push(folded);
            } else {
                list.whole.insert(folded);
            }
        }
        let names = list.whole.len() + list.parts.len();
        if names > MAX_NAMES {
            return Err(format!(
                "There are {names} names; the limit is {MAX_NAMES}."
            ));
        }
        let lengths = list.whole.iter().chain(&list.parts).map(String::len);
        list.shortest = lengths.min().unwrap_or(usize::MAX);
        Ok(list)
    }

    /// Where the first forbidden name stands, as a JSON pointer.
    pub fn first_in(&self, payload: &str) -> Option<String> {
        if self.shortest == usize::MAX {
            return None;
        }
        tokens(payload).find_map(|(at, token)| match token {
            // Half a surrogate pair does not hide the rest of a name.
            Token::Key(inside) if inside.len() >= self.shortest => {
                let decoded = decoded(inside);
                self.holds(decoded.as_deref().unwrap_or(inside))
                    .then(|| path_at(payload, at))
            }
            _ => None,
        })
    }

    fn holds(&self, name: &str) -> bool {
        let name = folded(name);
        self.whole.contains(&name) || self.parts.iter().any(|part| name.contains(part.as_str()))
    }
}

/// The name without what people write differently: case, and `_`, `-`, `.` and blanks between the words.
fn folded(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-' | '.' | ' '))
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_at_any_depth_however_they_are_written() {
        let list = Forbidden::parse("password, api_key, *secret*").expect("a list");
        for (payload, path) in [
            (r#"{"password": 1}"#, "/password"),
            (r#"{"a": [{"b": {"API-Key": null}}]}"#, "/a/0/b/API-Key"),
            (r#"{"a": 1, "apiKey" : 2}"#, "/apiKey"),
            (r#"{"p\u0061ssword": 1}"#, "/password"),
            (
                r#"[[], {"x": "password", "clientSecretHash": 1}]"#,
                "/1/clientSecretHash",
            ),
            (r#"{"a/b": {"Pass_Word": 1}}"#, "/a~1b/Pass_Word"),
        ] {
            assert_eq!(list.first_in(payload).as_deref(), Some(path), "{payload}");
        }
        for payload in [
            r#"{"passwords_changed": 1, "key": "api_key"}"#,
            r#""password""#,
            r#"["password", "secret"]"#,
            "{}",
        ] {
            assert_eq!(list.first_in(payload), None, "{payload}");
        }
    }

    #[test]
    fn depth_and_length_are_no_way_out() {
        let list = Forbidden::parse("token").expect("a list");
        let deep = format!(r#"{}{{"token":1}}{}"#, "[".repeat(5000), "]".repeat(5000));
        assert!(list.first_in(&deep).is_some());
        let late = format!(
            r#"{{"{}": 1, "\ud800": 1, "TOKEN": 2}}"#,
            "k".repeat(100_000)
        );
        assert_eq!(list.first_in(&late).as_deref(), Some("/TOKEN"));
    }

    #[test]
    fn a_list_that_cannot_be_meant_is_refused() {
        for text in ["a", "pass word!", "*", "**", "passwörd", "*a*"] {
            assert!(Forbidden::parse(text).is_err(), "{text}");
        }
        assert_eq!(
            Forbidden::parse(" , ").expect("none").first_in(r#"{"":1}"#),
            None
        );
    }
}
