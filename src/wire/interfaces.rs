//! The addresses of this machine's own interfaces. Judges none of them; see `rules::address`.

use std::net::IpAddr;

/// Every address of every interface; an error when the system does not say.
pub fn addresses() -> Result<Vec<IpAddr>, nix::Error> {
    Ok(nix::ifaddrs::getifaddrs()?
        .filter_map(|interface| {
            let address = interface.address?;
            if let Some(v4) = address.as_sockaddr_in() {
                return Some(IpAddr::V4(v4.ip()));
            }
            address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()))
        })
        .collect())
}
