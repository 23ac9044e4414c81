//! The utility hook: what plain SQL commands mean for the workers.
//!
//! COMMIT PREPARED fires no commit callback for the rows it publishes, so it wakes the leader here.
//! Some commands need a database without connections (DROP DATABASE, ALTER DATABASE ... RENAME or SET
//! TABLESPACE, CREATE DATABASE ... TEMPLATE), so its leader is asked to leave first and comes back
//! when the database is still there.

use std::ffi::CStr;
use std::time::{Duration, Instant};

use pgrx::prelude::*;
use pgrx::{PgList, pg_sys};

use super::wake;

static mut PREVIOUS: pg_sys::ProcessUtility_hook_type = None;

/// Installs the hook in this process, before those installed earlier.
pub fn install() {
    // SAFETY: called once per process when the library is loaded, in its single thread.
    unsafe {
        PREVIOUS = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(process_utility);
    }
}

/// The hook with the arguments of this PostgreSQL: 13 does not pass whether the tree is read-only. The type stands for the
/// argument, because `pg_guard` takes no names from outside the macro.
macro_rules! hook {
    ($($flag:ty)?) => {
        #[pg_guard]
        #[allow(clippy::too_many_arguments)]
        unsafe extern "C-unwind" fn process_utility(
            statement: *mut pg_sys::PlannedStmt,
            query: *const std::ffi::c_char,
            $(read_only_tree: $flag,)?
            context: pg_sys::ProcessUtilityContext::Type,
            params: pg_sys::ParamListInfo,
            environment: *mut pg_sys::QueryEnvironment,
            destination: *mut pg_sys::DestReceiver,
            completion: *mut pg_sys::QueryCompletion,
        ) {
            // SAFETY: the arguments are passed on as they came.
            let run = || unsafe {
                match PREVIOUS {
                    // A hook of another library is plain C: its error must become one that can be caught.
                    Some(previous) => pg_sys::ffi::pg_guard_ffi_boundary(|| {
                        previous(
                            statement,
                            query,
                            $(read_only_tree as $flag,)?
                            context,
                            params,
                            environment,
                            destination,
                            completion,
                        );
                    }),
                    None => pg_sys::standard_ProcessUtility(
                        statement,
                        query,
                        $(read_only_tree as $flag,)?
                        context,
                        params,
                        environment,
                        destination,
                        completion,
                    ),
                }
            };
            // SAFETY: PostgreSQL passes a valid statement.
            unsafe { around((*statement).utilityStmt, run) }
        }
    };
}

#[cfg(feature = "pg13")]
hook!();
#[cfg(not(feature = "pg13"))]
hook!(bool);

/// Runs a command, with what it means for the workers before and after it.
///
/// # Safety
/// `command` is null or a valid statement tree.
unsafe fn around(command: *mut pg_sys::Node, run: impl Fn()) {
    if !wake::preloaded() {
        return run();
    }
    // SAFETY: the caller's promise.
    match unsafe { meaning(command) } {
        Meaning::Nothing => run(),
        Meaning::CommitPrepared => {
            run();
            // Whether it took payloads is not known here.
            wake::expunge_at_commit();
        }
        Meaning::NeedsEmpty { database, keep } => {
            PgTryBuilder::new(std::panic::AssertUnwindSafe(|| {
                empty(database);
                run();
            }))
            .catch_others(|error| {
                wake::release(database, true);
                error.rethrow()
            })
            .execute();
            wake::release(database, keep);
        }
    }
}

enum Meaning {
    Nothing,
    CommitPrepared,
    /// The database must have no leader; `keep` = it exists afterwards.
    NeedsEmpty {
        database: pg_sys::Oid,
        keep: bool,
    },
}

