//! JSON Schema (draft 7 and 2020-12) for payloads: compiled once, held against values, and never looking anywhere else.
//!
//! References outside the schema are refused, patterns run in linear time, and numbers are judged by the digits that are
//! written: the keywords that compare them are ours. What is said about a violation names the place and the rule, not
//! the value.

use std::collections::HashSet;

use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::Location;
use jsonschema::{Draft, Keyword, PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};

use crate::rules::decimal::Decimal;
use crate::rules::json::{parse, path_at, shown};

/// Deepest nesting of a schema: compiling one recurses.
const MAX_SCHEMA_DEPTH: usize = 100;
/// Largest program that a pattern may become, in bytes.
const MAX_PATTERN: usize = 1 << 20;
/// Longest text of a fault in a schema.
const MAX_FAULT: usize = 500;

/// A schema, ready to be held against values.
pub struct Schema(Validator);

/// Where a payload breaks its schema, and which rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer; empty = the whole payload.
    pub path: String,
    /// End of a sentence that begins with the path.
    pub reason: String,
}

impl Violation {
    /// The same as a sentence.
    pub fn sentence(&self) -> String {
        if self.path.is_empty() {
            return format!("The payload {}.", self.reason);
        }
        format!("\"{}\" {}.", self.path, self.reason)
    }
}

impl Schema {
    /// Compiles a schema. The error is a sentence.
    pub fn compile(schema: &Value) -> Result<Schema, String> {
        let draft = draft(schema)?;
        if depth(schema) > MAX_SCHEMA_DEPTH {
            return Err(format!(
                "It is nested deeper than {MAX_SCHEMA_DEPTH} levels."
            ));
        }
        jsonschema::options()
            .with_draft(draft)
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN))
            .should_validate_formats(true)
            .should_ignore_unknown_formats(true)
            .with_keyword("minimum", |_, limit, _| bound(limit, |n, limit| n >= limit))
            .with_keyword("maximum", |_, limit, _| bound(limit, |n, limit| n <= limit))
            .with_keyword("exclusiveMinimum", |_, limit, _| {
                bound(limit, |n, limit| n > limit)
            })
            .with_keyword("exclusiveMaximum", |_, limit, _| {
                bound(limit, |n, limit| n < limit)
            })
            .with_keyword("multipleOf", multiple_of)
            .with_keyword("const", one_of_values)
            .with_keyword("enum", one_of_values)
            .with_keyword("uniqueItems", unique_items)
            .build(schema)
            .map(Schema)
            .map_err(|error| {
                let path = error.instance_path().as_str().to_owned();
                let text: String = error.to_string().chars().take(MAX_FAULT).collect();
                format!("At \"{}\": {text}.", shown(&path))
            })
    }

    /// Holds a value against it.
    pub fn check(&self, value: &Value) -> Result<(), Violation> {
        if self.0.is_valid(value) {
            return Ok(());
        }
        match self.0.validate(value) {
            Ok(()) => Ok(()),
            Err(error) => Err(Violation {
                path: shown(error.instance_path().as_str()),
                reason: reason(&error),
            }),
        }
    }

    /// Holds a payload against it, as the text that is sent.
    pub fn check_text(&self, payload: &str) -> Result<(), Violation> {
        match parse(payload) {
            Ok(value) => self.check(&value),
            Err(fault) => Err(Violation {
                path: path_at(payload, fault.at),
                reason: fault.reason.to_owned(),
            }),
        }
    }
}

/// Which draft a schema is written in; none given = 2020-12.
fn draft(schema: &Value) -> Result<Draft, String> {
    let Some(uri) = schema.get("$schema") else {
        return Ok(Draft::Draft202012);
    };
    let uri = uri.as_str().unwrap_or_default();
    let bare = uri.trim_end_matches('#');
    let bare = bare
        .strip_prefix("https://")
        .or_else(|| bare.strip_prefix("http://"));
    match bare {
        Some("json-schema.org/draft-07/schema") => Ok(Draft::Draft7),
        Some("json-schema.org/draft/2020-12/schema") => Ok(Draft::Draft202012),
        _ => Err(String::from(
            "\"$schema\" names neither http://json-schema.org/draft-07/schema# nor https://json-schema.org/draft/2020-12/schema.",
        )),
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn reason(error: &ValidationError<'_>) -> String {
    match error.kind() {
        ValidationErrorKind::Custom { message, .. } => message.clone(),
        ValidationErrorKind::Type { .. } => {
            String::from("is not of the type that the schema asks for")
        }
        ValidationErrorKind::Required { property } => match property.as_str() {
            Some(name) => format!("lacks the required member \"{}\"", shown(name)),
            None => String::from("lacks a required member"),
        },
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => match unexpected.first() {
            Some(name) => format!(
                "has the member \"{}\", which the schema does not know",
                shown(name)
            ),
            None => String::from("has a member that the schema does not know"),
        },
        ValidationErrorKind::Format { format } => format!("is not of the format \"{format}\""),
        ValidationErrorKind::FalseSchema => String::from("is not allowed by the schema"),
        kind => format!("breaks the rule \"{}\" of the schema", kind.keyword()),
    }
}

/// A rule for numbers; everything else keeps it.
struct Bound {
    limit: Decimal,
    keeps: fn(&Decimal, &Decimal) -> bool,
}

type Factory<'a> = Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>>;

fn bound<'a>(limit: &'a Value, keeps: fn(&Decimal, &Decimal) -> bool) -> Factory<'a> {
    match limit {
        Value::Number(number) => Ok(Box::new(Bound {
            limit: Decimal::of(number),
            keeps,
        })),
        _ => Err(ValidationError::schema("the limit is not a number")),
    }
}

