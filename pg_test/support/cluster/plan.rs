//! What a cluster is made with, before it is made.

use std::{env, path::PathBuf};

use crate::{cluster::Cluster, place};

/// Where PostgreSQL 15 is in `build`.
const PG15: &str = "pg15/lib/postgresql/15/bin/pg_config";

/// Where the small disk is, for those who have one: an empty folder of every Debian.
pub const SMALL_DISK: &str = "/mnt";

/// What a cluster is made with.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) settings: Vec<(String, String)>,
    pub(super) environment: Vec<(String, String)>,
    pub(super) name_server: Option<std::net::Ipv4Addr>,
    pub(super) pg_config: PathBuf,
    /// Megabytes of a disk of its own.
    pub(super) small_disk: Option<u32>,
}

impl Plan {
    pub(super) fn usual() -> Plan {
        let pg_config = env::var_os("WEBHOOK_PG_CONFIG")
            .map_or_else(|| place::build().join(PG15), PathBuf::from);
        let settings = [
            ("shared_preload_libraries", "webhook_outbox"),
            ("listen_addresses", ""),
            // The house tests what a crash of the server does, not of the machine.
            ("fsync", "off"),
            ("max_connections", "100"),
            ("max_worker_processes", "16"),
            ("max_prepared_transactions", "20"),
            ("restart_after_crash", "on"),
            ("log_line_prefix", "%m [%p] %b %d "),
            ("webhook.allow_http", "on"),
            ("webhook.allow_networks", "127.0.0.0/8"),
            ("webhook.allowed_ports", "*"),
        ];
        Plan {
            settings: settings
                .map(|(name, value)| (name.into(), value.into()))
                .to_vec(),
            environment: Vec::new(),
            name_server: None,
            pg_config,
            small_disk: None,
        }
    }

    /// The private server of PostgreSQL 15, whichever the others of this run are.
    #[must_use]
    pub fn version_15(mut self) -> Self {
        self.pg_config = place::build().join(PG15);
        self
    }

    /// Runs the server in a mount namespace of its own in which [`SMALL_DISK`] is an empty disk of so many megabytes.
    #[must_use]
    pub fn small_disk(mut self, megabytes: u32) -> Self {
        self.small_disk = Some(megabytes);
        self
    }

    /// Adds or replaces a setting of postgresql.conf.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        replace(&mut self.settings, name, value);
        self
    }

    /// Removes a setting that the house would make.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.settings.retain(|(known, _)| known != name);
        self
    }

    /// Adds a variable to the postmaster's environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        replace(&mut self.environment, name, value);
        self
    }

    /// Runs the server in a mount namespace of its own in which `address` is the only name server.
    #[must_use]
    pub fn name_server(mut self, address: std::net::Ipv4Addr) -> Self {
        self.name_server = Some(address);
        self
    }

    /// Creates the data folder and starts the server.
    pub fn start(self) -> Cluster {
        Cluster::made_by(self)
    }
}

/// Adds a named value or replaces the one there is.
pub(super) fn replace(list: &mut Vec<(String, String)>, name: &str, value: &str) {
    match list.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => value.clone_into(old),
        None => list.push((name.to_owned(), value.to_owned())),
    }
}
