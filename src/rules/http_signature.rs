//! HTTP Message Signatures (RFC 9421) over requests: component values, the signature base, signing and verifying.
//!
//! Covered components may be header fields, as they are or with `bs`, and the parts of a request's target. `sf`,
//! `key`, `tr` and what belongs to responses is refused, not skipped: a signature that covers less than it says
//! would be none. Which components have to be covered, and how old a signature may be, is for the caller to say.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sfv::{
    BareItem, DictSerializer, Dictionary, InnerList, Item, ItemSerializer, KeyRef, ListEntry,
    Parameters, Parser,
};
use url::Url;

use crate::rules::signing::{Key, MOST_SIGNATURES, VerifyingKey};

/// A request as it is sent, or as it was received.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its method.
    pub method: &'a str,
    /// Its target, absolute.
    pub url: &'a str,
    /// Header lines, names in any case.
    pub headers: &'a [(String, String)],
}

/// A signature, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The text that was signed.
    pub base: String,
    /// A member of `Signature-Input`.
    pub input: String,
    /// A member of `Signature`.
    pub signature: String,
}

/// What a signature that holds says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The components it covers, as they are named in it.
    pub components: Vec<String>,
    /// When it was made, Unix seconds.
    pub created: Option<i64>,
    /// When it ends, Unix seconds.
    pub expires: Option<i64>,
    /// The key's name.
    pub key_id: Option<String>,
}

/// Why there is no signature, or none that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A component that is unknown, misnamed, twice there or not in the request.
    Component,
    /// A header value that a signature base cannot hold: it is ASCII.
    HeaderValue,
    /// A header of the signature that does not parse, or a label that one of them lacks.
    Syntax,
    /// No signature is by this key over this request.
    NoMatch,
    /// More signatures, or more components of one, than are looked at.
    TooMany,
}

impl Fault {
    /// A word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Component => "invalid_component",
            Self::HeaderValue => "invalid_header_value",
            Self::Syntax => "invalid_signature",
            Self::NoMatch => "no_match",
            Self::TooMany => "too_many_signatures",
        }
    }
}

/// A component by its identifier: a bare name, or a quoted one with parameters.
pub fn component(identifier: &str) -> Result<Item, Fault> {
    if identifier.starts_with('"') {
        return Parser::new(identifier)
            .parse()
            .map_err(|_| Fault::Component);
    }
    let name = sfv::String::from_string(identifier.to_owned()).map_err(|_| Fault::Component)?;
    Ok(Item::new(name))
}

/// The value of a component (section 2).
pub fn value(request: &Request<'_>, component: &Item) -> Result<String, Fault> {
    let name = component
        .bare_item
        .as_string()
        .ok_or(Fault::Component)?
        .as_str();
    if name.starts_with('@') {
        return derived(request, name, &component.params);
    }
    let bytes = match component.params.iter().next() {
        None => false,
        Some((key, BareItem::Boolean(true)))
            if key.as_str() == "bs" && component.params.len() == 1 =>
        {
            true
        }
        Some(_) => return Err(Fault::Component),
    };
    field(request, name, bytes)
}

/// Signs a request (section 3.1).
pub fn sign(
    request: &Request<'_>,
    components: &[Item],
    params: &Parameters,
    label: &KeyRef,
    key: &Key,
) -> Result<Signed, Fault> {
    let list = InnerList::with_params(components.to_vec(), params.clone());
    let input = serialize(label, &list);
    let stated = input.get(label.as_str().len() + 1..).ok_or(Fault::Syntax)?;
    let base = base(request, components, stated)?;
    let signature = STANDARD.encode(key.sign(base.as_bytes()));
    Ok(Signed {
        signature: format!("{}=:{signature}:", label.as_str()),
        base,
        input,
    })
}

/// Looks for a signature that this key made over the request (section 3.2). A signature that names another algorithm
/// than the key's does not count.
pub fn verify(
    request: &Request<'_>,
    signature_input: &str,
    signature: &str,
    key: &VerifyingKey,
) -> Result<Verified, Fault> {
    let inputs: Dictionary = Parser::new(signature_input)
        .parse()
        .map_err(|_| Fault::Syntax)?;
    let signatures: Dictionary = Parser::new(signature).parse().map_err(|_| Fault::Syntax)?;
    // A base is built and hashed for each of them and each key: counted before the first is.
    let covers_too_much = |entry: &ListEntry| matches!(entry, ListEntry::InnerList(list) if list.items.len() > MOST_COMPONENTS);
    if inputs.len() > MOST_SIGNATURES
        || signatures.len() > MOST_SIGNATURES
        || inputs.values().any(covers_too_much)
    {
        return Err(Fault::TooMany);
    }
    let mut fault = Fault::NoMatch;
    for (label, entry) in &inputs {
        let (ListEntry::InnerList(list), Some(ListEntry::Item(item))) =
            (entry, signatures.get(label))
        else {
            return Err(Fault::Syntax);
        };
        let bytes = item.bare_item.as_byte_sequence().ok_or(Fault::Syntax)?;
        let text = |name: &str| Some(list.params.get(name)?.as_string()?.as_str().to_owned());
        if list.params.contains_key("alg")
            && text("alg").as_deref() != Some(key.algorithm().as_str())
        {
            continue;
        }
        let input = serialize(label, list);
        let stated = input.get(label.as_str().len() + 1..).ok_or(Fault::Syntax)?;
        match base(request, &list.items, stated) {
            Ok(base) if key.accepts(base.as_bytes(), bytes) => {
                let time = |name: &str| Some(i64::from(list.params.get(name)?.as_integer()?));
                return Ok(Verified {
                    components: list.items.iter().map(identifier).collect(),
                    created: time("created"),
                    expires: time("expires"),
                    key_id: text("keyid"),
                });
            }
            Ok(_) => {}
            Err(other) => fault = other,
        }
    }
    Err(fault)
}

