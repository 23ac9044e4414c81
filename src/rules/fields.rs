//! The fields that a schema describes, and what each must say about itself: its purpose and, where it holds money, in
//! which unit, how exactly and how rounded.

use serde_json::{Map, Value};

use crate::rules::json::shown;
use crate::rules::schema::Schema;

/// A field of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// JSON pointer of the field; `[]` stands for every element of an array.
    pub path: String,
    /// Types as the schema gives them, separated by commas; empty = any.
    pub kind: String,
    /// Whether the object that it belongs to must have it.
    pub required: bool,
    /// What it is there for: its `description`.
    pub purpose: String,
    /// Its `x-sensitivity`.
    pub sensitivity: Option<String>,
    /// Its `x-money`, as JSON.
    pub money: Option<String>,
}

/// Most fields of a schema, and the deepest that references are followed.
const MAX_FIELDS: usize = 5_000;
const MAX_DEPTH: usize = 50;
/// Last words of names that hold money.
const MONEY_WORDS: [&str; 13] = [
    "amount", "price", "subtotal", "balance", "fee", "cost", "tax", "vat", "discount", "refund",
    "payout", "salary", "money",
];
const ROUNDINGS: [&str; 8] = [
    "none",
    "half_even",
    "half_up",
    "half_down",
    "up",
    "down",
    "ceiling",
    "floor",
];

/// The fields of a schema; the error is a sentence about the first one that does not say what it must.
pub fn fields(schema: &Value) -> Result<Vec<Field>, String> {
    let mut walk = Walk {
        root: schema,
        fields: Vec::new(),
        references: Vec::new(),
    };
    walk.schema(schema, "", 0)?;
    walk.fields.dedup_by(|one, other| one.path == other.path);
    Ok(walk.fields)
}

struct Walk<'s> {
    root: &'s Value,
    fields: Vec<Field>,
    /// References that are being followed: one of them again would not end.
    references: Vec<&'s str>,
}

impl<'s> Walk<'s> {
    fn schema(&mut self, schema: &'s Value, path: &str, depth: usize) -> Result<(), String> {
        let Value::Object(keywords) = schema else {
            return Ok(());
        };
        if depth > MAX_DEPTH || self.fields.len() > MAX_FIELDS {
            return Err(format!(
                "It has more than {MAX_FIELDS} fields, or fields deeper than {MAX_DEPTH} levels."
            ));
        }
        if let Some(reference) = keywords.get("$ref").and_then(Value::as_str)
            && !self.references.contains(&reference)
            && let Some(target) = reference
                .strip_prefix('#')
                .and_then(|pointer| self.root.pointer(pointer))
        {
            self.references.push(reference);
            self.schema(target, path, depth + 1)?;
            self.references.pop();
        }
        if let Some(Value::Object(members)) = keywords.get("properties") {
            for (name, member) in members {
                self.field(keywords, members, name, member, path, depth)?;
            }
        }
        for keyword in ["items", "contains", "prefixItems", "additionalItems"] {
            if let Some(inner) = keywords.get(keyword) {
                self.each(inner, &format!("{path}/[]"), depth)?;
            }
        }
        if let Some(inner) = keywords.get("additionalProperties") {
            self.schema(inner, &format!("{path}/*"), depth + 1)?;
        }
        for keyword in ["allOf", "anyOf", "oneOf", "then", "else"] {
            if let Some(inner) = keywords.get(keyword) {
                self.each(inner, path, depth)?;
            }
        }
        Ok(())
    }

    fn each(&mut self, schemas: &'s Value, path: &str, depth: usize) -> Result<(), String> {
        match schemas {
            Value::Array(schemas) => schemas
                .iter()
                .try_for_each(|schema| self.schema(schema, path, depth + 1)),
            schema => self.schema(schema, path, depth + 1),
        }
    }

    fn field(
        &mut self,
        parent: &'s Map<String, Value>,
        siblings: &'s Map<String, Value>,
        name: &str,
        schema: &'s Value,
        path: &str,
        depth: usize,
    ) -> Result<(), String> {
        let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
        let text = |keyword: &str| schema.get(keyword).and_then(Value::as_str);
        let purpose = text("description").unwrap_or_default().trim();
        // A member that must not be there needs no purpose.
        if schema != &Value::Bool(false) && purpose.is_empty() {
            return Err(format!(
                "Field \"{}\" has no purpose; write it as its \"description\".",
                shown(&path)
            ));
        }
        let money = money(name, schema, siblings)
            .map_err(|why| format!("Field \"{}\" {why}.", shown(&path)))?;
        let listed = |value: &Value| value.as_str() == Some(name);
        self.fields.push(Field {
            kind: kinds(schema).join(","),
            required: parent
                .get("required")
                .and_then(Value::as_array)
                .is_some_and(|required| required.iter().any(listed)),
            purpose: purpose.to_owned(),
            sensitivity: text("x-sensitivity").map(String::from),
            money,
            path: path.clone(),
        });
        self.schema(schema, &path, depth + 1)
    }
}

