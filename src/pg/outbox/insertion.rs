//! Inserting one row into a partition without a statement.
//!
//! A statement of one row spends as much on its own set-up (plan, state of every node, projection, routing, portal) as on
//! heap and indexes together: 7 us of 17 in a transaction of its own, and of every event in a large one. What is done
//! here is what COPY does for a row. Whatever an operator may have added to the tables (triggers, checks, rules, row
//! security, other columns) is left to the statement, which knows what to do about it.

use std::ffi::CStr;

use pgrx::pg_sys;
use pgrx::prelude::*;
use pgrx::{PgTupleDesc, name_data_to_str};

/// A column, its type and its value; none = null.
pub type Field = (&'static CStr, pg_sys::Oid, Option<pg_sys::Datum>);

/// Inserts a row into the partition of `key`, the text that the table is partitioned by, with the rights of `owner`. Says
/// whether it did: if not, nothing was written, and a statement is needed.
///
/// # Safety
/// The values are of the types they are said to be of, and the table is partitioned by ranges of one text with collation C.
pub unsafe fn insert_row(table: pg_sys::Oid, owner: pg_sys::Oid, key: &str, row: &[Field]) -> bool {
    // SAFETY: relations are opened with the locks that INSERT takes, which are kept until the end of the transaction; on
    // error PostgreSQL closes them.
    unsafe {
        let insert = pg_sys::ACL_INSERT as pg_sys::AclMode;
        if !pg_sys::ActiveSnapshotSet()
            || pg_sys::pg_class_aclcheck(table, owner, insert) != pg_sys::AclResult::ACLCHECK_OK
        {
            return false;
        }
        let lock = pg_sys::RowExclusiveLock as pg_sys::LOCKMODE;
        let none = pg_sys::NoLock as pg_sys::LOCKMODE;
        let parent = pg_sys::table_open(table, lock);
        let leaf = if unchanged(parent) {
            leaf_of(parent, key.as_bytes())
        } else {
            None
        };
        pg_sys::table_close(parent, none);
        let Some(leaf) = leaf else { return false };
        let leaf = pg_sys::table_open(leaf, lock);
        let usual = unchanged(leaf) && takes(leaf, row);
        if usual {
            write(leaf, row);
        }
        pg_sys::table_close(leaf, none);
        usual
    }
}

/// Whether a row that is inserted has no further consequences.
///
/// # Safety
/// The relation is open.
unsafe fn unchanged(relation: pg_sys::Relation) -> bool {
    // SAFETY: plain reads of an open relation's description.
    unsafe {
        (*relation).trigdesc.is_null()
            && (*relation).rd_rules.is_null()
            && !(*(*relation).rd_rel).relforcerowsecurity
    }
}

/// Whether the table has these columns, in this order, and nothing to check or to compute.
///
/// # Safety
/// The relation is open.
unsafe fn takes(leaf: pg_sys::Relation, row: &[Field]) -> bool {
    // SAFETY: plain reads of an open relation's description.
    let columns = unsafe {
        if (*(*leaf).rd_rel).relkind as u8 != pg_sys::RELKIND_RELATION {
            return false;
        }
        let more = (*(*leaf).rd_att).constr;
        if !more.is_null() && ((*more).num_check > 0 || (*more).has_generated_stored) {
            return false;
        }
        PgTupleDesc::from_pg_unchecked((*leaf).rd_att)
    };
    columns.len() == row.len()
        && columns
            .iter()
            .zip(row)
            .all(|(column, (name, kind, value))| {
                column.atttypid == *kind
                    && !column.attisdropped
                    && (value.is_some() || !column.attnotnull)
                    && name_data_to_str(&column.attname).as_bytes() == name.to_bytes()
            })
}

/// The partition that a key belongs to.
///
/// # Safety
/// The relation is open and partitioned by ranges of one text with collation C.
unsafe fn leaf_of(parent: pg_sys::Relation, key: &[u8]) -> Option<pg_sys::Oid> {
    // SAFETY: the description holds as long as the relation is open: a bound for each datum, an index for each range between
    // two of them and for those at both ends.
    unsafe {
        // As INSERT sees those that are being detached.
        let moves = pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ as i32;
        let partitions = pg_sys::RelationGetPartitionDesc(parent, moves);
        let bounds = (*partitions).boundinfo;
        if bounds.is_null() {
            return None;
        }
        let at_most = |n: usize| {
            let kind = **(*bounds).kind.add(n);
            if kind != pg_sys::PartitionRangeDatumKind::PARTITION_RANGE_DATUM_VALUE {
                return kind < pg_sys::PartitionRangeDatumKind::PARTITION_RANGE_DATUM_VALUE;
            }
            <&[u8]>::from_datum(**(*bounds).datums.add(n), false).is_some_and(|bound| bound <= key)
        };
        let (mut low, mut high) = (0, usize::try_from((*bounds).ndatums).ok()?);
        while low < high {
            let middle = low.midpoint(high);
            if at_most(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let index = match *(*bounds).indexes.add(low) {
            -1 => (*bounds).default_index,
            index => index,
        };
        let index = usize::try_from(index).ok()?;
        (*(*partitions).is_leaf.add(index)).then(|| *(*partitions).oids.add(index))
    }
}

/// # Safety
/// The relation is open and locked, and takes this row.
unsafe fn write(leaf: pg_sys::Relation, row: &[Field]) {
    // SAFETY: the steps of an INSERT of one row in their order; all memory is that of the state, which is freed at the end,
    // or with the transaction.
    unsafe {
        let state = pg_sys::CreateExecutorState();
        let outer = pg_sys::MemoryContextSwitchTo((*state).es_query_cxt);
        (*state).es_output_cid = pg_sys::GetCurrentCommandId(true);
        let mut target: pg_sys::ResultRelInfo = std::mem::zeroed();
        pg_sys::InitResultRelInfo(&raw mut target, leaf, 0, std::ptr::null_mut(), 0);
        pg_sys::ExecOpenIndices(&raw mut target, false);
        let slot =
            pg_sys::MakeSingleTupleTableSlot((*leaf).rd_att, &raw const pg_sys::TTSOpsVirtual);
        for (n, (_, _, value)) in row.iter().enumerate() {
            *(*slot).tts_values.add(n) = value.unwrap_or(pg_sys::Datum::from(0));
            *(*slot).tts_isnull.add(n) = value.is_none();
        }
        pg_sys::ExecStoreVirtualTuple(slot);
        if let Some(insert) = (*(*leaf).rd_tableam).tuple_insert {
            let command = (*state).es_output_cid;
            // The access method is plain C: its error must become one that can be caught.
            pg_sys::ffi::pg_guard_ffi_boundary(|| {
                insert(leaf, slot, command, 0, std::ptr::null_mut());
            });
        }
        if target.ri_NumIndices > 0 {
            pg_sys::ExecInsertIndexTuples(
                &raw mut target,
                slot,
                state,
                false,
                false,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                #[cfg(not(feature = "pg15"))]
                false,
            );
        }
        pg_sys::ExecCloseIndices(&raw mut target);
        pg_sys::ExecDropSingleTupleTableSlot(slot);
        pg_sys::MemoryContextSwitchTo(outer);
        pg_sys::FreeExecutorState(state);
        // What comes next in this transaction sees the row.
        pg_sys::CommandCounterIncrement();
    }
}
