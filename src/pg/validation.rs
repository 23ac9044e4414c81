//! What emit asks the catalogue before it writes: is the type known and still in use, may the source emit it, does the
//! payload match its schema, and is nothing in it that must stay inside.
//!
//! Errors and warnings name type, version, path and rule: never a value.

use std::cell::RefCell;
use std::ffi::CString;
use std::rc::Rc;

use pgrx::prelude::*;

use super::access;
use super::catalogue::{self, EventType, Version};
use super::emit::now_micros;
use super::error::Raise;
use super::settings::{self, Mode};
use crate::rules::envelope::Event;
use crate::rules::forbidden::Forbidden;
use crate::rules::matching;

/// Refuses, or warns about, what the catalogue does not allow; an event that names no schema version gets the current one.
pub fn check(event: &mut Event) {
    let known = catalogue::event_type(&event.kind);
    match &known {
        Some(kind) => check_life(&event.kind, kind),
        None => tell(settings::unknown_types(), || {
            (
                PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
                format!("event type \"{}\" does not exist", event.kind),
                String::from("It is not registered in the catalogue."),
                "Register it with webhook.create_event_type; see webhook.unknown_types.",
            )
        }),
    }
    check_source(event, known.as_deref());
    if let Some(kind) = known {
        check_payload(event, &kind);
    }
    check_keys(event);
}

/// What is to be said about a rule that was broken: SQLSTATE, message, detail, hint.
type Told = (PgSqlErrorCode, String, String, &'static str);

fn tell(mode: Mode, what: impl FnOnce() -> Told) {
    if mode == Mode::Off {
        return;
    }
    let (code, message, detail, hint) = what();
    if mode == Mode::Refuse {
        Raise::new(code, message).detail(detail).hint(hint).raise();
    }
    Raise::new(PgSqlErrorCode::ERRCODE_WARNING, message)
        .detail(detail)
        .hint(hint)
        .warn();
}

fn check_life(name: &str, kind: &EventType) {
    if !kind.deprecated {
        return;
    }
    let over = kind.sunset_at.is_some_and(|sunset| sunset <= now_micros());
    tell(if over { Mode::Refuse } else { Mode::Warn }, || {
        (
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("event type \"{name}\" is deprecated"),
            match &kind.replaced_by {
                Some(other) => format!("Event type \"{other}\" is to be used in its place."),
                None => String::from("The catalogue says why."),
            },
            "See webhook.event_types.",
        )
    });
}

/// A source that is registered has limits; a type may ask for one of certain sources.
fn check_source(event: &Event, kind: Option<&EventType>) {
    let listed = kind.and_then(|kind| kind.sources.as_ref());
    let refuse = |code, message: String, detail: &str| -> ! {
        Raise::new(code, message)
            .detail(detail)
            .hint("See webhook.sources.")
            .raise()
    };
    const DENIED: PgSqlErrorCode = PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE;
    let Some(name) = &event.source else {
        if listed.is_some() {
            refuse(
                DENIED,
                format!("event type \"{}\" needs a source", event.kind),
                "Certain sources alone may emit it.",
            );
        }
        return;
    };
    let denied = || format!("permission denied for source \"{name}\"");
    if listed.is_some_and(|sources| !sources.contains(name)) {
        refuse(DENIED, denied(), "The event type is for other sources.");
    }
    let Some(source) = catalogue::source(name) else {
        return;
    };
    if !source.enabled {
        refuse(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("source \"{name}\" is switched off"),
            "Events that name it are refused.",
        );
    }
    if source.role.is_some_and(|role| !access::acts_for(role)) {
        refuse(DENIED, denied(), "It is for members of a certain role.");
    }
    let covers = |pattern: &String| matching::type_matches(pattern, &event.kind);
    if !source.event_types.iter().any(covers) {
        refuse(DENIED, denied(), "It may not emit events of this type.");
    }
    if let Some(partners) = &source.partners
        && !partners.contains(&event.partner_id)
    {
        refuse(DENIED, denied(), "It may not emit events of this partner.");
    }
}

fn check_payload(event: &mut Event, kind: &EventType) {
    if kind.versions.is_empty() {
        return;
    }
    let current = kind.versions.iter().find(|version| version.current);
    let Some(wanted) = &event.schema_version else {
        if let Some(current) = current {
            event.schema_version = Some(current.name.clone());
            match_schema(event, current);
        }
        return;
    };
    match kind.versions.iter().find(|version| version.name == *wanted) {
        Some(version) => match_schema(event, version),
        None => tell(mode_of(current), || {
            (
                PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
                format!(
                    "event type \"{}\" has no schema version \"{}\"",
                    event.kind,
                    wanted.chars().take(64).collect::<String>()
                ),
                String::from("The payload cannot be validated."),
                "Add it with webhook.add_schema, or leave schema_version out for the current one.",
            )
        }),
    }
}

/// What the version says, or else the setting.
fn mode_of(version: Option<&Version>) -> Mode {
    version
        .and_then(|version| version.mode)
        .unwrap_or_else(settings::validation)
}

fn match_schema(event: &Event, version: &Version) {
    let mode = mode_of(Some(version));
    if mode == Mode::Off {
        return;
    }
    let detail = match version.schema() {
        Ok(schema) => match schema.check_text(&event.data) {
            Ok(()) => return,
            Err(violation) => violation.sentence(),
        },
        Err(_) => String::from("The schema cannot be used any more."),
    };
    tell(mode, || {
        (
            PgSqlErrorCode::ERRCODE_CHECK_VIOLATION,
            format!(
                "payload of event type \"{}\" does not match schema version \"{}\"",
                event.kind, version.name
            ),
            detail,
            "See webhook.event_schemas.",
        )
    });
}

thread_local! {
    /// The names that are forbidden, and the text of the setting that they were read from.
    static FORBIDDEN: RefCell<Option<(CString, Rc<Forbidden>)>> = const { RefCell::new(None) };
}

fn check_keys(event: &Event) {
    let mode = settings::forbidden_keys_mode();
    if mode == Mode::Off {
        return;
    }
    let Some(path) = forbidden().first_in(&event.data) else {
        return;
    };
    tell(mode, || {
        (
            PgSqlErrorCode::ERRCODE_CHECK_VIOLATION,
            format!(
                "payload of event type \"{}\" has a forbidden key",
                event.kind
            ),
            format!("\"{path}\" is the name of something that stays inside."),
            "Leave it out; see webhook.forbidden_keys.",
        )
    });
}

/// A key of a converted payload that must not be there.
pub fn refused_key(data: &str) -> Option<String> {
    (settings::forbidden_keys_mode() == Mode::Refuse)
        .then(|| forbidden().first_in(data))
        .flatten()
}

fn forbidden() -> Rc<Forbidden> {
    let text = settings::forbidden_keys().unwrap_or_default();
    FORBIDDEN.with_borrow_mut(|kept| match kept {
        Some((of, names)) if *of == text => Rc::clone(names),
        _ => {
            let names = Forbidden::parse(&text.to_string_lossy()).unwrap_or_default();
            let names = Rc::new(names);
            *kept = Some((text, Rc::clone(&names)));
            names
        }
    })
}
