//! The names of things: event ids, endpoint ids, and the delivery id made from both.
//!
//! Ids are ordered by time and unique over nodes. This file turns them into text and back, and accepts
//! canonical text only: an id is compared byte by byte in SQL, on the wire and in logs, so two spellings of
//! one id would be two ids. It takes neither the time nor the random bits itself: both are arguments.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// The id of an event: 48 bits of Unix milliseconds, then 80 random bits (a ULID).
///
/// Its text is `evt_` and 26 upper-case characters of Crockford base32; the order of the texts, byte by
/// byte, is the order of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(u128);

impl EventId {
    /// The id with exactly these 128 bits.
    pub const fn from_u128(bits: u128) -> Self {
        Self(bits)
    }

    /// All 128 bits.
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// An id of the given millisecond; of `random` the low 80 bits are used.
    pub fn new(unix_ms: u64, random: u128) -> Self {
        let ms = u128::from(unix_ms.min(MAX_MS));
        Self(ms << RANDOM_BITS | random & RANDOM_MASK)
    }

    /// The smallest id of the given millisecond: the bound of a partition or of a search by time.
    pub fn first_of(unix_ms: u64) -> Self {
        Self::new(unix_ms, 0)
    }

    /// The Unix millisecond the id carries.
    pub fn unix_ms(self) -> u64 {
        // 48 bits are left after the shift.
        (self.0 >> RANDOM_BITS) as u64
    }

    /// The smallest id greater than this one, so that ids made in the same millisecond keep their order.
    ///
    /// A carry out of the random bits moves on to the next millisecond. The greatest id is its own successor.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Its text, without an allocation.
    pub fn text(self) -> EventText {
        let mut text = [0; EVENT_TEXT_LEN];
        let (prefix, digits) = text.split_at_mut(EVENT_PREFIX.len());
        prefix.copy_from_slice(EVENT_PREFIX.as_bytes());
        digits.copy_from_slice(&self.base32());
        EventText(text)
    }

    /// The 26 characters after the prefix. The alphabet is ASCII, so every byte is a character.
    fn base32(self) -> [u8; TEXT_LEN] {
        let mut text = [0; TEXT_LEN];
        let mut rest = self.0;
        for slot in text.iter_mut().rev() {
            *slot = ALPHABET[(rest & 31) as usize];
            rest >>= 5;
        }
        text
    }

    fn from_base32(text: &str) -> Option<Self> {
        if text.len() != TEXT_LEN {
            return None;
        }
        let mut bits: u128 = 0;
        for (position, byte) in text.bytes().enumerate() {
            let digit = DIGITS[usize::from(byte)];
            // 26 characters carry 130 bits: the first one may use only three of its five.
            if digit == NO_DIGIT || position == 0 && digit > 7 {
                return None;
            }
            bits = bits << 5 | u128::from(digit);
        }
        Some(Self(bits))
    }
}

/// The text of an event id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventText([u8; EVENT_TEXT_LEN]);

impl AsRef<str> for EventText {
    fn as_ref(&self) -> &str {
        // Letters and digits of ASCII; the error branch cannot be reached and needs no panic.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EVENT_PREFIX)?;
        write_base32(*self, f)
    }
}

impl FromStr for EventId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        text.strip_prefix(EVENT_PREFIX)
            .and_then(Self::from_base32)
            .ok_or(IdError::Event)
    }
}

/// The id of an endpoint: a time-ordered `bigint` with random low bits, unique over nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub i64);

