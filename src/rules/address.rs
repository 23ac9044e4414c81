//! The address half of the SSRF boundary: which IP addresses a request may be sent to.
//!
//! Responsible for the operator's lists, the built-in list of special-purpose blocks, and every
//! way an IPv4 address hides inside an IPv6 address. Refuses to resolve names and to read URLs
//! (`rules::target` does): the caller vets each address of an answer, and connects to that address
//! only.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;

use ipnet::{IpNet, Ipv4Net};

/// What may be sent to, as the operator set it. The default is the strictest setting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boundary {
    /// Clear-text `http` URLs are accepted; their port must be in `ports` all the same.
    pub allow_http: bool,
    /// The ports a URL may name.
    pub ports: Ports,
    /// Domains a URL may name, each with its subdomains; empty means all. When it is not empty,
    /// an IP address in place of a name is refused: it belongs to no domain.
    pub allowed_domains: Vec<String>,
    /// Domains a URL may not name, each with its subdomains, whatever else allows them.
    pub denied_domains: Vec<String>,
    /// Networks that pass although the built-in list denies them.
    pub allow_networks: Vec<IpNet>,
    /// Networks that are denied whatever else allows them, in each of their encodings.
    pub deny_networks: Vec<IpNet>,
    /// The addresses of the database host itself.
    pub own_addresses: Vec<IpAddr>,
    /// The port that the database server listens on; 0 = none.
    pub own_port: u16,
    /// What happens to IPv4 addresses behind the well-known NAT64 prefix.
    pub nat64: Nat64,
}

/// The treatment of 64:ff9b::/96.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nat64 {
    /// The whole prefix is denied.
    #[default]
    Deny,
    /// The embedded IPv4 address decides. An IPv6-only host with DNS64 needs this, or it reaches
    /// no receiver that has IPv4 only.
    Judge,
}

/// The ports a URL may name. Port 0 never passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Every port but those on the Fetch standard's list of bad ports.
    AnyAllowed,
    /// Exactly these, which is the operator's word: the list of bad ports does not apply.
    Only(Vec<u16>),
}

impl Default for Ports {
    fn default() -> Self {
        Self::Only(vec![443, 8443])
    }
}

/// Why an address was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The deciding block of the built-in list, `!2000::/3` or `isatap-iid`; or the name of the
    /// operator's list.
    pub block: &'static str,
    /// What the block is.
    pub category: &'static str,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.block, self.category)
    }
}

impl std::error::Error for Denied {}

impl Boundary {
    /// Judges one address with a port: as [`Boundary::vet`] does, but where the address is the host's own, the
    /// port of the database server is denied whatever the operator allows.
    pub fn vet_socket(&self, socket: SocketAddr) -> Result<(), Denied> {
        let here = |form: IpAddr| {
            form.is_loopback() || form.is_unspecified() || is_among(form, &self.own_addresses)
        };
        if socket.port() == self.own_port && spellings(socket.ip()).into_iter().any(here) {
            return Err(Denied {
                block: "own_port",
                category: "own-address",
            });
        }
        self.vet(socket.ip())
    }

    /// Judges one address: `deny_networks`, then the host's own addresses, then `allow_networks`, then the
    /// built-in list. An IPv4-mapped address is judged by its IPv4 address. A network opens the host's
    /// own addresses in it only where they are loopback, or where it is that one address: who allows 10.0.0.0/8
    /// thinks of other machines.
    pub fn vet(&self, ip: IpAddr) -> Result<(), Denied> {
        // `to_canonical` unwraps ::ffff:0:0/96 and nothing else, which is what a socket does too.
        let plain = ip.to_canonical();
        let embedded = match plain {
            IpAddr::V4(_) => Vec::new(),
            IpAddr::V6(v6) => embedded_ipv4(v6),
        };
        // Deny must not be escaped by writing the same IPv4 address as an IPv6 one.
        let spellings = spellings(ip);
        if spellings
            .iter()
            .any(|form| self.deny_networks.iter().any(|net| net.contains(form)))
        {
            return Err(Denied {
                block: "deny_networks",
                category: "operator-denied",
            });
        }
        let mut allowing = self
            .allow_networks
            .iter()
            .filter(|net| net.contains(&plain));
        let own = spellings
            .iter()
            .find(|form| is_among(**form, &self.own_addresses));
        let allowed = match own {
            Some(own) if !own.is_loopback() => {
                allowing.any(|net| net.prefix_len() == net.max_prefix_len())
            }
            _ => allowing.next().is_some(),
        };
        if allowed {
            return Ok(());
        }
        if own.is_some() {
            return Err(Denied {
                block: "own_addresses",
                category: "own-address",
            });
        }
        match plain {
            IpAddr::V4(_) => deny_if(listed(plain)),
            IpAddr::V6(v6) => self.vet_v6(v6, &embedded),
        }
    }

