//! Settings of a life: at its beginning and when the configuration file is read again.

use std::sync::Arc;

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::Leader;
use super::transaction::{take_reload, transaction};
use crate::pg::outbox;
use crate::pg::settings::{self, Settings};
use crate::pg::vault;
use crate::rules::scheduler::Caps;
use crate::wire::client::{Client, ClientSettings};

impl Leader {
    /// Reads the configuration file again when told to. Vetted addresses and pooled connections go
    /// with the old client. Says whether a new life must begin: another origin, or a database that is
    /// not served any more.
    pub fn reload_if_asked(&mut self) -> bool {
        if !take_reload() {
            return false;
        }
        // SAFETY: the main thread, outside any transaction.
        unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
        let settings = Settings::read();
        let fresh = authorities(&settings)
            .and_then(|pem| client(&settings, pem.clone()).map(|client| (client, pem)));
        // A file that cannot be used must not keep the old boundary in force.
        let usable = fresh.or_else(|why| {
            self.complain("keeps its certificate authorities", &why);
            client(&settings, self.ca_pem.clone()).map(|client| (client, self.ca_pem.clone()))
        });
        match usable {
            Ok((client, pem)) => {
                self.crew.replace_client(Arc::new(client));
                self.ca_pem = pem;
            }
            Err(why) => {
                self.complain("ends", &why);
                return true;
            }
        }
        if let Err(why) = vault::check() {
            self.complain("keeps the keys it has", &why);
        }
        self.locked.try_soon();
        self.crew.set_max_threads(settings.max_in_flight);
        self.scheduler.set_caps(caps(&settings));
        self.configuration.set(&settings);
        self.settings = settings;
        self.set_all_limits();
        let identity = transaction(self.owner, false, c"webhook leader: reloading", || {
            // SAFETY: plain read of this process's state.
            let database = outbox::database_name(unsafe { pg_sys::MyDatabaseId });
            (outbox::origin(), settings::serves_database(&database))
        });
        identity.is_ok_and(|identity| identity != (self.origin, true))
    }

    pub fn complain(&self, what: &str, why: &str) {
        self.slot.set_error(why);
        warning!("webhook leader {what}: {why}");
    }
}

/// The certificate authorities that the settings name, PEM; none = those of the system.
pub fn authorities(settings: &Settings) -> Result<Option<Vec<u8>>, String> {
    if settings.ca_file.is_empty() {
        return Ok(None);
    }
    std::fs::read(&settings.ca_file)
        .map(Some)
        .map_err(|error| format!("could not read \"webhook.ca_file\": {error}"))
}

/// Ceilings of concurrent requests.
pub fn caps(settings: &Settings) -> Caps {
    Caps {
        total: settings.max_in_flight,
        per_partner: settings.max_in_flight_per_partner,
        per_endpoint: settings.max_in_flight_per_endpoint,
    }
}

/// The HTTP client, with everything it needs from the settings.
pub fn client(settings: &Settings, ca_pem: Option<Vec<u8>>) -> Result<Client, String> {
    Client::new(ClientSettings {
        boundary: settings.boundary.clone(),
        connect_timeout: settings.connect_timeout,
        request_timeout: settings.request_timeout,
        max_excerpt: settings.max_response_excerpt,
        user_agent: format!("webhook_outbox/{}", crate::pg::VERSION),
        ca_pem,
        max_idle_per_host: settings.max_in_flight_per_endpoint,
        max_idle: settings.max_in_flight,
    })
}
