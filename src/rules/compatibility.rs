//! Whether a schema may take the place of another one of the same version: whoever can read every payload of the old one
//! can read every payload of the new one.
//!
//! Members may be added and rules tightened. What is not understood must be equal: a change that is refused wrongly costs
//! a new version, one that is accepted wrongly breaks receivers.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use crate::rules::decimal::Decimal;
use crate::rules::json::shown;
use crate::rules::schema::equal;

/// Keywords that only describe.
const ANNOTATIONS: [&str; 8] = [
    "title",
    "description",
    "examples",
    "default",
    "$comment",
    "deprecated",
    "readOnly",
    "writeOnly",
];
/// Keywords that must be equal even where they are added: they change what others mean.
const STEERING: [&str; 9] = [
    "$ref",
    "$dynamicRef",
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$schema",
    "$vocabulary",
    "prefixItems",
    "additionalItems",
];

/// The first change that could break a receiver, as a sentence.
pub fn breaking_change(old: &Value, new: &Value) -> Option<String> {
    let comparison = Comparison {
        // Where a rule is turned round, a tighter definition is a wider one.
        definitions_are_fixed: mentions(old, &["not", "if", "oneOf", "contains"]),
    };
    comparison
        .compare(old, new, "")
        .err()
        .map(|(path, what)| format!("At \"{}\": {what}.", shown(&path)))
}

type Verdict = Result<(), (String, String)>;

struct Comparison {
    definitions_are_fixed: bool,
}

impl Comparison {
    fn compare(&self, old: &Value, new: &Value, path: &str) -> Verdict {
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => {
                for (keyword, old_rule) in old {
                    self.keyword(keyword, old_rule, new.get(keyword), new, path)?;
                }
                for keyword in new.keys().filter(|keyword| !old.contains_key(*keyword)) {
                    if STEERING.contains(&keyword.as_str()) || keyword == "x-money" {
                        return breach(path, format!("\"{keyword}\" is added"));
                    }
                }
                Ok(())
            }
            // Anything goes before: whatever follows is tighter.
            (Value::Bool(true), _) => Ok(()),
            (old, new) if equal(old, new) => Ok(()),
            _ => breach(path, "the schema is another one".into()),
        }
    }

    fn keyword(
        &self,
        keyword: &str,
        old: &Value,
        new: Option<&Value>,
        all: &Map<String, Value>,
        path: &str,
    ) -> Verdict {
        if ANNOTATIONS.contains(&keyword) || (keyword.starts_with("x-") && keyword != "x-money") {
            return Ok(());
        }
        if matches!(keyword, "properties" | "$defs" | "definitions") {
            return self.named(keyword, old, new, path);
        }
        let Some(new) = new else {
            let open = matches!(
                (keyword, old),
                ("additionalProperties", Value::Bool(true)) | ("required", _)
            );
            if open && old.as_array().is_none_or(Vec::is_empty) {
                return Ok(());
            }
            return breach(path, format!("\"{keyword}\" is removed"));
        };
        match keyword {
            "additionalProperties" | "unevaluatedProperties" | "unevaluatedItems" => {
                self.compare(old, new, &format!("{path}/*"))
            }
            "items" if old.is_object() && !all.contains_key("prefixItems") => {
                self.compare(old, new, &format!("{path}/[]"))
            }
            "required" => match missing(old, new) {
                None => Ok(()),
                Some(name) => breach(path, format!("member {name} is no longer required")),
            },
            "type" => match added_type(old, new) {
                None => Ok(()),
                Some(kind) => breach(path, format!("the type \"{kind}\" is added")),
            },
            "enum" => match missing(new, old) {
                None => Ok(()),
                Some(_) => breach(path, "a value is added to \"enum\"".into()),
            },
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
                tighter(keyword, old, new, path, Ordering::Greater)
            }
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
                tighter(keyword, old, new, path, Ordering::Less)
            }
            _ if equal(old, new) => Ok(()),
            _ => breach(path, format!("\"{keyword}\" is changed")),
        }
    }

    /// Members and definitions: none may go, those that stay are compared.
    fn named(&self, keyword: &str, old: &Value, new: Option<&Value>, path: &str) -> Verdict {
        let members = keyword == "properties";
        let none = Map::new();
        let new = new.and_then(Value::as_object).unwrap_or(&none);
        for (name, old) in old.as_object().unwrap_or(&none) {
            let inner = if members {
                format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
            } else {
                format!("{path}/{keyword}/{name}")
            };
            match new.get(name) {
                None => return breach(&inner, "is removed".into()),
                Some(new) if !members && self.definitions_are_fixed => {
                    if !equal(old, new) {
                        return breach(&inner, "is changed".into());
                    }
                }
                Some(new) => self.compare(old, new, &inner)?,
            }
        }
        Ok(())
    }
}

fn breach(path: &str, what: String) -> Verdict {
    Err((path.to_owned(), what))
}

