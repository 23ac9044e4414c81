//! Opens connections: to the addresses the guarded resolver vouched for and to nothing else, one
//! after the other, or through the operator's proxy; then TLS with the name of the URL. There is no
//! environment here.

use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use ureq::unversioned::transport::{ConnectionDetails, Connector, Either, time};
use ureq::{Error, Timeout};

use crate::rules::delivery::Phase;
use crate::wire::classify;
use crate::wire::exchange;
use crate::wire::pool::{Connection, Key, Lease, Pool};
use crate::wire::proxy::Tunnel;
use crate::wire::socket::{LONGEST, Socket};
use crate::wire::tls;

/// No address gets less than this, however many there are.
const LEAST_PER_ADDRESS: Duration = Duration::from_millis(100);

/// ureq's connector: a pooled connection to a vetted address, or a new one.
pub(super) struct Dialer {
    pub tls: Arc<ClientConfig>,
    pub pool: Arc<Pool>,
    /// The way through the proxy, if there is one: then there is no other.
    pub tunnel: Option<Tunnel>,
}

impl Connector for Dialer {
    type Out = Lease;

    fn connect(&self, details: &ConnectionDetails, _: Option<()>) -> Result<Option<Lease>, Error> {
        let handed = exchange::take_handed();
        if handed.is_none() {
            exchange::reach(Phase::Connect);
        }
        let Some(authority) = details.uri.authority() else {
            return Ok(None);
        };
        let key = Key {
            https: details.needs_tls(),
            authority: authority.clone(),
        };
        if let Some(handed) = handed {
            exchange::reuse();
            return Ok(Some(Lease::going_on(handed, key, Arc::clone(&self.pool))));
        }
        let connection = match self.pooled(&key, &details.addrs) {
            Some(connection) => connection,
            None => self.open(details)?,
        };
        Ok(Some(Lease::new(connection, key, Arc::clone(&self.pool))))
    }
}

impl Dialer {
    fn pooled(&self, key: &Key, vetted: &[SocketAddr]) -> Option<Connection> {
        if exchange::progress().only_new {
            return None;
        }
        let connection = self.pool.take(key, vetted)?;
        exchange::reuse();
        Some(connection)
    }

    fn open(&self, details: &ConnectionDetails) -> Result<Connection, Error> {
        let deadline = start(details) + (*details.timeout.after).min(LONGEST);
        let (stream, peer) = match &self.tunnel {
            Some(tunnel) => tunnel.connect(&details.addrs, deadline)?,
            None => connect(&details.addrs, deadline)?,
        };
        let socket = Socket::new(stream);
        let transport = if details.needs_tls() {
            exchange::reach(Phase::Tls);
            Either::B(tls::shake_hands(&self.tls, details, socket, deadline)?)
        } else {
            Either::A(socket)
        };
        Ok(Connection::new(transport, peer))
    }
}

fn start(details: &ConnectionDetails) -> Instant {
    match details.now {
        time::Instant::Exact(now) => now,
        time::Instant::AlreadyHappened | time::Instant::NotHappening => Instant::now(),
    }
}

/// Tries the addresses in the order of the resolver. While others are left, an address that does not
/// answer may use half of the remaining time. The last failure is the one reported.
pub(super) fn connect(
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<(TcpStream, SocketAddr), Error> {
    let mut failure = Error::Timeout(Timeout::Connect);
    for (index, address) in addresses.iter().enumerate() {
        let Some(share) = share(deadline, index + 1 < addresses.len()) else {
            break;
        };
        match TcpStream::connect_timeout(address, share) {
            Ok(stream) => {
                // Linux takes 0.0.0.0 and :: for the local host; whatever else may turn a connection aside.
                let peer = stream.peer_addr()?;
                if (peer.ip(), peer.port()) != (address.ip(), address.port()) {
                    return Err(Error::Other(Box::new(classify::Fault::Strayed)));
                }
                stream.set_nodelay(true)?;
                return Ok((stream, *address));
            }
            Err(error) if classify::is_ours(&error) => return Err(error.into()),
            Err(error) => failure = error.into(),
        }
    }
    Err(failure)
}

/// What one address may use of the time; none when there is none left.
pub(super) fn share(deadline: Instant, more_follow: bool) -> Option<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return None;
    }
    Some(if more_follow {
        (left / 2).max(LEAST_PER_ADDRESS).min(left)
    } else {
        left
    })
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}
