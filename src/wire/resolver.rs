//! The guarded resolver, the only way from a host to an address. It vets EVERY address of an answer
//! against the `Boundary`; one bad address refuses the whole answer, for a mixed answer is an attack
//! or a mistake. IP literals take the same path. ureq asks it once per exchange, before it connects, and
//! the pool lends only connections to addresses that were just vetted.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use crate::rules::address::Boundary;
use crate::rules::delivery::Phase;
use crate::rules::target::{Host, Target};
use crate::wire::classify::Fault;
use crate::wire::exchange;
use crate::wire::interfaces;
use crate::wire::lookup::{Lookups, NoAnswer};
use crate::wire::threads::lock;
use crate::wire::tls::bare;

/// ureq keeps no more addresses than this; all are vetted all the same.
const MAX_ADDRESSES: usize = 16;
/// A vetted answer serves for this long: enough to spare a busy endpoint a look-up per request (they
/// cost three quarters of the throughput), short enough that a change of DNS is seen soon.
pub(super) const KEEP: Duration = Duration::from_secs(5);
/// More names than this are not remembered.
const MAX_NAMES: usize = 1024;

/// Resolves and vets for one client. A change of the boundary makes a new client, and with it a new
/// resolver: nothing vetted under the old boundary survives.
pub struct GuardedResolver {
    /// As it was given.
    boundary: Boundary,
    /// The same with the addresses that the host has by now, and when they were read.
    current: RwLock<(Instant, Arc<Boundary>)>,
    /// The longest a look-up may take, whatever the request has left.
    limit: Duration,
    lookups: Arc<Lookups>,
    keep: Duration,
    vetted: Mutex<HashMap<String, Vetted>>,
}

/// What a look-up outside of any request found out about a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostCheck {
    /// Every address of it may be reached.
    Reachable,
    /// At least one address is outside the boundary.
    Blocked,
    /// It has no address, or none was found in time.
    Unresolved,
}

/// Looks the host of a target up when its URL is registered. Early feedback only: every connection looks
/// again.
pub fn check_host(boundary: &Boundary, target: &Target, limit: Duration) -> HostCheck {
    let name = match target.host() {
        Host::Name(name) => name.clone(),
        Host::Ip(address) => address.to_string(),
    };
    match GuardedResolver::new(boundary.clone(), limit).sockets(&name, target.port(), limit) {
        Ok(_) => HostCheck::Reachable,
        Err(Fault::Blocked { .. }) => HostCheck::Blocked,
        Err(_) => HostCheck::Unresolved,
    }
}

struct Vetted {
    at: Instant,
    addresses: Arc<[IpAddr]>,
}

impl GuardedResolver {
    /// A resolver that asks the system and lets no address pass that the boundary denies.
    pub fn new(boundary: Boundary, limit: Duration) -> GuardedResolver {
        GuardedResolver::with_lookups(boundary, limit, Lookups::of_the_system(), KEEP)
    }

    pub(super) fn with_lookups(
        boundary: Boundary,
        limit: Duration,
        lookups: Arc<Lookups>,
        keep: Duration,
    ) -> GuardedResolver {
        GuardedResolver {
            current: RwLock::new((Instant::now(), Arc::new(boundary.clone()))),
            boundary,
            limit,
            lookups,
            keep,
            vetted: Mutex::default(),
        }
    }

    /// The vetted addresses of a host: a name, or an address in or out of brackets.
    pub(super) fn addresses(&self, host: &str, left: Duration) -> Result<Arc<[IpAddr]>, Fault> {
        if let Ok(address) = bare(host).parse::<IpAddr>() {
            self.vet(&[address])?;
            return Ok(Arc::new([address]));
        }
        if let Some(addresses) = self.remembered(host) {
            return Ok(addresses);
        }
        // The dot makes the name absolute. Without it the search domains of /etc/resolv.conf can
        // turn "hooks.example" into "hooks.example.svc.cluster.local".
        let absolute = format!("{}.", host.trim_end_matches('.'));
        let deadline = Instant::now() + left.min(self.limit);
        let addresses = match self.lookups.find(&absolute, deadline) {
            Ok(addresses) => addresses,
            Err(NoAnswer::NotFound) => return Err(Fault::NotFound),
            Err(NoAnswer::Late) => return Err(Fault::LookupLate),
            Err(NoAnswer::Ours) => return Err(Fault::LookupOurs),
        };
        self.vet(&addresses)?;
        self.remember(host, &addresses);
        Ok(addresses)
    }

