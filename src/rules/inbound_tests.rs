//! Tests of `inbound`: what is read of a request, and what is not taken from one.

use proptest::prelude::*;

use super::*;

fn reading(profile: Profile) -> Reading {
    Reading {
        profile,
        partner_id: Some("acme".to_owned()),
        partner_from: None,
        partners: None,
        id_from: Locator::of_id(profile),
        type_from: Locator::of_type(profile),
    }
}

fn lines(pairs: &[(&str, &str)]) -> Headers {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Headers::new(pairs.iter().map(owned).collect())
}

fn vouched(names: &[&str]) -> Vouched {
    Vouched {
        signed_at: None,
        headers: names.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn read_body(
    reading: &Reading,
    headers: &Headers,
    names: &[&str],
    body: &str,
) -> Result<Read, Unread> {
    let json = body_json(body.as_bytes());
    read(
        reading,
        headers,
        &vouched(names),
        body.as_bytes(),
        json.as_ref(),
    )
}

#[test]
fn our_own_envelope_is_read_whole() {
    let body = r#"{"event_id":"evt_x","type":"order.paid","partner_id":"other",
        "subject":{"type":"order","id":"7","version":3},"schema_version":"2","correlation_id":"c-1","data":{}}"#;
    let found = read_body(
        &reading(Profile::V1),
        &lines(&[("Webhook-Id", "evt_x")]),
        &["webhook-id"],
        body,
    );
    let wanted = Read {
        event_id: "evt_x".to_owned(),
        // The source's own, not what the body says.
        partner_id: "acme".to_owned(),
        kind: Some("order.paid".to_owned()),
        subject_type: Some("order".to_owned()),
        subject_id: Some("7".to_owned()),
        subject_version: Some(3),
        schema_version: Some("2".to_owned()),
        correlation_id: Some("c-1".to_owned()),
    };
    assert_eq!(found, Ok(wanted));
}

#[test]
fn an_id_that_no_signature_covers_is_none_where_signatures_name_what_they_cover() {
    let headers = lines(&[("webhook-id", "evt_x")]);
    let of = |profile, names: &[&str]| read_body(&reading(profile), &headers, names, "{}");
    assert_eq!(
        of(Profile::HttpHmac, &["content-digest"]),
        Err(Unread::NoId)
    );
    assert!(of(Profile::HttpHmac, &["webhook-id"]).is_ok());
    let github = lines(&[
        ("x-github-delivery", "72d3162e"),
        ("x-github-event", "push"),
    ]);
    let mut source = reading(Profile::Github);
    source.id_from = Locator::Header("x-github-delivery".to_owned());
    let found = read_body(&source, &github, &[], "{}").expect("read");
    assert_eq!(found.event_id, "72d3162e");
    assert_eq!(found.kind.as_deref(), Some("push"));
    assert_eq!(found.correlation_id, None);
}

#[test]
fn a_body_that_comes_again_under_another_unsigned_id_is_the_same_event() {
    for (profile, header) in [
        (Profile::Github, "x-github-delivery"),
        (Profile::GithubSha1, "x-github-delivery"),
        (Profile::Shopify, "x-shopify-webhook-id"),
    ] {
        let of = |id: &str, body: &str| {
            read_body(&reading(profile), &lines(&[(header, id)]), &[], body).expect("read")
        };
        let (first, again) = (of("72d3162e", "{}"), of("stolen", "{}"));
        assert_eq!(first.event_id, again.event_id);
        assert_ne!(first.event_id, of("72d3162e", "[]").event_id);
        // What the sender calls it is kept beside it.
        assert_eq!(first.correlation_id.as_deref(), Some("72d3162e"));
        assert_eq!(of("a b", "{}").correlation_id, None);
        assert_eq!(
            of("72d3162e", r#"{"correlation_id":"c"}"#)
                .correlation_id
                .as_deref(),
            Some("c")
        );
    }
}

#[test]
fn a_partner_comes_from_what_is_signed_or_not_at_all() {
    let mut source = reading(Profile::Github);
    source.partner_id = None;
    source.id_from = Locator::Digest;
    let headers = lines(&[("x-tenant", "globex")]);
    let of = |source: &Reading| read_body(source, &headers, &[], r#"{"tenant":"initech","n":7}"#);
    assert_eq!(of(&source), Err(Unread::NoPartner));
    source.partner_from = Locator::parse("header:x-tenant");
    assert_eq!(of(&source), Err(Unread::NoPartner));
    source.partner_from = Locator::parse("body:/tenant");
    let found = of(&source).expect("read");
    assert_eq!(found.partner_id, "initech");
    assert_eq!(found.event_id.len(), 64);
    source.partners = Some(vec!["globex".to_owned()]);
    assert_eq!(of(&source), Err(Unread::Partner));
    source.partners = None;
    source.partner_from = Locator::parse("body:/n");
    assert_eq!(of(&source).expect("read").partner_id, "7");
    source.partner_from = Locator::parse("body:/nothing");
    assert_eq!(of(&source), Err(Unread::NoPartner));
}

#[test]
fn ids_and_partners_that_cannot_be_keys_are_refused() {
    for id in ["", "a b", "é", "a\nb", &"x".repeat(257)] {
        let found = read_body(
            &reading(Profile::V1),
            &lines(&[("webhook-id", id)]),
            &["webhook-id"],
            "{}",
        );
        assert_eq!(found, Err(Unread::BadId), "{id}");
    }
    let mut source = reading(Profile::Stripe);
    source.partner_id = None;
    source.partner_from = Locator::parse("body:/p");
    for partner in ["", "_operator", "a b", "a\\u0000b"] {
        let body = format!(r#"{{"id":"evt_1","p":"{partner}"}}"#);
        let found = read_body(&source, &Headers::default(), &[], &body);
        assert_eq!(found, Err(Unread::Partner), "{partner}");
    }
}

#[test]
fn what_is_no_json_or_ambiguous_has_no_members() {
    for body in ["", "{", "{}{}", "\u{feff}{}", "[1,]", r#"{"a":1,"a":2}"#] {
        assert_eq!(body_json(body.as_bytes()), None, "{body}");
    }
    assert_eq!(body_json(b"{\"a\":\"\xff\"}"), None);
    assert_eq!(body_json("[".repeat(100_000).as_bytes()), None);
    assert!(body_json(br#"{"n":12345678901234567890.10}"#).is_some());
}

#[test]
fn locators_are_read_strictly() {
    for (text, locator) in [
        ("digest", Locator::Digest),
        (
            "header:X-GitHub-Delivery",
            Locator::Header("x-github-delivery".to_owned()),
        ),
        ("body:/a~1b", Locator::Body("/a~1b".to_owned())),
    ] {
        assert_eq!(Locator::parse(text), Some(locator));
    }
    for text in [
        "",
        "header:",
        "header:a b",
        "body:",
        "body:a",
        "/a",
        "Digest",
        "header:x\n",
    ] {
        assert_eq!(Locator::parse(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn whatever_a_body_says_what_is_read_of_it_can_be_stored(
        body in "\\PC{0,80}|\\{\"id\":\"\\PC{0,20}\",\"type\":\"[a-z./]{0,20}\",\"subject\":\\{\"type\":\"o\",\"id\":\"(\\\\\\\\u0000|x){1,3}\",\"version\":[0-9.e+-]{1,22}\\}\\}",
        profile in proptest::sample::select(Profile::ALL.to_vec()),
        locator in ".{0,20}",
    ) {
        let _ = Locator::parse(&locator);
        let _ = Locator::parse(&format!("body:/{locator}"));
        let headers = lines(&[("webhook-id", "a"), ("x-github-delivery", &body), ("x-shopify-webhook-id", "b")]);
        if let Ok(found) = read_body(&reading(profile), &headers, &["webhook-id"], &body) {
            prop_assert!(valid_event_id(&found.event_id));
            prop_assert!(found.kind.as_deref().is_none_or(valid_type));
            for text in [found.subject_type, found.subject_id, found.schema_version].into_iter().flatten() {
                prop_assert!(storable(&text));
            }
        }
    }

    #[test]
    fn no_bytes_make_the_reading_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = body_json(&body);
    }
}
