//! What a revision of an endpoint says about the shape of its payload: format, how much of the data, and which schema
//! version of which event type. With the stored bytes of an event it gives the bytes that are sent, always the same.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::rules::envelope::Event;
use crate::rules::selection::{Fields, difference};
use crate::rules::shape::Format;

/// How much of an event's data is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum DataShape {
    /// All of it.
    #[default]
    Full,
    /// These members.
    Fields(Arc<Fields>),
    /// Nothing: the envelope alone.
    Thin,
    /// What has changed, where the data says it.
    Delta,
}

impl DataShape {
    /// Names of all of them.
    pub const NAMES: [&'static str; 4] = ["full", "fields", "thin", "delta"];

    /// As it is stored. What cannot be read, which only a hand in the tables can have written, sends nothing rather than
    /// too much.
    pub fn read(name: Option<&str>, fields: Option<&[String]>) -> DataShape {
        match name {
            None | Some("full") => Self::Full,
            Some("delta") => Self::Delta,
            Some("fields") => {
                let paths = fields.unwrap_or_default().iter().map(String::as_str);
                Fields::parse(paths).map_or(Self::Thin, |fields| Self::Fields(Arc::new(fields)))
            }
            Some(_) => Self::Thin,
        }
    }

    /// What is sent of some data, and the name of that shape; no name where everybody gets everything.
    pub fn cut<'d>(&self, data: &'d str) -> (Option<Cow<'d, str>>, Option<&'static str>) {
        let whole = Some(Cow::Borrowed(data));
        match self {
            Self::Full => (whole, None),
            Self::Fields(fields) => (Some(Cow::Owned(fields.select(data))), Some("fields")),
            Self::Thin => (None, Some("thin")),
            Self::Delta => match difference(data) {
                Some(difference) => (Some(Cow::Owned(difference)), Some("delta")),
                None => (whole, Some("full")),
            },
        }
    }
}

/// Shape of an endpoint's payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    /// Form of the body.
    pub format: Format,
    /// How much of the data.
    pub data: DataShape,
    /// Schema versions by event type.
    pins: BTreeMap<String, Arc<str>>,
}

/// What an endpoint wants of an event of one type: the key of bytes that are made once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// Form of the body.
    pub format: Format,
    /// How much of the data.
    pub data: DataShape,
    /// Schema version; none = that of the event.
    pub version: Option<Arc<str>>,
}

impl Revision {
    /// As it is stored; `pins` is a JSON object of texts.
    pub fn read(
        format: Option<&str>,
        data_shape: Option<&str>,
        fields: Option<&[String]>,
        pins: Option<&str>,
    ) -> Revision {
        Revision {
            // The tables allow no other names.
            format: format.and_then(Format::parse).unwrap_or_default(),
            data: DataShape::read(data_shape, fields),
            pins: pins.map(read_pins).unwrap_or_default(),
        }
    }

    /// Whether it names a schema version of any type.
    pub fn pins_any(&self) -> bool {
        !self.pins.is_empty()
    }

    /// What it wants of events of a type.
    pub fn wanted(&self, kind: &str) -> Wanted {
        Wanted {
            format: self.format,
            data: self.data.clone(),
            version: self.pins.get(kind).cloned(),
        }
    }
}

impl Wanted {
    /// The schema version that the event's own data is not of.
    pub fn other_version(&self, event: &Event) -> Option<&Arc<str>> {
        self.version
            .as_ref()
            .filter(|version| event.schema_version.as_deref() != Some(version))
    }
}

fn read_pins(json: &str) -> BTreeMap<String, Arc<str>> {
    let Ok(serde_json::Value::Object(members)) = serde_json::from_str(json) else {
        return BTreeMap::new();
    };
    members
        .into_iter()
        // A version that is no text is one that no event has.
        .map(|(kind, version)| (kind, Arc::from(version.as_str().unwrap_or_default())))
        .collect()
}

#[cfg(test)]
#[path = "revision_tests.rs"]
mod tests;