fn multiple_of<'a>(
    _parent: &'a Map<String, Value>,
    divisor: &'a Value,
    _path: Location,
) -> Factory<'a> {
    match divisor {
        Value::Number(number) if Decimal::of(number).divides() => Ok(Box::new(Bound {
            limit: Decimal::of(number),
            keeps: Decimal::is_multiple_of,
        })),
        _ => Err(ValidationError::schema(
            "\"multipleOf\" is not a positive number of 18 digits at most",
        )),
    }
}

impl<'i> Keyword<'i> for Bound {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        if self.is_valid(instance) {
            return Ok(());
        }
        Err(ValidationError::custom(
            "is outside what the schema allows for the number",
        ))
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        match instance {
            Value::Number(number) => (self.keeps)(&Decimal::of(number), &self.limit),
            _ => true,
        }
    }
}

/// `const` and `enum`.
struct Values(Vec<Value>);

fn one_of_values<'a>(
    parent: &'a Map<String, Value>,
    value: &'a Value,
    path: Location,
) -> Factory<'a> {
    let _ = parent;
    match value {
        Value::Array(values) if path.as_str().ends_with("/enum") => {
            Ok(Box::new(Values(values.clone())))
        }
        _ => Ok(Box::new(Values(vec![value.clone()]))),
    }
}

impl<'i> Keyword<'i> for Values {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        if self.is_valid(instance) {
            return Ok(());
        }
        Err(ValidationError::custom(
            "is none of the values that the schema lists",
        ))
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        self.0.iter().any(|value| equal(value, instance))
    }
}

struct Unique;

fn unique_items<'a>(
    _parent: &'a Map<String, Value>,
    wanted: &'a Value,
    _path: Location,
) -> Factory<'a> {
    match wanted {
        Value::Bool(true) => Ok(Box::new(Unique)),
        _ => Ok(Box::new(Anything)),
    }
}

impl<'i> Keyword<'i> for Unique {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        if self.is_valid(instance) {
            return Ok(());
        }
        Err(ValidationError::custom("holds the same element twice"))
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        let Value::Array(elements) = instance else {
            return true;
        };
        let mut seen = HashSet::with_capacity(elements.len());
        elements.iter().all(|element| {
            let mut form = String::new();
            write_form(&mut form, element);
            seen.insert(form)
        })
    }
}

struct Anything;

impl<'i> Keyword<'i> for Anything {
    fn validate(&self, _instance: &'i Value) -> Result<(), ValidationError<'i>> {
        Ok(())
    }

    fn is_valid(&self, _instance: &'i Value) -> bool {
        true
    }
}

/// Equality as JSON Schema means it: 1.0 is 1.
pub fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => Decimal::of(one) == Decimal::of(other),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(name, one)| other.get(name).is_some_and(|other| equal(one, other)))
        }
        (one, other) => one == other,
    }
}

/// A text that is the same for equal values, and for no others.
fn write_form(form: &mut String, value: &Value) {
    match value {
        Value::Number(number) => form.push_str(&format!("{:?}", Decimal::of(number))),
        Value::Array(elements) => {
            form.push('[');
            for element in elements {
                write_form(form, element);
                form.push(',');
            }
            form.push(']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| name.as_str());
            form.push('{');
            for (name, member) in sorted {
                form.push_str(&format!("{name:?}:"));
                write_form(form, member);
                form.push(',');
            }
            form.push('}');
        }
        Value::String(text) => form.push_str(&format!("{text:?}")),
        Value::Bool(_) | Value::Null => form.push_str(&value.to_string()),
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