fn kinds(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        Some(kind) => kind.as_str().into_iter().collect(),
        None => Vec::new(),
    }
}

/// What the field says about money; the error ends a sentence that begins with the field.
fn money(
    name: &str,
    schema: &Value,
    siblings: &Map<String, Value>,
) -> Result<Option<String>, String> {
    let Some(rule) = schema.get("x-money") else {
        let kinds = kinds(schema);
        let countable = kinds.is_empty()
            || kinds
                .iter()
                .any(|kind| matches!(*kind, "string" | "number" | "integer"));
        if countable
            && !schema.is_boolean()
            && schema.get("$ref").is_none()
            && MONEY_WORDS.contains(&last_word(name).as_str())
        {
            return Err(String::from(
                "looks like money; say so with \"x-money\": {\"currency\": ..., \"precision\": ..., \"rounding\": ...}, or that it is none with \"x-money\": false",
            ));
        }
        return Ok(None);
    };
    let Value::Object(rule) = rule else {
        return match rule {
            Value::Bool(false) => Ok(None),
            _ => Err(String::from(
                "has an \"x-money\" that is neither an object nor false",
            )),
        };
    };
    let unknown = |name: &&String| {
        !["currency", "currency_field", "precision", "rounding"].contains(&name.as_str())
    };
    if let Some(name) = rule.keys().find(unknown) {
        return Err(format!(
            "has an \"x-money\" with the member \"{}\", which does not exist",
            shown(name)
        ));
    }
    let fixed = rule
        .get("currency")
        .map(|value| value.as_str().unwrap_or_default());
    let named = rule
        .get("currency_field")
        .map(|value| value.as_str().unwrap_or_default());
    match (fixed, named) {
        (Some(code), None)
            if code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_uppercase()) => {}
        (None, Some(field)) if siblings.contains_key(field) => {}
        _ => {
            return Err(String::from(
                "must say its currency: \"currency\" is a code of ISO 4217, or \"currency_field\" names a field beside it",
            ));
        }
    }
    let Some(precision) = rule
        .get("precision")
        .and_then(Value::as_u64)
        .filter(|digits| *digits <= 18)
    else {
        return Err(String::from(
            "must say its \"precision\": digits after the point, or of the minor unit, from 0 to 18",
        ));
    };
    if !rule
        .get("rounding")
        .and_then(Value::as_str)
        .is_some_and(|rounding| ROUNDINGS.contains(&rounding))
    {
        return Err(format!(
            "must say its \"rounding\": one of {}",
            ROUNDINGS.join(", ")
        ));
    }
    let kinds: Vec<&str> = kinds(schema)
        .into_iter()
        .filter(|kind| *kind != "null")
        .collect();
    match kinds.as_slice() {
        ["integer"] => {}
        ["string"] if describes_decimals(schema, precision) => {}
        ["string"] => {
            return Err(format!(
                "must have a \"pattern\" for decimal strings with {precision} digits after the point, and for nothing else"
            ));
        }
        _ => {
            return Err(String::from(
                "must be of type \"string\" (a decimal) or \"integer\" (minor units); a JSON number is read as a float by many receivers",
            ));
        }
    }
    Ok(Some(Value::Object(rule.clone()).to_string()))
}

/// Whether the pattern of a field takes decimals of the precision, and none of what only looks like them.
fn describes_decimals(schema: &Value, precision: u64) -> bool {
    let Some(pattern) = schema.get("pattern") else {
        return false;
    };
    let Ok(pattern) = Schema::compile(&serde_json::json!({ "pattern": pattern })) else {
        return false;
    };
    let takes = |text: &str| pattern.check(&Value::String(text.to_owned())).is_ok();
    let digits = "1234567890123456789";
    let digits = &digits[..usize::try_from(precision).unwrap_or(0).min(18)];
    let sample = if digits.is_empty() {
        String::from("17")
    } else {
        format!("17.{digits}")
    };
    let no_decimals = [
        "", "x", "1e5", "NaN", "Infinity", "1,5", " 1", "1 EUR", "0x10", "1.", "--1",
    ];
    takes(&sample) && !takes(&format!("{sample}.1")) && !no_decimals.iter().any(|text| takes(text))
}

