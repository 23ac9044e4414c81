//! Rows for one table, value by value as PostgreSQL keeps them: what `insertion` writes without a statement.

use std::ffi::CStr;

use pgrx::pg_sys;
use pgrx::varlena;

/// A table, as far as rows are written into it: exactly these columns, in this order.
pub struct Table {
    pub columns: &'static [(&'static CStr, pg_sys::Oid)],
    /// The column whose ranges the table is partitioned by: a text with collation C, or a bigint.
    pub key: usize,
    /// Checks that whoever makes the rows keeps.
    pub checks: &'static [&'static CStr],
}

/// Rows for a table. Their values are put in the order of its columns.
pub struct Rows {
    table: &'static Table,
    /// Of a value of a variable length, where in `store` it begins.
    values: Vec<u64>,
    nulls: Vec<bool>,
    /// As words, because PostgreSQL takes what it reads to be aligned.
    store: Vec<u64>,
    /// A value was not of the type of its column.
    odd: bool,
}

/// Where a row belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Key<'a> {
    Text(&'a [u8]),
    Number(i64),
}

/// Bytes before the text of a value of a variable length.
const LENGTH: usize = 4;
const WORD: usize = 8;

impl Rows {
    /// With room for so many rows whose values of a variable length take so many bytes each.
    pub fn new(table: &'static Table, rows: usize, bytes: usize) -> Rows {
        let values = rows * table.columns.len();
        Rows {
            table,
            values: Vec::with_capacity(values),
            nulls: Vec::with_capacity(values),
            store: Vec::with_capacity(rows * bytes.div_ceil(WORD)),
            odd: false,
        }
    }

    pub fn null(&mut self) {
        self.values.push(0);
        self.nulls.push(true);
    }

    /// A bigint, or an xid8.
    pub fn i64(&mut self, value: i64) {
        self.put(&[pg_sys::INT8OID, pg_sys::XID8OID], value.cast_unsigned());
    }

    /// A timestamptz, in microseconds since 2000.
    pub fn time(&mut self, value: i64) {
        self.put(&[pg_sys::TIMESTAMPTZOID], value.cast_unsigned());
    }

    pub fn i32(&mut self, value: i32) {
        self.put(&[pg_sys::INT4OID], i64::from(value).cast_unsigned());
    }

    pub fn i16(&mut self, value: i16) {
        self.put(&[pg_sys::INT2OID], i64::from(value).cast_unsigned());
    }

    pub fn bool(&mut self, value: bool) {
        self.put(&[pg_sys::BOOLOID], u64::from(value));
    }

    pub fn text(&mut self, value: &str) {
        self.variable(pg_sys::TEXTOID, &[], value.as_bytes());
    }

    pub fn bytes(&mut self, value: &[u8]) {
        self.variable(pg_sys::BYTEAOID, &[], value);
    }

    /// An array of one bigint.
    pub fn array_of(&mut self, value: i64) {
        let element = pg_sys::INT8OID.to_u32().cast_signed();
        // Dimensions, no nulls, the type of an element, length and lower bound of the one dimension.
        let head = [1, 0, element, 1, 1].map(i32::to_ne_bytes);
        self.variable(
            pg_sys::INT8ARRAYOID,
            head.as_flattened(),
            &value.to_ne_bytes(),
        );
    }

    /// A value, or null.
    pub fn maybe<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Rows, T)) {
        match value {
            Some(value) => put(self, value),
            None => self.null(),
        }
    }

    fn put(&mut self, kinds: &[pg_sys::Oid], value: u64) {
        let columns = self.table.columns;
        let (_, kind) = columns[self.values.len() % columns.len()];
        self.odd |= !kinds.contains(&kind);
        self.values.push(value);
        self.nulls.push(false);
    }

    fn variable(&mut self, kind: pg_sys::Oid, head: &[u8], value: &[u8]) {
        let begin = self.store.len();
        let length = LENGTH + head.len() + value.len();
        self.store.resize(begin + length.div_ceil(WORD), 0);
        let room = &mut self.store[begin..];
        // SAFETY: the same memory byte by byte, at a multiple of eight; any bytes are words.
        let room: &mut [u8] =
            unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), room.len() * WORD) };
        let size = i32::try_from(length).unwrap_or(i32::MAX);
        // SAFETY: four bytes that are ours, at a multiple of four.
        unsafe { varlena::set_varsize_4b(room.as_mut_ptr().cast(), size) };
        let (first, second) = room[LENGTH..length].split_at_mut(head.len());
        first.copy_from_slice(head);
        second.copy_from_slice(value);
        self.put(&[kind], begin as u64);
    }

    pub fn table(&self) -> &'static Table {
        self.table
    }

    pub fn len(&self) -> usize {
        self.values.len() / self.table.columns.len()
    }

    /// Whether every row has a value of its type, or null, for each column.
    pub fn are_whole(&self) -> bool {
        !self.odd && self.values.len().is_multiple_of(self.table.columns.len())
    }

    /// Whether a column is null in one of them.
    pub fn misses(&self, column: usize) -> bool {
        let all = self.nulls.iter().skip(column);
        all.step_by(self.table.columns.len()).any(|null| *null)
    }

    /// By what a row is given to a partition; none = it has nothing there.
    pub fn key(&self, row: usize) -> Option<Key<'_>> {
        let at = row * self.table.columns.len() + self.table.key;
        let (value, null) = (*self.values.get(at)?, *self.nulls.get(at)?);
        let (_, kind) = self.table.columns.get(self.table.key)?;
        if null {
            return None;
        }
        if *kind == pg_sys::INT8OID {
            return Some(Key::Number(value.cast_signed()));
        }
        let text = self.store.get(usize::try_from(value).ok()?..)?;
        // SAFETY: a value that `variable` wrote.
        unsafe {
            let text: *const pg_sys::varlena = text.as_ptr().cast();
            Some(Key::Text(std::slice::from_raw_parts(
                varlena::vardata_any(text).cast(),
                varlena::varsize_any_exhdr(text),
            )))
        }
    }

    /// Puts a row into the arrays of a slot, one place a column. It points into these rows.
    pub fn fill(&self, row: usize, values: &mut [pg_sys::Datum], nulls: &mut [bool]) {
        let columns = self.table.columns;
        let from = row * columns.len();
        for (n, (_, kind)) in columns.iter().enumerate() {
            let (value, null) = (self.values[from + n], self.nulls[from + n]);
            values[n] = if !null && is_variable(*kind) {
                pg_sys::Datum::from(self.store[value as usize..].as_ptr())
            } else {
                pg_sys::Datum::from(value as usize)
            };
            nulls[n] = null;
        }
    }
}

fn is_variable(kind: pg_sys::Oid) -> bool {
    [pg_sys::TEXTOID, pg_sys::BYTEAOID, pg_sys::INT8ARRAYOID].contains(&kind)
}
