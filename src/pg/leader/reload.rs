//! Settings of a life: at its beginning and when the configuration file is read again.

use std::sync::Arc;

use pgrx::pg_sys;
use pgrx::prelude::*;
use zeroize::Zeroizing;

use super::Leader;
use super::transaction::{take_reload, transaction};
use crate::pg::outbox;
use crate::pg::settings::{self, Settings};
use crate::pg::vault;
use crate::rules::proxy::{Credentials, Proxy};
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
        let fresh = Files::read(&settings)
            .and_then(|files| client(&settings, &files).map(|client| (client, files)));
        // A file that cannot be used must not keep the old boundary in force.
        let usable = fresh.or_else(|why| {
            self.complain(
                "keeps its certificate authorities and proxy credentials",
                &why,
            );
            client(&settings, &self.files).map(|client| (client, self.files.clone()))
        });
        match usable {
            Ok((client, files)) => {
                self.take_back();
                self.crew.replace_client(Arc::new(client));
                self.files = files;
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
        self.keeping.soon();
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

/// What is in the files that the settings name.
#[derive(Clone)]
pub struct Files {
    /// Certificate authorities, PEM; none = those of the system.
    ca_pem: Option<Vec<u8>>,
    proxy_credentials: Option<Credentials>,
}

impl Files {
    /// Reads them. No message shows what is in them.
    pub fn read(settings: &Settings) -> Result<Files, String> {
        let ca_pem = contents("webhook.ca_file", &settings.ca_file)?;
        let credentials = contents(
            "webhook.proxy_credentials_file",
            &settings.proxy_credentials_file,
        )?;
        Ok(Files {
            ca_pem,
            proxy_credentials: credentials
                .map(|bytes| Credentials::parse(&Zeroizing::new(bytes)))
                .transpose()?,
        })
    }
}

fn contents(setting: &str, path: &str) -> Result<Option<Vec<u8>>, String> {
    if path.is_empty() {
        return Ok(None);
    }
    std::fs::read(path)
        .map(Some)
        .map_err(|error| format!("could not read \"{setting}\": {error}"))
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
pub fn client(settings: &Settings, files: &Files) -> Result<Client, String> {
    Client::new(ClientSettings {
        boundary: settings.boundary.clone(),
        proxy: settings.proxy.clone().map(|proxy| Proxy {
            credentials: files.proxy_credentials.clone(),
            ..proxy
        }),
        connect_timeout: settings.connect_timeout,
        request_timeout: settings.request_timeout,
        max_excerpt: settings.max_response_excerpt,
        user_agent: user_agent(),
        ca_pem: files.ca_pem.clone(),
        max_idle_per_host: settings.max_in_flight_per_endpoint,
        max_idle: settings.max_in_flight,
    })
}

/// What requests say they come from.
pub fn user_agent() -> String {
    format!("webhook_outbox/{}", crate::pg::VERSION)
}
