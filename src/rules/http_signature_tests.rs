//! Tests of `http_signature` beside its vectors.

use proptest::prelude::*;

use super::*;
use crate::rules::ed25519::KeyPair;
use crate::rules::signing::Secret;

fn headers(value: &str) -> Vec<(String, String)> {
    vec![
        ("Content-Type".to_owned(), "application/json".to_owned()),
        ("X-A".to_owned(), format!(" {value}\t")),
        ("x-a".to_owned(), "second".to_owned()),
    ]
}

fn items(names: &[&str]) -> Vec<Item> {
    names.iter().map(|name| component(name).unwrap()).collect()
}

fn label() -> &'static KeyRef {
    KeyRef::from_str("sig1").unwrap()
}

#[test]
fn a_component_that_is_named_twice_or_not_understood_is_never_signed() {
    let headers = headers("1");
    let request = Request {
        method: "POST",
        url: "https://example.com/a?b=1&c=1&c=2",
        headers: &headers,
    };
    let key = Key::from(Secret::generate([1; 32]));
    for names in [
        &["@method", "@method"][..],
        &["\"x-a\";bs", "\"x-a\";bs"],
        &["\"x-a\";sf"],
        &["\"x-a\";key=\"b\""],
        &["\"x-a\";bs=?0"],
        &["\"x-a\";req"],
        &["\"@method\";req"],
        &["\"@query-param\""],
        &["\"@query-param\";name=\"c\""],
        &["\"@query-param\";name=1"],
        &[""],
        &["@"],
        &["x a"],
    ] {
        let found = sign(&request, &items(names), &Parameters::new(), label(), &key);
        assert_eq!(found.unwrap_err(), Fault::Component, "{names:?}");
    }
    for identifier in ["\"a", "\"a\" \"b\"", "é", "a\nb"] {
        assert_eq!(
            component(identifier).unwrap_err(),
            Fault::Component,
            "{identifier}"
        );
    }
}

#[test]
fn lines_of_a_field_are_trimmed_and_joined_or_wrapped_one_by_one() {
    let headers = headers("first");
    let request = Request {
        method: "POST",
        url: "https://example.com/",
        headers: &headers,
    };
    assert_eq!(
        value(&request, &component("x-a").unwrap()).unwrap(),
        "first, second"
    );
    assert_eq!(
        value(&request, &component("\"x-a\";bs").unwrap()).unwrap(),
        ":Zmlyc3Q=:, :c2Vjb25k:"
    );
}

#[test]
fn broken_signature_headers_are_no_signatures() {
    let request = Request {
        method: "POST",
        url: "https://example.com/",
        headers: &[],
    };
    let key = VerifyingKey::from(Secret::generate([1; 32]));
    for (input, signature) in [
        ("", ""),
        ("a=(\"@method\")", ""),
        ("a=(\"@method\")", "b=:AA==:"),
        ("a=(\"@method\")", "a=1"),
        ("a=\"@method\"", "a=:AA==:"),
        ("a=(\"@method\")", "a=:AA==:"),
        ("a=(\"@method\" 1)", "a=:AA==:"),
        ("a=(\"@method\");alg=\"ed25519\"", "a=:AA==:"),
        ("a=(\"@method\");alg=1", "a=:AA==:"),
        ("a=(", "a=:AA==:"),
        ("é", "a"),
    ] {
        assert!(
            verify(&request, input, signature, &key).is_err(),
            "{input} {signature}"
        );
    }
}

proptest! {
    #[test]
    fn what_is_signed_is_verified_and_any_covered_change_is_noticed(
        value in "[ -~]{0,20}", other in "[!-~]{1,20}", path in "[a-z%&=?/]{0,12}", asymmetric: bool, seed: [u8; 32], created in 0i64..4_000_000_000,
    ) {
        let url = format!("https://example.com/{path}");
        prop_assume!(Url::parse(&url).is_ok());
        let (key, check) = if asymmetric {
            let pair = KeyPair::from_seed(&seed);
            let public = pair.public();
            (Key::from(pair), VerifyingKey::from(public))
        } else {
            (Key::from(Secret::generate(seed)), VerifyingKey::from(Secret::generate(seed)))
        };
        let lines = headers(&value);
        let request = Request { method: "POST", url: &url, headers: &lines };
        let mut params = Parameters::new();
        params.insert(KeyRef::from_str("created").unwrap().to_owned(), sfv::Integer::try_from(created).unwrap().into());
        let covered = items(&["@method", "@authority", "@path", "@query", "x-a", "content-type"]);
        let signed = sign(&request, &covered, &params, label(), &key).unwrap();
        let verified = verify(&request, &signed.input, &signed.signature, &check).unwrap();
        prop_assert_eq!(verified.created, Some(created));
        prop_assert_eq!(verified.components.len(), covered.len());

        let changed = headers(&format!("{value}{other}"));
        for changed in [
            Request { headers: &changed, ..request },
            Request { method: "GET", ..request },
            Request { url: &format!("{url}{other}x"), ..request },
        ] {
            // A fragment is no part of a request.
            if changed.url.contains('#') || Url::parse(changed.url).is_err() {
                continue;
            }
            prop_assert_eq!(verify(&changed, &signed.input, &signed.signature, &check), Err(Fault::NoMatch));
        }
        let uncovered = signed.input.replace(" \"x-a\"", "");
        prop_assert!(verify(&request, &uncovered, &signed.signature, &check).is_err());
    }

    #[test]
    fn no_text_makes_anything_panic(input in ".{0,60}", signature in ".{0,40}", url in ".{0,30}", name in ".{0,20}") {
        let lines = [(name.clone(), input.clone())];
        let request = Request { method: "POST", url: &url, headers: &lines };
        let _ = verify(&request, &input, &signature, &Secret::generate([1; 32]).into());
        if let Ok(item) = component(&name) {
            let _ = value(&request, &item);
        }
    }
}
