//! Rows of a statement read where the executor has them, one at a time: nothing of them is copied but what the reader
//! keeps. SPI's own table of results copies each row twice and finds each column by walking over those before it, which
//! made half of what reading an event costs.

use std::cell::OnceCell;
use std::ffi::CString;
use std::thread::LocalKey;

use pgrx::datum::DatumWithOid;
use pgrx::pg_sys::{self, PgOid};
use pgrx::prelude::*;
use pgrx::varlena;

/// A statement that only reads: its text, the types of its parameters and, once used, its plan.
pub struct Streamed {
    text: &'static str,
    types: fn() -> Vec<PgOid>,
    /// Never freed, like that of [`super::statement::Statement`].
    plan: OnceCell<pg_sys::SPIPlanPtr>,
}

/// A row, for as long as the executor stands at it.
pub struct Slot<'a> {
    values: &'a [pg_sys::Datum],
    nulls: &'a [bool],
}

/// What the executor calls with each row. It hands over a pointer to `base`, which is at the same address.
#[repr(C)]
struct Receiver<'a> {
    base: pg_sys::DestReceiver,
    take: &'a mut dyn FnMut(&Slot<'_>) -> bool,
}

impl Streamed {
    pub const fn new(text: &'static str, types: fn() -> Vec<PgOid>) -> Streamed {
        Streamed {
            text,
            types,
            plan: OnceCell::new(),
        }
    }

    fn plan(&self) -> pg_sys::SPIPlanPtr {
        *self.plan.get_or_init(|| {
            let types = (self.types)();
            let mut oids: Vec<pg_sys::Oid> = types.iter().map(|kind| kind.value()).collect();
            let count = i32::try_from(oids.len()).unwrap_or(0);
            let Ok(text) = CString::new(self.text) else {
                error!("a statement holds NUL");
            };
            // SAFETY: connected to SPI; text and types live through the call, and PostgreSQL keeps copies.
            let plan = unsafe {
                let plan = pg_sys::SPI_prepare(text.as_ptr(), count, oids.as_mut_ptr());
                if plan.is_null() || pg_sys::SPI_keepplan(plan) != 0 {
                    std::ptr::null_mut()
                } else {
                    plan
                }
            };
            // Unreachable but for a programming error: PostgreSQL's own errors unwind earlier.
            if plan.is_null() {
                error!("could not prepare a statement");
            }
            plan
        })
    }
}