/// The signature base (section 2.5); `stated` is the value of `@signature-params`.
fn base(request: &Request<'_>, components: &[Item], stated: &str) -> Result<String, Fault> {
    let mut base = String::with_capacity(512);
    let mut named: Vec<String> = Vec::with_capacity(components.len());
    for component in components {
        let identifier = identifier(component);
        if named.contains(&identifier) {
            return Err(Fault::Component);
        }
        base.push_str(&identifier);
        base.push_str(": ");
        base.push_str(&value(request, component)?);
        base.push('\n');
        named.push(identifier);
    }
    base.push_str("\"@signature-params\": ");
    base.push_str(stated);
    Ok(base)
}

fn derived(request: &Request<'_>, name: &str, params: &Parameters) -> Result<String, Fault> {
    let url = Url::parse(request.url).map_err(|_| Fault::Component)?;
    if name == "@query-param" {
        return query_param(&url, params);
    }
    if !params.is_empty() {
        return Err(Fault::Component);
    }
    let query = || {
        url.query()
            .map_or_else(String::new, |query| format!("?{query}"))
    };
    Ok(match name {
        "@method" => request.method.to_owned(),
        "@target-uri" => url.as_str().to_owned(),
        "@authority" => authority(&url)?,
        "@scheme" => url.scheme().to_owned(),
        "@request-target" => format!("{}{}", url.path(), query()),
        "@path" => url.path().to_owned(),
        "@query" => format!("?{}", url.query().unwrap_or_default()),
        _ => return Err(Fault::Component),
    })
}

/// The parser has made the host lower case and taken a default port away.
fn authority(url: &Url) -> Result<String, Fault> {
    let host = url.host_str().ok_or(Fault::Component)?;
    Ok(match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

/// Section 2.2.8: decoded as a form, then encoded again; one that is there twice has no value.
fn query_param(url: &Url, params: &Parameters) -> Result<String, Fault> {
    let name = match (params.get("name"), params.len()) {
        (Some(name), 1) => name.as_string().ok_or(Fault::Component)?.as_str(),
        _ => return Err(Fault::Component),
    };
    let encode = |text: &str| -> String {
        url::form_urlencoded::byte_serialize(text.as_bytes())
            .map(|part| if part == "+" { "%20" } else { part })
            .collect()
    };
    let mut values = url
        .query_pairs()
        .filter(|(key, _)| encode(key) == name)
        .map(|(_, value)| encode(&value));
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value),
        _ => Err(Fault::Component),
    }
}

/// Section 2.1: the lines of a field, trimmed and joined.
fn field(request: &Request<'_>, name: &str, bytes: bool) -> Result<String, Fault> {
    // A name is lower case in an identifier; ours are tokens.
    let token = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
    };
    if name.is_empty() || !name.bytes().all(token) {
        return Err(Fault::Component);
    }
    let lines: Vec<&str> = request
        .headers
        .iter()
        .filter(|(given, _)| given.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim_matches([' ', '\t']))
        .collect();
    if lines.is_empty() {
        return Err(Fault::Component);
    }
    if bytes {
        let lines: Vec<String> = lines
            .iter()
            .map(|line| format!(":{}:", STANDARD.encode(line)))
            .collect();
        return Ok(lines.join(", "));
    }
    let visible = |line: &&str| line.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    if !lines.iter().all(visible) {
        return Err(Fault::HeaderValue);
    }
    Ok(lines.join(", "))
}

fn identifier(component: &Item) -> String {
    ItemSerializer::new()
        .bare_item(&component.bare_item)
        .parameters(&component.params)
        .finish()
}

/// The member of `Signature-Input`: label, `=`, components and parameters.
fn serialize(label: &KeyRef, list: &InnerList) -> String {
    let mut dictionary = DictSerializer::new();
    let mut inner = dictionary.inner_list(label);
    inner.items(&list.items);
    let _ = inner.finish().parameters(&list.params);
    // One member is no empty dictionary.
    dictionary.finish().unwrap_or_default()
}

/// Most components that one signature covers.
const MOST_COMPONENTS: usize = 50;

#[cfg(test)]
#[path = "http_signature_tests.rs"]
mod tests;