    fn vet_v6(&self, ip: Ipv6Addr, embedded: &[(Form, Ipv4Addr)]) -> Result<(), Denied> {
        if let (Nat64::Judge, [(Form::Nat64, v4)]) = (self.nat64, embedded) {
            return self.vet(IpAddr::V4(*v4));
        }
        deny_if(listed(IpAddr::V6(ip)))?;
        if let Some(&(_, v4)) = embedded.iter().find(|(form, _)| *form == Form::Isatap) {
            // The interface identifier says that this router hands the packet to an IPv4 address.
            deny_if(listed(IpAddr::V4(v4)).map(|block| Block {
                network: "isatap-iid",
                category: block.isatap,
                ..block
            }))?;
        }
        // Only 2000::/3 is global unicast: denying the rest ends the "one more encoding" class.
        if ip.segments()[0] >> 13 != 1 {
            return Err(Denied {
                block: "!2000::/3",
                category: "unallocated-non-global-unicast",
            });
        }
        Ok(())
    }
}

/// Everything an address may be taken for: itself, its canonical form, the IPv4 addresses inside.
fn spellings(ip: IpAddr) -> Vec<IpAddr> {
    let plain = ip.to_canonical();
    let mut all = vec![ip, plain];
    if let IpAddr::V6(v6) = plain {
        all.extend(embedded_ipv4(v6).into_iter().map(|(_, v4)| IpAddr::V4(v4)));
    }
    all
}

fn is_among(ip: IpAddr, own: &[IpAddr]) -> bool {
    own.iter().any(|own| own.to_canonical() == ip)
}

/// Reads `webhook.allow_networks` and `webhook.deny_networks`: networks or single addresses,
/// separated by commas. An IPv4-mapped network is stored as the IPv4 network it means.
pub fn parse_networks(text: &str) -> Result<Vec<IpNet>, String> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(parse_network)
        .collect()
}

fn parse_network(item: &str) -> Result<IpNet, String> {
    let net = match item.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address),
        // The parser of networks takes "010.0.0.0/8" for 10.0.0.0/8, others for 8.0.0.0/8; that of addresses refuses it.
        Err(_) => item
            .split_once('/')
            .filter(|(address, _)| address.parse::<IpAddr>().is_ok())
            .and_then(|_| item.parse::<IpNet>().ok())
            .ok_or_else(|| format!("invalid network \"{item}\""))?,
    };
    if net.addr() != net.network() {
        // Guessing which half is the slip would open or close more than was meant.
        return Err(format!(
            "invalid network \"{item}\": bits are set to the right of the mask"
        ));
    }
    if let (IpAddr::V4(v4), Some(length @ 0..=32)) =
        (net.addr().to_canonical(), net.prefix_len().checked_sub(96))
        && let Ok(unwrapped) = Ipv4Net::new(v4, length)
    {
        return Ok(IpNet::V4(unwrapped));
    }
    Ok(net)
}

/// How an IPv6 address holds an IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// ::/96, RFC 4291 section 2.5.5.1, deprecated.
    Compatible,
    /// ::ffff:0:0:0/96, RFC 2765 section 2.1, obsolete.
    Siit,
    /// 64:ff9b::/96, RFC 6052 section 2.1.
    Nat64,
    /// 2002::/16, RFC 3056 section 2.
    SixToFour,
    /// 2001::/32, RFC 4380 section 4: the relay, in clear.
    TeredoServer,
    /// 2001::/32, RFC 4380 section 4: the host, with all bits inverted.
    TeredoClient,
    /// An interface identifier 0[02]00:5efe:a.b.c.d under any prefix, RFC 5214 section 6.1.
    Isatap,
}