    fn vet(&self, addresses: &[IpAddr]) -> Result<(), Fault> {
        let boundary = self.current();
        for address in addresses {
            boundary.vet(*address).map_err(|denied| Fault::Blocked {
                address: *address,
                denied,
            })?;
        }
        Ok(())
    }

    /// The vetted addresses of a host with a port; see `addresses`.
    pub(super) fn sockets(
        &self,
        host: &str,
        port: u16,
        left: Duration,
    ) -> Result<Vec<SocketAddr>, Fault> {
        let addresses = self.addresses(host, left)?;
        let boundary = self.current();
        addresses
            .iter()
            .map(|address| {
                let socket = SocketAddr::new(*address, port);
                boundary
                    .vet_socket(socket)
                    .map(|()| socket)
                    .map_err(|denied| Fault::Blocked {
                        address: *address,
                        denied,
                    })
            })
            .collect()
    }

    /// The same without a look-up: `None` when the name would have to be looked up, or may not be reached.
    pub(super) fn known(&self, target: &Target) -> Option<Vec<SocketAddr>> {
        let addresses = match target.host() {
            Host::Ip(address) => {
                self.vet(&[*address]).ok()?;
                Arc::new([*address])
            }
            Host::Name(name) => self.remembered(name)?,
        };
        let boundary = self.current();
        addresses
            .iter()
            .map(|address| {
                let socket = SocketAddr::new(*address, target.port());
                boundary.vet_socket(socket).ok().map(|()| socket)
            })
            .collect()
    }

    /// The boundary, with the host's addresses read again every few seconds: a lease, a container or a
    /// failover may have given it others since the settings were read.
    fn current(&self) -> Arc<Boundary> {
        let (read_at, known) = self
            .current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if read_at.elapsed() < KEEP {
            return known;
        }
        // When the system does not say, what was known holds.
        let fresh = interfaces::addresses().map_or(known, |mut own| {
            own.extend(&self.boundary.own_addresses);
            Arc::new(Boundary {
                own_addresses: own,
                ..self.boundary.clone()
            })
        });
        *self.current.write().unwrap_or_else(PoisonError::into_inner) =
            (Instant::now(), Arc::clone(&fresh));
        fresh
    }

    fn remembered(&self, host: &str) -> Option<Arc<[IpAddr]>> {
        let vetted = lock(&self.vetted);
        let entry = vetted.get(host)?;
        (entry.at.elapsed() < self.keep).then(|| Arc::clone(&entry.addresses))
    }

    fn remember(&self, host: &str, addresses: &Arc<[IpAddr]>) {
        let mut vetted = lock(&self.vetted);
        if vetted.len() >= MAX_NAMES {
            vetted.retain(|_, entry| entry.at.elapsed() < self.keep);
        }
        if vetted.len() >= MAX_NAMES {
            vetted.clear();
        }
        vetted.insert(
            host.to_owned(),
            Vetted {
                at: Instant::now(),
                addresses: Arc::clone(addresses),
            },
        );
    }
}

impl Resolver for GuardedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let mut resolved = self.empty();
        // Nothing is opened any more: the request is on its way.
        if let Some(peer) = exchange::handed_peer() {
            resolved.push(peer);
            return Ok(resolved);
        }
        exchange::reach(Phase::Resolve);
        let host = uri.host().unwrap_or_default();
        let https = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
        let sockets = self
            .sockets(host, port, *timeout.after)
            .map_err(|fault| Error::Other(Box::new(fault)))?;
        for socket in sockets.into_iter().take(MAX_ADDRESSES) {
            resolved.push(socket);
        }
        Ok(resolved)
    }
}

/// A resolver that ureq shares with others.
pub(super) struct Shared(pub Arc<GuardedResolver>);

impl Resolver for Shared {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        self.0.resolve(uri, config, timeout)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl fmt::Debug for GuardedResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedResolver").finish_non_exhaustive()
    }
}
