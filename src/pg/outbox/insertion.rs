//! Inserting rows into the partitions of a table without a statement.
//!
//! A statement of one row spends as much on its own set-up (plan, state of every node, projection, routing, portal) as on
//! heap and indexes together: 7 us of 17 in a transaction of its own, and of every event in a large one. One of hundreds
//! of rows still computes each row, routes it, and writes it into the log by itself. What is done here is what COPY does:
//! many rows into a page at a time. Whatever an operator may have added to the tables (triggers, checks, rules, row
//! security, other columns) is left to the statement, which knows what to do about it.

use std::ffi::CStr;

use pgrx::pg_sys;
use pgrx::prelude::*;
use pgrx::{PgTupleDesc, name_data_to_str};

use super::rows::{Key, Rows, Table};

/// Rows that are written together: a few pages full.
const TOGETHER: usize = 128;

/// Inserts rows with the rights of the current user. Says whether it did: if not, nothing was written, and a statement is
/// needed. A row whose key is there already fails as it does in a statement.
///
/// # Safety
/// The table is partitioned by ranges of the one column that the rows say.
pub unsafe fn insert_rows(table: pg_sys::Oid, rows: &Rows) -> bool {
    if rows.len() == 0 {
        return true;
    }
    // SAFETY: relations are opened with the locks that INSERT takes, which are kept until the end of the transaction; on
    // error PostgreSQL closes them.
    unsafe {
        let insert = pg_sys::ACL_INSERT as pg_sys::AclMode;
        let user = pg_sys::GetUserId();
        if !rows.are_whole()
            || !pg_sys::ActiveSnapshotSet()
            || pg_sys::pg_class_aclcheck(table, user, insert) != pg_sys::AclResult::ACLCHECK_OK
        {
            return false;
        }
        let lock = pg_sys::RowExclusiveLock as pg_sys::LOCKMODE;
        let none = pg_sys::NoLock as pg_sys::LOCKMODE;
        let parent = pg_sys::table_open(table, lock);
        let shares = if unchanged(parent) {
            shares(parent, rows)
        } else {
            None
        };
        pg_sys::table_close(parent, none);
        let Some(shares) = shares else { return false };
        let leaves: Vec<pg_sys::Relation> = shares
            .iter()
            .map(|share| pg_sys::table_open(share.leaf, lock))
            .collect();
        let usual = leaves
            .iter()
            .all(|leaf| unchanged(*leaf) && takes(*leaf, rows));
        for (leaf, share) in leaves.into_iter().zip(shares) {
            if usual {
                write(leaf, rows, &share.rows);
            }
            pg_sys::table_close(leaf, none);
        }
        if usual {
            // What comes next in this transaction sees the rows.
            pg_sys::CommandCounterIncrement();
        }
        usual
    }
}

/// Rows of one partition.
struct Share {
    leaf: pg_sys::Oid,
    rows: Vec<usize>,
}

