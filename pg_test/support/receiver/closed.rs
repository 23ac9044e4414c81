//! An address where nobody listens, and nobody else can meanwhile: the port is taken and not listened on. Refuses to
//! hand out a port that is merely free just now.

use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

/// A port of 127.0.0.1 that refuses connections for as long as this lives.
pub struct ClosedPort {
    address: SocketAddr,
    _taken: Socket,
}

impl ClosedPort {
    /// Takes one.
    pub fn take() -> ClosedPort {
        let taken = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        taken.bind(&any.into()).expect("a port");
        let address = taken.local_addr().expect("its address");
        ClosedPort {
            address: address.as_socket().expect("an IP address"),
            _taken: taken,
        }
    }

    /// Where nobody listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