impl EndpointId {
    /// An id of the given millisecond; of `random` the low 22 bits are used.
    ///
    /// 41 bits of milliseconds since 2025 last until 2094; times outside are taken as the nearest inside.
    pub fn new(unix_ms: u64, random: u32) -> Self {
        let ms = unix_ms.saturating_sub(ENDPOINT_EPOCH_MS).min((1 << 41) - 1);
        let low = u64::from(random) & ((1 << 22) - 1);
        // 41 + 22 bits: the sign bit stays clear.
        Self((ms << 22 | low) as i64)
    }
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One event for one endpoint: what a delivery is about, and its id as text (`dlv_..._...`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// The event that is delivered.
    pub event: EventId,
    /// The endpoint it is delivered to.
    pub endpoint: EndpointId,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DELIVERY_PREFIX)?;
        write_base32(self.event, f)?;
        write!(f, "_{}", self.endpoint)
    }
}

impl FromStr for Pair {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let rest = text.strip_prefix(DELIVERY_PREFIX);
        let (event, endpoint) = rest
            .and_then(|rest| rest.split_once('_'))
            .ok_or(IdError::Delivery)?;
        let pair = Self {
            event: EventId::from_base32(event).ok_or(IdError::Delivery)?,
            endpoint: EndpointId(endpoint.parse().map_err(|_| IdError::Delivery)?),
        };
        // The integer parser takes `+7`, `007` and `-0`, too: what does not come back the same is no id.
        if pair.endpoint.to_string() != endpoint {
            return Err(IdError::Delivery);
        }
        Ok(pair)
    }
}

/// Why a text is not an id. The text itself is left out: who shows the error knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdError {
    /// The text is not an event id.
    Event,
    /// The text is not a delivery id.
    Delivery,
}

impl IdError {
    /// What the id should have looked like: a whole sentence for the detail of an SQL error.
    pub fn detail(self) -> &'static str {
        match self {
            Self::Event => {
                "An event id is \"evt_\" followed by 26 upper-case characters of Crockford base32."
            }
            Self::Delivery => {
                "A delivery id is \"dlv_\", the 26 characters of the event id, \"_\" and the endpoint id."
            }
        }
    }
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Event => "invalid event id",
            Self::Delivery => "invalid delivery id",
        })
    }
}

impl Error for IdError {}

fn write_base32(id: EventId, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let text = id.base32();
    // The alphabet is ASCII; the error branch cannot be reached and needs no panic.
    f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
}