/// Every IPv4 address an IPv6 address holds. Mapped ones are not here: they *are* IPv4 addresses.
/// Each form is matched by all its bits; matching fewer refuses real public addresses
/// (2001:718:1404:c8:0:ffff:ac19:c80e is one).
pub(super) fn embedded_ipv4(ip: Ipv6Addr) -> Vec<(Form, Ipv4Addr)> {
    let s = ip.segments();
    let joined = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    let last = joined(s[6], s[7]);
    let mut found = match s {
        [0, 0, 0, 0, 0, 0, ..] => vec![(Form::Compatible, last)],
        [0, 0, 0, 0, 0xffff, 0, ..] => vec![(Form::Siit, last)],
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => vec![(Form::Nat64, last)],
        [0x2002, high, low, ..] => vec![(Form::SixToFour, joined(high, low))],
        [0x2001, 0, ..] => vec![
            (Form::TeredoServer, joined(s[2], s[3])),
            (Form::TeredoClient, joined(!s[6], !s[7])),
        ],
        _ => Vec::new(),
    };
    // 0x0200 is the universal/local bit, which may be either.
    if s[4] & !0x0200 == 0 && s[5] == 0x5efe {
        found.push((Form::Isatap, last));
    }
    found
}

/// The most specific block of the built-in list that holds the address.
fn listed(ip: IpAddr) -> Option<Block> {
    PARSED
        .iter()
        .find(|(net, _)| net.contains(&ip))
        .map(|&(_, block)| block)
}

fn deny_if(block: Option<Block>) -> Result<(), Denied> {
    match block {
        None => Ok(()),
        Some(block) => Err(Denied {
            block: block.network,
            category: block.category,
        }),
    }
}

/// One row of the built-in list.
#[derive(Clone, Copy)]
struct Block {
    network: &'static str,
    category: &'static str,
    /// The category when the address is found inside an ISATAP interface identifier.
    isatap: &'static str,
    /// Where the row comes from; for the reader, and for the yearly comparison.
    #[cfg_attr(not(test), expect(dead_code, reason = "documentation of the row"))]
    source: &'static str,
}

/// The built-in list, longest prefix first, so that the first hit is the most specific one.
static PARSED: LazyLock<Vec<(IpNet, Block)>> = LazyLock::new(|| {
    let mut parsed: Vec<(IpNet, Block)> = BLOCKS
        .iter()
        // BLOCKS is a constant and `every_row_of_the_list_is_a_network` parses all of it. Skipping
        // a row that does not parse would let its addresses through.
        .map(|&block| (block.network.parse().expect("a constant network"), block))
        .collect();
    parsed.sort_by_key(|(net, _)| std::cmp::Reverse(net.prefix_len()));
    parsed
});

/// Shortens the table: the ISATAP category is made from the category.
macro_rules! blocks {
    ($(($network:literal, $category:literal, $source:literal),)*) => {
        &[$(Block {
            network: $network,
            category: $category,
            isatap: concat!("isatap-embedded-", $category),
            source: $source,
        },)*]
    };
}