/// An element of one list that the other one does not have, as JSON.
fn missing(of: &Value, other: &Value) -> Option<String> {
    let none = Vec::new();
    let other = other.as_array().unwrap_or(&none);
    of.as_array()
        .unwrap_or(&none)
        .iter()
        .find(|value| !other.iter().any(|other| equal(value, other)))
        .map(Value::to_string)
}

fn added_type(old: &Value, new: &Value) -> Option<String> {
    let kinds = |value: &Value| -> Vec<String> {
        match value {
            Value::Array(kinds) => kinds
                .iter()
                .filter_map(Value::as_str)
                .map(String::from)
                .collect(),
            kind => kind.as_str().map(String::from).into_iter().collect(),
        }
    };
    let old = kinds(old);
    kinds(new).into_iter().find(|kind| {
        let known = |wanted: &str| old.iter().any(|old| old == wanted);
        !(known(kind) || kind == "integer" && known("number"))
    })
}

/// A limit may move in one direction only.
fn tighter(keyword: &str, old: &Value, new: &Value, path: &str, worse: Ordering) -> Verdict {
    match (old, new) {
        (Value::Number(old), Value::Number(new))
            if Decimal::of(new).cmp(&Decimal::of(old)) != worse =>
        {
            Ok(())
        }
        _ => breach(path, format!("\"{keyword}\" is relaxed")),
    }
}

fn mentions(value: &Value, keywords: &[&str]) -> bool {
    match value {
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| keywords.contains(&name.as_str()) || mentions(value, keywords)),
        Value::Array(elements) => elements.iter().any(|value| mentions(value, keywords)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn additions_and_tighter_rules_pass() {
        let old = json!({"type": "object", "required": ["id"], "additionalProperties": false, "title": "x",
            "properties": {"id": {"type": "string", "maxLength": 10, "description": "a"},
                           "n": {"type": "number"}, "k": {"enum": ["a", "b"]}, "l": {"items": {"type": "string"}}},
            "$defs": {"d": {"type": "string"}}});
        let new = json!({"type": "object", "required": ["id", "n"], "additionalProperties": false,
            "properties": {"id": {"type": "string", "maxLength": 8, "minLength": 1, "description": "b"},
                           "n": {"type": "integer", "minimum": 0}, "k": {"enum": ["a"]}, "more": {"type": "object"},
                           "l": {"items": {"type": "string", "maxLength": 5}}},
            "$defs": {"d": {"type": "string", "maxLength": 3}, "e": true}});
        assert_eq!(breaking_change(&old, &new), None);
        assert_eq!(breaking_change(&old, &old), None);
    }

    #[test]
    fn what_could_break_a_receiver_is_found() {
        let cases = [
            (
                json!({"properties": {"a": {}}}),
                json!({"properties": {}}),
                "/a",
            ),
            (
                json!({"properties": {"a": {"type": "string"}}}),
                json!({"properties": {"a": {"type": ["string", "null"]}}}),
                "null",
            ),
            (
                json!({"properties": {"a": {"type": "integer"}}}),
                json!({"properties": {"a": {"type": "number"}}}),
                "number",
            ),
            (json!({"type": "object"}), json!({}), "type"),
            (
                json!({"required": ["a"]}),
                json!({"required": []}),
                "required",
            ),
            (json!({"required": ["a"]}), json!({}), "required"),
            (json!({"enum": [1]}), json!({"enum": [1, 2]}), "enum"),
            (
                json!({"maxLength": 5}),
                json!({"maxLength": 6}),
                "maxLength",
            ),
            (json!({"minimum": 5}), json!({"minimum": 4.9}), "minimum"),
            (
                json!({"pattern": "^a$"}),
                json!({"pattern": "^b$"}),
                "pattern",
            ),
            (json!({"format": "date"}), json!({}), "format"),
            (
                json!({"additionalProperties": false}),
                json!({"additionalProperties": true}),
                "*",
            ),
            (
                json!({"additionalProperties": false}),
                json!({}),
                "additionalProperties",
            ),
            (
                json!({"items": {"type": "string"}}),
                json!({"items": {"type": "number"}}),
                "[]",
            ),
            (
                json!({"$defs": {"a": {"type": "string"}}}),
                json!({"$defs": {"a": {"type": "number"}}}),
                "$defs/a",
            ),
            (
                json!({"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"maxLength": 5}}}),
                json!({"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"maxLength": 4}}}),
                "$defs/a",
            ),
            (
                json!({"oneOf": [{"type": "string"}]}),
                json!({"oneOf": [{"type": "string"}, {"type": "null"}]}),
                "oneOf",
            ),
            (json!({}), json!({"$ref": "#/$defs/a"}), "$ref"),
            (
                json!({"x-money": {"precision": 2}}),
                json!({"x-money": {"precision": 3}}),
                "x-money",
            ),
            (json!({"$schema": "a"}), json!({"$schema": "b"}), "$schema"),
            (json!(false), json!(true), "another"),
        ];
        for (old, new, told) in cases {
            let breach = breaking_change(&old, &new);
            assert!(
                breach.as_deref().is_some_and(|text| text.contains(told)),
                "{old} {new}: {breach:?}"
            );
        }
    }
}