/// # Safety
/// `node` is null or points to a node of PostgreSQL's parser.
unsafe fn meaning(node: *mut pg_sys::Node) -> Meaning {
    if node.is_null() {
        return Meaning::Nothing;
    }
    // SAFETY: the tag of a node says which struct it is.
    unsafe {
        match (*node).type_ {
            pg_sys::NodeTag::T_TransactionStmt => {
                let statement = node.cast::<pg_sys::TransactionStmt>();
                if (*statement).kind == pg_sys::TransactionStmtKind::TRANS_STMT_COMMIT_PREPARED {
                    return Meaning::CommitPrepared;
                }
            }
            pg_sys::NodeTag::T_DropdbStmt => {
                let statement = node.cast::<pg_sys::DropdbStmt>();
                return needs_empty((*statement).dbname, false);
            }
            pg_sys::NodeTag::T_RenameStmt => {
                let statement = node.cast::<pg_sys::RenameStmt>();
                if (*statement).renameType == pg_sys::ObjectType::OBJECT_DATABASE {
                    return needs_empty((*statement).subname, true);
                }
            }
            pg_sys::NodeTag::T_CreatedbStmt => {
                let statement = node.cast::<pg_sys::CreatedbStmt>();
                if let Some(template) = option((*statement).options, c"template")
                    && !(*template).arg.is_null()
                {
                    return needs_empty(pg_sys::defGetString(template), true);
                }
            }
            pg_sys::NodeTag::T_AlterDatabaseStmt => {
                let statement = node.cast::<pg_sys::AlterDatabaseStmt>();
                if option((*statement).options, c"tablespace").is_some() {
                    return needs_empty((*statement).dbname, true);
                }
            }
            _ => {}
        }
    }
    Meaning::Nothing
}

/// # Safety
/// `list` is null or a list of `DefElem` nodes.
unsafe fn option(list: *mut pg_sys::List, name: &CStr) -> Option<*mut pg_sys::DefElem> {
    // SAFETY: the caller's promise; names of options are C strings.
    unsafe {
        PgList::<pg_sys::DefElem>::from_pg(list)
            .iter_ptr()
            .find(|element| CStr::from_ptr((**element).defname) == name)
    }
}

/// # Safety
/// `name` is null or a C string.
unsafe fn needs_empty(name: *mut std::ffi::c_char, keep: bool) -> Meaning {
    if name.is_null() {
        return Meaning::Nothing;
    }
    // SAFETY: checked above; get_database_oid only looks the name up.
    let database = unsafe { pg_sys::get_database_oid(CStr::from_ptr(name).as_ptr(), true) };
    if database == pg_sys::InvalidOid || wake::slot_of(database).is_none() {
        return Meaning::Nothing;
    }
    // Whether the user may do this is checked by the command itself, after the leader left. A user
    // without the right must not be able to stop it, so ownership is checked here as well.
    // SAFETY: plain catalogue look-ups.
    let owner = unsafe { owns_database(database) };
    if owner {
        Meaning::NeedsEmpty { database, keep }
    } else {
        Meaning::Nothing
    }
}

#[cfg(any(feature = "pg13", feature = "pg14", feature = "pg15"))]
unsafe fn owns_database(database: pg_sys::Oid) -> bool {
    // SAFETY: plain catalogue look-up.
    unsafe { pg_sys::pg_database_ownercheck(database, pg_sys::GetUserId()) }
}

#[cfg(not(any(feature = "pg13", feature = "pg14", feature = "pg15")))]
unsafe fn owns_database(database: pg_sys::Oid) -> bool {
    // SAFETY: plain catalogue look-up.
    unsafe { pg_sys::object_ownercheck(pg_sys::DatabaseRelationId, database, pg_sys::GetUserId()) }
}

/// Waits until the leader left; after 10 s the command runs all the same and says who is connected.
fn empty(database: pg_sys::Oid) {
    let begun = Instant::now();
    while !wake::hold(database, 60) && begun.elapsed() < Duration::from_secs(10) {
        // SAFETY: a short sleep that a cancel request interrupts.
        unsafe {
            pg_sys::WaitLatch(
                pg_sys::MyLatch,
                (pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH) as i32,
                20,
                pg_sys::PG_WAIT_EXTENSION,
            );
            pg_sys::ResetLatch(pg_sys::MyLatch);
        }
        pgrx::check_for_interrupts!();
    }
}