/// Both IANA special-purpose address registries (copies of 2026-07-18; compare them before each
/// release), all rows, also those the registry calls globally reachable: none of them is a place
/// where a webhook receiver lives. Then what the registries leave out: multicast, deprecated forms
/// that hold an IPv4 address, and metadata services on public addresses.
#[rustfmt::skip]
const BLOCKS: &[Block] = blocks![
    // iana-ipv4-special-registry, 2026-07-18
    ("0.0.0.0/8", "this-network", "RFC 791 s3.2"),
    ("0.0.0.0/32", "unspecified", "RFC 1122 s3.2.1.3"),
    ("10.0.0.0/8", "private-use", "RFC 1918"),
    ("100.64.0.0/10", "shared-cgnat", "RFC 6598"),
    ("127.0.0.0/8", "loopback", "RFC 1122 s3.2.1.3"),
    ("169.254.0.0/16", "link-local", "RFC 3927"),
    ("172.16.0.0/12", "private-use", "RFC 1918"),
    ("192.0.0.0/24", "ietf-protocol-assignments", "RFC 6890 s2.1"),
    ("192.0.0.0/29", "service-continuity", "RFC 7335"),
    ("192.0.0.8/32", "dummy-address", "RFC 7600"),
    ("192.0.0.9/32", "pcp-anycast", "RFC 7723"),
    ("192.0.0.10/32", "turn-anycast", "RFC 8155"),
    ("192.0.0.170/32", "nat64-discovery", "RFC 7050 s2.2"),
    ("192.0.0.171/32", "nat64-discovery", "RFC 7050 s2.2"),
    ("192.0.2.0/24", "documentation", "RFC 5737"),
    ("192.31.196.0/24", "as112", "RFC 7535"),
    ("192.52.193.0/24", "amt", "RFC 7450"),
    ("192.88.99.0/24", "6to4-relay-anycast", "RFC 7526"),
    ("192.88.99.2/32", "6a44-relay-anycast", "RFC 6751"),
    ("192.168.0.0/16", "private-use", "RFC 1918"),
    ("192.175.48.0/24", "as112", "RFC 7534"),
    ("198.18.0.0/15", "benchmarking", "RFC 2544"),
    ("198.51.100.0/24", "documentation", "RFC 5737"),
    ("203.0.113.0/24", "documentation", "RFC 5737"),
    ("240.0.0.0/4", "reserved-class-e", "RFC 1112 s4"),
    ("255.255.255.255/32", "limited-broadcast", "RFC 919 s7"),
    // IPv4, outside that registry
    ("224.0.0.0/4", "multicast", "RFC 5771"),
    ("168.63.129.16/32", "cloud-metadata", "Azure virtual public IP"),
    // iana-ipv6-special-registry, 2026-07-18; ::ffff:0:0/96 is judged by its IPv4 address
    ("::1/128", "loopback", "RFC 4291"),
    ("::/128", "unspecified", "RFC 4291"),
    ("64:ff9b::/96", "nat64-well-known", "RFC 6052"),
    ("64:ff9b:1::/48", "nat64-local-use", "RFC 8215"),
    ("100::/64", "discard-only", "RFC 6666"),
    ("100:0:0:1::/64", "dummy-prefix", "RFC 9780"),
    ("2001::/23", "ietf-protocol-assignments", "RFC 2928"),
    ("2001::/32", "teredo", "RFC 4380"),
    ("2001:1::1/128", "pcp-anycast", "RFC 7723"),
    ("2001:1::2/128", "turn-anycast", "RFC 8155"),
    ("2001:1::3/128", "dns-sd-srp-anycast", "RFC 9665"),
    ("2001:2::/48", "benchmarking", "RFC 5180"),
    ("2001:3::/32", "amt", "RFC 7450"),
    ("2001:4:112::/48", "as112", "RFC 7535"),
    ("2001:10::/28", "orchid-deprecated", "RFC 4843"),
    ("2001:20::/28", "orchidv2", "RFC 7343"),
    ("2001:30::/28", "drone-remote-id", "RFC 9374"),
    ("2001:db8::/32", "documentation", "RFC 3849"),
    ("2002::/16", "6to4", "RFC 3056"),
    ("2620:4f:8000::/48", "as112", "RFC 7534"),
    ("3fff::/20", "documentation", "RFC 9637"),
    ("5f00::/16", "srv6-sids", "RFC 9602"),
    ("fc00::/7", "unique-local", "RFC 4193"),
    ("fe80::/10", "link-local", "RFC 4291"),
    // IPv6, outside that registry
    ("::/96", "ipv4-compatible-deprecated", "RFC 4291 s2.5.5.1"),
    ("::ffff:0:0:0/96", "ipv4-translated-siit", "RFC 2765 s2.1"),
    ("200::/7", "nsap-mapped-deprecated", "RFC 4048"),
    ("fec0::/10", "site-local-deprecated", "RFC 3879"),
    ("ff00::/8", "multicast", "RFC 4291 s2.7"),
];

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