/// `totalAmount`, `total_amount` and `total-amount` end in `amount`.
fn last_word(name: &str) -> String {
    let begin = name
        .char_indices()
        .rev()
        .find(|(_, c)| c.is_ascii_uppercase() || matches!(c, '_' | '-' | '.' | ' '))
        .map_or(
            0,
            |(at, c)| if c.is_ascii_uppercase() { at } else { at + 1 },
        );
    name[begin..].to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DECIMAL: &str = "^-?[0-9]+\\.[0-9]{2}$";

    fn with(name: &str, schema: Value) -> Result<Vec<Field>, String> {
        fields(
            &json!({"properties": {name: schema, "currency": {"type": "string", "description": "ISO 4217"}}}),
        )
    }

    #[test]
    fn fields_are_listed_with_their_purposes() {
        let schema = json!({
            "required": ["id"],
            "properties": {
                "id": {"type": "string", "description": "identity"},
                "lines": {"type": "array", "description": "what was bought", "items": {"$ref": "#/$defs/line"}},
                "gone": false,
            },
            "$defs": {"line": {"properties": {"sku": {"type": ["string", "null"], "description": "article", "x-sensitivity": "internal"},
                                              "parts": {"description": "made of", "items": {"$ref": "#/$defs/line"}}}}}
        });
        let fields = fields(&schema).expect("fields");
        let paths: Vec<&str> = fields.iter().map(|field| field.path.as_str()).collect();
        assert_eq!(
            paths,
            ["/gone", "/id", "/lines", "/lines/[]/parts", "/lines/[]/sku"]
        );
        assert!(fields[1].required && !fields[2].required);
        assert_eq!(fields[4].kind, "string,null");
        assert_eq!(fields[4].sensitivity.as_deref(), Some("internal"));
    }

    #[test]
    fn a_field_without_a_purpose_is_refused() {
        assert!(
            with("id", json!({"type": "string"}))
                .expect_err("none")
                .contains("\"/id\" has no purpose")
        );
        assert!(with("id", json!({"description": " "})).is_err());
        assert!(with("id", json!(true)).is_err());
    }

    #[test]
    fn money_says_currency_precision_and_rounding() {
        let rule = json!({"currency": "EUR", "precision": 2, "rounding": "half_even"});
        let good = [
            json!({"description": "x", "type": "string", "pattern": DECIMAL, "x-money": rule}),
            json!({"description": "x", "type": ["string", "null"], "pattern": "^(0|[1-9][0-9]*)(\\.[0-9]{2})?$", "x-money": rule}),
            json!({"description": "x", "type": "integer", "x-money": {"currency_field": "currency", "precision": 2, "rounding": "none"}}),
            json!({"description": "x", "type": "number", "x-money": false}),
            json!({"description": "x", "type": "object"}),
        ];
        for schema in good {
            with("total_amount", schema.clone()).unwrap_or_else(|why| panic!("{schema}: {why}"));
        }
        let bad = [
            (json!({"type": "number"}), "looks like money"),
            (json!({}), "looks like money"),
            (
                json!({"type": "number", "x-money": rule}),
                "read as a float",
            ),
            (
                json!({"type": ["string", "number"], "pattern": DECIMAL, "x-money": rule}),
                "read as a float",
            ),
            (json!({"type": "string", "x-money": rule}), "pattern"),
            (
                json!({"type": "string", "pattern": "[0-9]+", "x-money": rule}),
                "pattern",
            ),
            (
                json!({"type": "string", "pattern": "^[0-9.]+$", "x-money": rule}),
                "pattern",
            ),
            (
                json!({"type": "string", "pattern": "^[0-9]+\\.[0-9]{3}$", "x-money": rule}),
                "pattern",
            ),
            (
                json!({"type": "integer", "x-money": {"currency": "euro", "precision": 2, "rounding": "none"}}),
                "currency",
            ),
            (
                json!({"type": "integer", "x-money": {"precision": 2, "rounding": "none"}}),
                "currency",
            ),
            (
                json!({"type": "integer", "x-money": {"currency_field": "unit", "precision": 2, "rounding": "none"}}),
                "currency",
            ),
            (
                json!({"type": "integer", "x-money": {"currency": "EUR", "precision": 19, "rounding": "none"}}),
                "precision",
            ),
            (
                json!({"type": "integer", "x-money": {"currency": "EUR", "precision": 2, "rounding": "bankers"}}),
                "rounding",
            ),
            (
                json!({"type": "integer", "x-money": {"currency": "EUR", "precision": 2, "rounding": "none", "unit": 1}}),
                "unit",
            ),
            (json!({"type": "integer", "x-money": true}), "neither"),
        ];
        for (mut schema, told) in bad {
            schema["description"] = json!("x");
            let why = with("totalAmount", schema.clone()).expect_err("refused");
            assert!(
                why.contains("/totalAmount") && why.contains(told),
                "{schema}: {why}"
            );
        }
    }
}