/// Executes a statement that only reads and gives each row to `take`, which says whether it wants another one. Like
/// [`super::statement::select`] it takes no transaction id.
pub fn stream(
    statement: &'static LocalKey<Streamed>,
    arguments: &[DatumWithOid<'_>],
    mut take: impl FnMut(&Slot<'_>) -> bool,
) {
    Spi::connect(|_| {
        let plan = statement.with(Streamed::plan);
        let mut receiver = Receiver {
            base: pg_sys::DestReceiver {
                receiveSlot: Some(receive),
                rStartup: Some(start),
                rShutdown: Some(end),
                rDestroy: Some(end),
                mydest: pg_sys::CommandDest::DestNone,
            },
            take: &mut take,
        };
        // SAFETY: connected to SPI; the plan was made from this statement, whose parameters the arguments are, and they
        // and the receiver outlive the call.
        let result = unsafe {
            let options = pg_sys::SPIExecuteOptions {
                params: parameters(arguments),
                read_only: pg_sys::GetTopTransactionIdIfAny() == pg_sys::InvalidTransactionId,
                dest: (&raw mut receiver).cast(),
                ..pg_sys::SPIExecuteOptions::default()
            };
            pg_sys::SPI_execute_plan_extended(plan, &raw const options)
        };
        if result < 0 {
            error!("could not execute a statement: code {result}");
        }
    });
}

/// SAFETY: the caller keeps the arguments for as long as the list is used.
unsafe fn parameters(arguments: &[DatumWithOid<'_>]) -> pg_sys::ParamListInfo {
    let count = i32::try_from(arguments.len()).unwrap_or(0);
    // SAFETY: makeParamList makes room for so many.
    unsafe {
        let list = pg_sys::makeParamList(count);
        let slots = (*list).params.as_mut_ptr();
        for (index, argument) in arguments.iter().enumerate() {
            let datum = argument.datum().map(|datum| datum.sans_lifetime());
            slots.add(index).write(pg_sys::ParamExternData {
                value: datum.unwrap_or(pg_sys::Datum::from(0_usize)),
                isnull: datum.is_none(),
                pflags: pg_sys::PARAM_FLAG_CONST as u16,
                ptype: argument.oid(),
            });
        }
        list
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn receive(
    slot: *mut pg_sys::TupleTableSlot,
    receiver: *mut pg_sys::DestReceiver,
) -> bool {
    // SAFETY: the executor hands over the receiver it was given and a slot that holds a row; after this its arrays have
    // a value for each column.
    unsafe {
        let columns = (*(*slot).tts_tupleDescriptor).natts;
        if i32::from((*slot).tts_nvalid) < columns {
            pg_sys::slot_getsomeattrs_int(slot, columns);
        }
        let columns = usize::try_from(columns).unwrap_or(0);
        let row = Slot {
            values: std::slice::from_raw_parts((*slot).tts_values, columns),
            nulls: std::slice::from_raw_parts((*slot).tts_isnull, columns),
        };
        let receiver = receiver.cast::<Receiver<'_>>();
        ((*receiver).take)(&row)
    }
}

unsafe extern "C-unwind" fn start(
    _receiver: *mut pg_sys::DestReceiver,
    _operation: i32,
    _columns: pg_sys::TupleDesc,
) {
}

unsafe extern "C-unwind" fn end(_receiver: *mut pg_sys::DestReceiver) {}

/// Columns count from 1, as everywhere in SPI. The type of each is the caller's word: it wrote the statement.
impl Slot<'_> {
    pub fn i64(&self, column: usize) -> Option<i64> {
        // The bits of a bigint, a timestamptz or an xid8 are the datum itself.
        self.datum(column).map(|datum| datum.value() as i64)
    }

    pub fn is_null(&self, column: usize) -> bool {
        self.datum(column).is_none()
    }

    pub fn bool(&self, column: usize) -> Option<bool> {
        self.datum(column).map(|datum| datum.value() & 0xff != 0)
    }

    /// None for bytes that are no UTF-8, too.
    pub fn text(&self, column: usize) -> Option<String> {
        self.with_bytes(column, |bytes| {
            std::str::from_utf8(bytes).ok().map(str::to_owned)
        })?
    }

    /// Reads a text or a bytea in its place; what is stored apart or compressed is fetched for that and let go.
    pub fn with_bytes<R>(&self, column: usize, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let stored: *mut pg_sys::varlena = self.datum(column)?.cast_mut_ptr();
        // SAFETY: a value of a variable length that is not null.
        unsafe {
            let plain = !varlena::varatt_is_1b_e(stored) && !varlena::varatt_is_4b_c(stored);
            let value = if plain {
                stored
            } else {
                pg_sys::pg_detoast_datum_packed(stored)
            };
            let length = varlena::varsize_any_exhdr(value);
            let data = varlena::vardata_any(value).cast::<u8>();
            let result = read(std::slice::from_raw_parts(data, length));
            if value != stored {
                pg_sys::pfree(value.cast());
            }
            Some(result)
        }
    }

    /// Bytes of a text, without fetching it; 0 where there is none.
    pub fn length(&self, column: usize) -> usize {
        let Some(datum) = self.datum(column) else {
            return 0;
        };
        let stored: *const pg_sys::varlena = datum.cast_mut_ptr();
        // SAFETY: a value of a variable length that is not null.
        unsafe {
            if varlena::varatt_is_1b_e(stored) || varlena::varatt_is_4b_c(stored) {
                pg_sys::toast_raw_datum_size(datum).saturating_sub(pg_sys::VARHDRSZ)
            } else {
                varlena::varsize_any_exhdr(stored)
            }
        }
    }

    fn datum(&self, column: usize) -> Option<pg_sys::Datum> {
        let index = column.checked_sub(1)?;
        (!*self.nulls.get(index)?).then(|| self.values.get(index).copied())?
    }
}

/// Declares one: its name, its parameter types and its text.
macro_rules! streamed {
    ($name:ident, [$($kind:ty),*], $text:expr) => {
        thread_local! {
            static $name: $crate::pg::outbox::streamed::Streamed =
                const { $crate::pg::outbox::streamed::Streamed::new($text, || {
                    #[allow(unused_imports)]
                    use pgrx::datum::IntoDatum;
                    vec![$(pgrx::pg_sys::PgOid::from(<$kind>::type_oid())),*]
                }) };
        }
    };
}
pub(crate) use streamed;
