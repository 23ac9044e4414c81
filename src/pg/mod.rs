//! The room that knows PostgreSQL: settings, SQL functions, shared memory, launcher and leader.
//!
//! Everything unsafe of the project is here. SQL is executed in `outbox` alone, shared memory is
//! touched in `wake` alone.

mod access;
mod catalogue;
mod conversion;
mod counters;
mod dry_run;
mod emit;
mod error;
mod feed;
mod filter;
mod functions;
mod inbox_keys;
mod keys;
mod launcher;
mod leader;
mod metrics;
mod observe;
mod outbox;
mod receive;
mod reconciling;
mod restricted;
mod settings;
mod shape;
mod utility;
mod validation;
mod vault;
mod wake;
mod wal;

pgrx::pg_module_magic!(name, version);

/// The version of this library; the leader works only with the same version of the SQL objects.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Called by PostgreSQL when the library is loaded: by the postmaster when it is preloaded, by a
/// single session otherwise. Only a preloaded library has shared memory and workers.
#[pgrx::pg_guard]
#[allow(non_snake_case)]
pub extern "C-unwind" fn _PG_init() {
    settings::define();
    // pg_upgrade starts servers of its own: nothing may run or be sent there.
    // SAFETY: plain reads of process-wide flags, set before libraries are loaded.
    let (preloading, upgrading) = unsafe {
        (
            pgrx::pg_sys::process_shared_preload_libraries_in_progress,
            pgrx::pg_sys::IsBinaryUpgrade,
        )
    };
    if preloading && !upgrading {
        wake::reserve();
        launcher::register();
    }
    utility::install();
}
