//! Arrays for the statements that every delivery goes through, written as PostgreSQL keeps them. pgrx makes them one
//! element at a time, each with a few guarded calls and a copy, which was 1 us of a delivery.

use pgrx::datum::DatumWithOid;
use pgrx::pg_sys;
use pgrx::varlena;

/// Bytes before the first element of an array of one dimension without nulls.
const HEADER: usize = 24;
/// Bytes before the text of an element.
const LENGTH: usize = 4;

/// An array of one dimension that holds no null; never empty.
pub struct Array {
    /// As words, because PostgreSQL takes it to be aligned.
    words: Vec<u64>,
    kind: pg_sys::Oid,
}

impl Array {
    /// An array of bigint.
    pub fn of_i64(values: impl ExactSizeIterator<Item = i64>) -> Array {
        let size = values.len() * 8;
        let mut array = Writer::new(pg_sys::INT8OID, values.len(), size);
        for value in values {
            array.put(&value.to_ne_bytes());
        }
        array.end(pg_sys::INT8ARRAYOID)
    }

    /// An array of timestamptz, from microseconds since 2000.
    pub fn of_times(values: impl ExactSizeIterator<Item = i64>) -> Array {
        let size = values.len() * 8;
        let mut array = Writer::new(pg_sys::TIMESTAMPTZOID, values.len(), size);
        for value in values {
            array.put(&value.to_ne_bytes());
        }
        array.end(pg_sys::TIMESTAMPTZARRAYOID)
    }

    /// An array of integer.
    pub fn of_i32(values: impl ExactSizeIterator<Item = i32>) -> Array {
        let size = values.len() * 4;
        let mut array = Writer::new(pg_sys::INT4OID, values.len(), size);
        for value in values {
            array.put(&value.to_ne_bytes());
        }
        array.end(pg_sys::INT4ARRAYOID)
    }

    /// An array of smallint.
    pub fn of_i16(values: impl ExactSizeIterator<Item = i16>) -> Array {
        let size = values.len() * 2;
        let mut array = Writer::new(pg_sys::INT2OID, values.len(), size);
        for value in values {
            array.put(&value.to_ne_bytes());
        }
        array.end(pg_sys::INT2ARRAYOID)
    }

    /// An array of boolean.
    pub fn of_bool(values: impl ExactSizeIterator<Item = bool>) -> Array {
        let mut array = Writer::new(pg_sys::BOOLOID, values.len(), values.len());
        for value in values {
            array.put(&[u8::from(value)]);
        }
        array.end(pg_sys::BOOLARRAYOID)
    }

    /// An array of text.
    pub fn of_texts<T: AsRef<str>>(values: impl ExactSizeIterator<Item = T> + Clone) -> Array {
        let size = values.clone().map(|value| room(value.as_ref().len())).sum();
        let mut array = Writer::new(pg_sys::TEXTOID, values.len(), size);
        for value in values {
            array.put_varlena(value.as_ref().as_bytes());
        }
        array.end(pg_sys::TEXTARRAYOID)
    }

    /// An array of bytea.
    pub fn of_bytes<T: AsRef<[u8]>>(values: impl ExactSizeIterator<Item = T> + Clone) -> Array {
        let size = values.clone().map(|value| room(value.as_ref().len())).sum();
        let mut array = Writer::new(pg_sys::BYTEAOID, values.len(), size);
        for value in values {
            array.put_varlena(value.as_ref());
        }
        array.end(pg_sys::BYTEAARRAYOID)
    }

    /// The array as a parameter, for as long as it is there.
    pub fn parameter(&self) -> DatumWithOid<'_> {
        let datum = pg_sys::Datum::from(self.words.as_ptr());
        // SAFETY: a whole array of this type, which the result borrows.
        unsafe { DatumWithOid::new(datum, self.kind) }
    }
}

/// Bytes that an element of a variable length takes.
fn room(length: usize) -> usize {
    (LENGTH + length).next_multiple_of(4)
}

struct Writer {
    words: Vec<u64>,
    at: usize,
    size: usize,
}

impl Writer {
    /// Room for so many elements of so many bytes together.
    fn new(element: pg_sys::Oid, count: usize, bytes: usize) -> Writer {
        let size = HEADER + bytes;
        let mut writer = Writer {
            words: vec![0; size.div_ceil(8)],
            at: LENGTH,
            size,
        };
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        // Dimensions, no nulls, the type of an element, length and lower bound of the one dimension.
        for part in [1, 0, element.to_u32().cast_signed(), count, 1] {
            writer.put(&part.to_ne_bytes());
        }
        writer
    }

    /// Writes what there was room made for.
    fn put(&mut self, bytes: &[u8]) {
        let end = self.at + bytes.len();
        if let Some(room) = self.bytes().get_mut(..end) {
            room[end - bytes.len()..].copy_from_slice(bytes);
        }
        self.at = end;
    }

    fn put_varlena(&mut self, bytes: &[u8]) {
        let (begin, length) = (self.at, LENGTH + bytes.len());
        self.set_length(begin, length);
        self.at += LENGTH;
        self.put(bytes);
        self.at = begin + room(bytes.len());
    }

    fn set_length(&mut self, begin: usize, length: usize) {
        let length = i32::try_from(length).unwrap_or(i32::MAX);
        if let Some(header) = self.bytes().get_mut(begin..begin + LENGTH) {
            // SAFETY: four bytes that are ours, at a multiple of four.
            unsafe { varlena::set_varsize_4b(header.as_mut_ptr().cast(), length) };
        }
    }

    fn end(mut self, kind: pg_sys::Oid) -> Array {
        let size = self.size;
        self.set_length(0, size);
        Array {
            words: self.words,
            kind,
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        let length = self.words.len() * 8;
        // SAFETY: the same memory, byte by byte; any bytes are words.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), length) }
    }
}