/// Which partition each row belongs to; none = one of them belongs to none that is a table.
///
/// # Safety
/// The relation is open and partitioned as the rows say.
unsafe fn shares(parent: pg_sys::Relation, rows: &Rows) -> Option<Vec<Share>> {
    let mut shares: Vec<Share> = Vec::new();
    for row in 0..rows.len() {
        // SAFETY: as said above.
        let leaf = unsafe { leaf_of(parent, rows.key(row)?) }?;
        match shares.iter_mut().find(|share| share.leaf == leaf) {
            Some(share) => share.rows.push(row),
            None => shares.push(Share {
                leaf,
                rows: vec![row],
            }),
        }
    }
    Some(shares)
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

/// Whether the partition has the columns that the rows say, in this order, nothing to compute, and nothing to check
/// beyond what they keep.
///
/// # Safety
/// The relation is open.
unsafe fn takes(leaf: pg_sys::Relation, rows: &Rows) -> bool {
    let table = rows.table();
    // SAFETY: plain reads of an open relation's description.
    let columns = unsafe {
        if (*(*leaf).rd_rel).relkind as u8 != pg_sys::RELKIND_RELATION
            || !checks_are_kept((*(*leaf).rd_att).constr, table)
        {
            return false;
        }
        PgTupleDesc::from_pg_unchecked((*leaf).rd_att)
    };
    columns.len() == table.columns.len()
        && columns
            .iter()
            .zip(table.columns)
            .enumerate()
            .all(|(n, (column, (name, kind)))| {
                column.atttypid == *kind
                    && !column.attisdropped
                    && !(column.attnotnull && rows.misses(n))
                    && name_data_to_str(&column.attname).as_bytes() == name.to_bytes()
            })
}

/// # Safety
/// The constraints are those of an open relation, or null.
unsafe fn checks_are_kept(constraints: *const pg_sys::TupleConstr, table: &Table) -> bool {
    if constraints.is_null() {
        return true;
    }
    // SAFETY: as many checks as it says, each with a name.
    unsafe {
        !(*constraints).has_generated_stored
            && (0..usize::from((*constraints).num_check)).all(|n| {
                let name = CStr::from_ptr((*(*constraints).check.add(n)).ccname);
                table.checks.contains(&name)
            })
    }
}

/// The partition that a key belongs to.
///
/// # Safety
/// The relation is open and partitioned by ranges of one column, whose type is that of the key; text has collation C.
unsafe fn leaf_of(parent: pg_sys::Relation, key: Key<'_>) -> Option<pg_sys::Oid> {
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
            let bound = **(*bounds).datums.add(n);
            match key {
                Key::Text(text) => {
                    <&[u8]>::from_datum(bound, false).is_some_and(|bound| bound <= text)
                }
                Key::Number(number) => bound.value() as i64 <= number,
            }
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
/// The relation is open and locked, and takes these rows.
unsafe fn write(leaf: pg_sys::Relation, rows: &Rows, which: &[usize]) {
    // SAFETY: the steps of COPY in their order; all memory is that of the state, which is freed at the end, or with the
    // transaction. The rows outlive it.
    unsafe {
        let state = pg_sys::CreateExecutorState();
        let outer = pg_sys::MemoryContextSwitchTo((*state).es_query_cxt);
        (*state).es_output_cid = pg_sys::GetCurrentCommandId(true);
        let mut target: pg_sys::ResultRelInfo = std::mem::zeroed();
        pg_sys::InitResultRelInfo(&raw mut target, leaf, 0, std::ptr::null_mut(), 0);
        pg_sys::ExecOpenIndices(&raw mut target, false);
        let slots: Vec<*mut pg_sys::TupleTableSlot> = (0..which.len().min(TOGETHER))
            .map(|_| {
                pg_sys::MakeSingleTupleTableSlot((*leaf).rd_att, &raw const pg_sys::TTSOpsVirtual)
            })
            .collect();
        for some in which.chunks(TOGETHER) {
            for (slot, row) in slots.iter().zip(some) {
                pg_sys::ExecClearTuple(*slot);
                let columns = rows.table().columns.len();
                rows.fill(
                    *row,
                    std::slice::from_raw_parts_mut((**slot).tts_values, columns),
                    std::slice::from_raw_parts_mut((**slot).tts_isnull, columns),
                );
                pg_sys::ExecStoreVirtualTuple(*slot);
            }
            store(leaf, &slots[..some.len()], (*state).es_output_cid);
            if target.ri_NumIndices > 0 {
                for slot in &slots[..some.len()] {
                    pg_sys::ExecInsertIndexTuples(
                        &raw mut target,
                        *slot,
                        state,
                        false,
                        false,
                        std::ptr::null_mut(),
                        std::ptr::null_mut(),
                        #[cfg(not(feature = "pg15"))]
                        false,
                    );
                }
            }
        }
        pg_sys::ExecCloseIndices(&raw mut target);
        for slot in slots {
            pg_sys::ExecDropSingleTupleTableSlot(slot);
        }
        pg_sys::MemoryContextSwitchTo(outer);
        pg_sys::FreeExecutorState(state);
    }
}

/// Writes the rows in these slots into the heap; each slot knows then where its row is.
///
/// # Safety
/// The relation is open and locked; the slots hold rows for it, a few at most.
unsafe fn store(
    leaf: pg_sys::Relation,
    slots: &[*mut pg_sys::TupleTableSlot],
    command: pg_sys::CommandId,
) {
    // SAFETY: as said above. The access method is plain C: its error must become one that can be caught.
    unsafe {
        let access = (*leaf).rd_tableam;
        match (slots, (*access).tuple_insert, (*access).multi_insert) {
            ([slot], Some(insert), _) => pg_sys::ffi::pg_guard_ffi_boundary(|| {
                insert(leaf, *slot, command, 0, std::ptr::null_mut());
            }),
            (slots, _, Some(insert)) => pg_sys::ffi::pg_guard_ffi_boundary(|| {
                let count = i32::try_from(slots.len()).unwrap_or(0);
                let slots = slots.as_ptr().cast_mut();
                insert(leaf, slots, count, command, 0, std::ptr::null_mut());
            }),
            // Every access method has both.
            _ => error!("a table that takes no rows"),
        }
    }
}