const EVENT_PREFIX: &str = "evt_";
const DELIVERY_PREFIX: &str = "dlv_";
/// Crockford base32 in ascending ASCII order, which is what keeps texts in the order of the numbers.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const TEXT_LEN: usize = 26;
const EVENT_TEXT_LEN: usize = EVENT_PREFIX.len() + TEXT_LEN;
/// The value of each letter: every event that is read has an id of 26 of them.
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < ALPHABET.len() {
        digits[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    digits
};
const NO_DIGIT: u8 = 255;
const RANDOM_BITS: u32 = 80;
const RANDOM_MASK: u128 = (1 << RANDOM_BITS) - 1;
/// 48 bits of milliseconds: the year 10889.
const MAX_MS: u64 = (1 << 48) - 1;
/// 2025-01-01 00:00:00 UTC.
const ENDPOINT_EPOCH_MS: u64 = 1_735_689_600_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn event_id_text_is_a_ulid() {
        // The example of the ULID specification.
        let text = "evt_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let id: EventId = text.parse().unwrap();
        assert_eq!(id.unix_ms(), 1_469_922_850_259);
        assert_eq!(id.to_string(), text);
        assert_eq!(
            EventId::from_u128(0).to_string(),
            format!("evt_{}", "0".repeat(26))
        );
        assert_eq!(
            EventId::from_u128(u128::MAX).to_string(),
            format!("evt_7{}", "Z".repeat(25))
        );
    }

    #[test]
    fn only_canonical_event_id_text_is_accepted() {
        for text in [
            "",
            "evt_",
            "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "EVT_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "evt_01arz3ndektsv4rrffq69g5fav",
            "evt_01ARZ3NDEKTSV4RRFFQ69G5FA",
            "evt_01ARZ3NDEKTSV4RRFFQ69G5FAVV",
            "evt_01ARZ3NDEKTSV4RRFFQ69G5FAI",
            "evt_01ARZ3NDEKTSV4RRFFQ69G5FAL",
            "evt_01ARZ3NDEKTSV4RRFFQ69G5FAO",
            "evt_01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "evt_81ARZ3NDEKTSV4RRFFQ69G5FAV",
            " evt_01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "evt_01ARZ3NDEKTSV4RRFFQ69G5FAV ",
            "evt_01ARZ3NDEKTSV4RRFFQ69G5F\u{e9}",
        ] {
            assert_eq!(text.parse::<EventId>(), Err(IdError::Event), "{text}");
        }
    }

    #[test]
    fn only_canonical_delivery_id_text_is_accepted() {
        let event = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
        assert!(format!("dlv_{event}_42").parse::<Pair>().is_ok());
        for text in [
            String::new(),
            format!("dlv_{event}"),
            format!("dlv_{event}_"),
            format!("dlv_{event}_042"),
            format!("dlv_{event}_+42"),
            format!("dlv_{event}_-0"),
            format!("dlv_{event}_4 2"),
            format!("dlv_{event}_9223372036854775808"),
            format!("dlv_{event}_42_1"),
            format!("dlv_evt_{event}_42"),
            format!("evt_{event}_42"),
            format!("dlv_{}_42", event.to_lowercase()),
        ] {
            assert_eq!(text.parse::<Pair>(), Err(IdError::Delivery), "{text}");
        }
    }

    #[test]
    fn endpoint_ids_count_from_2025_and_stay_positive() {
        assert_eq!(EndpointId::new(ENDPOINT_EPOCH_MS, 0), EndpointId(0));
        assert_eq!(
            EndpointId::new(ENDPOINT_EPOCH_MS + 1, 3),
            EndpointId((1 << 22) + 3)
        );
        assert_eq!(EndpointId::new(0, u32::MAX), EndpointId((1 << 22) - 1));
        assert_eq!(EndpointId::new(u64::MAX, u32::MAX), EndpointId(i64::MAX));
    }

    proptest! {
        #[test]
        fn event_ids_round_trip(bits: u128) {
            let id = EventId::from_u128(bits);
            prop_assert_eq!(id.to_string().parse(), Ok(id));
            prop_assert_eq!(id.as_u128(), bits);
        }

        #[test]
        fn the_order_of_event_id_texts_is_the_order_of_the_ids(a: u128, b: u128) {
            let (a, b) = (EventId::from_u128(a), EventId::from_u128(b));
            prop_assert_eq!(a.cmp(&b), a.to_string().as_bytes().cmp(b.to_string().as_bytes()));
        }

        #[test]
        fn event_ids_are_ordered_by_time_first(ms in 0..MAX_MS, x: u128, y: u128) {
            prop_assert!(EventId::new(ms, x) < EventId::new(ms + 1, y));
            prop_assert_eq!(EventId::new(ms, x).unix_ms(), ms);
            prop_assert!(EventId::first_of(ms) <= EventId::new(ms, x));
        }

        #[test]
        fn the_successor_of_an_event_id_is_the_next_text(bits in 0..u128::MAX) {
            let id = EventId::from_u128(bits);
            prop_assert!(id.next() > id);
            prop_assert_eq!(id.next().as_u128(), bits + 1);
        }

        #[test]
        fn delivery_ids_round_trip(bits: u128, endpoint: i64) {
            let pair = Pair { event: EventId::from_u128(bits), endpoint: EndpointId(endpoint) };
            prop_assert_eq!(pair.to_string().parse(), Ok(pair));
        }

        #[test]
        fn no_text_makes_the_id_parsers_panic(text in ".{0,60}", tail in "[0-9A-Z_+-]{0,40}") {
            let _ = text.parse::<EventId>();
            let _ = text.parse::<Pair>();
            let _ = format!("dlv_{tail}").parse::<Pair>();
            let _ = format!("evt_{tail}").parse::<EventId>();
        }
    }
}
