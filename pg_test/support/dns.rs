//! A name server whose answers a test chooses, and the mount namespace in which a program asks it. UDP only, one
//! question a message; it refuses to forward anything: a name without an entry does not exist.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::place;

/// The two kinds of question that have entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
}

/// One record of an answer.
#[derive(Clone, Debug)]
pub enum Record {
    /// An address of the current name.
    Address(IpAddr),
    /// The name is another one; records that follow belong to that.
    Alias(String),
}

/// What a question gets.
#[derive(Clone, Debug)]
pub enum Reply {
    /// These records, with this time to live in seconds. None at all: the name exists, without such an address.
    Records(u32, Vec<Record>),
    /// The name does not exist.
    NoSuchName,
    /// The server is broken.
    Failure,
    /// Nothing, ever.
    Silence,
    /// The other reply, later.
    Late(Duration, Box<Reply>),
}

impl Reply {
    /// The addresses, to be kept for no time.
    pub fn addresses<A: Into<IpAddr>>(addresses: impl IntoIterator<Item = A>) -> Reply {
        Reply::Records(
            0,
            addresses
                .into_iter()
                .map(|address| Record::Address(address.into()))
                .collect(),
        )
    }
}

/// A question that arrived.
#[derive(Clone, Debug)]
pub struct Question {
    /// When.
    pub at: Instant,
    /// The name in lower case, without a dot at its end.
    pub name: String,
    /// The type number of the DNS (1 = A, 28 = AAAA).
    pub kind: u16,
}

/// A running name server on an address of the loopback network, port 53.
pub struct DnsServer {
    address: Ipv4Addr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    table: Mutex<HashMap<(String, u16), Vec<Reply>>>,
    questions: Mutex<Vec<Question>>,
    stopping: AtomicBool,
}

impl DnsServer {
    /// Starts a server on a free address of 127.0.0.0/8. The port has to be 53: resolv.conf knows no other.
    pub fn start() -> DnsServer {
        let (address, socket) = (2..=254)
            .map(|last| Ipv4Addr::new(127, 0, 53, last))
            .find_map(|address| Some((address, UdpSocket::bind((address, 53)).ok()?)))
            .expect("UDP port 53 on a loopback address (root's right)");
        Self::serving(address, socket)
    }

    /// Starts a server on this address.
    pub fn at(address: Ipv4Addr) -> DnsServer {
        let socket = UdpSocket::bind((address, 53)).expect("UDP port 53 (root's right)");
        Self::serving(address, socket)
    }

    fn serving(address: Ipv4Addr, socket: UdpSocket) -> DnsServer {
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("a read timeout");
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || serve(&socket, &of_thread));
        DnsServer { address, shared }
    }

    /// Where it listens.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// From now on questions of this kind for `name` get these replies in turn, and the last one from then on.
    pub fn answer(&self, name: &str, kind: Kind, replies: Vec<Reply>) {
        assert!(!replies.is_empty(), "a name needs a reply");
        lock(&self.shared.table).insert((canonical(name), number(kind)), replies);
    }

    /// [`answer`](Self::answer) for both kinds: always these addresses.
    pub fn addresses(&self, name: &str, addresses: &[IpAddr]) {
        let (four, six): (Vec<IpAddr>, Vec<IpAddr>) =
            addresses.iter().copied().partition(IpAddr::is_ipv4);
        self.answer(name, Kind::A, vec![Reply::addresses(four)]);
        self.answer(name, Kind::Aaaa, vec![Reply::addresses(six)]);
    }

    /// Every question so far.
    pub fn questions(&self) -> Vec<Question> {
        lock(&self.shared.questions).clone()
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
    }
}

/// A command that runs `program` as the server's user in a mount namespace whose resolv.conf names only `name_server`
/// and whose host names come from there alone. The file lies in `folder`.
pub fn in_namespace(folder: &Path, name_server: Ipv4Addr, program: impl AsRef<OsStr>) -> Command {
    // `exec` all the way down: the process that was started is the program itself, so its id can be signalled.
    const SCRIPT: &str = r#"
        set -e
        mount --bind "$1/resolv.conf" "$(readlink -f /etc/resolv.conf)"
        mount --bind "$1/nsswitch.conf" "$(readlink -f /etc/nsswitch.conf)"
        user=$2 group=$3
        shift 3
        exec setpriv --reuid="$user" --regid="$group" --clear-groups -- "$@"
    "#;
    let (user, group) = place::server_user().expect("a mount namespace needs root");
    // One question each, which may wait for the name server's thread: what is silent on purpose costs this once a look-up.
    let resolv = format!("nameserver {name_server}\noptions timeout:5 attempts:1\n");
    fs::write(folder.join("resolv.conf"), resolv).expect("resolv.conf");
    fs::write(
        folder.join("nsswitch.conf"),
        "hosts: files dns\npasswd: files\ngroup: files\n",
    )
    .expect("nsswitch.conf");
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "--propagation",
            "private",
            "--",
            "sh",
            "-c",
            SCRIPT,
            "sh",
        ])
        .arg(folder);
    command
        .arg(user.to_string())
        .arg(group.to_string())
        .arg(program);
    command
}

fn serve(socket: &UdpSocket, shared: &Arc<Shared>) {
    let mut buffer = [0; 1500];
    while !shared.stopping.load(Ordering::Relaxed) {
        let Ok((size, from)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let message = &buffer[..size];
        let Some((name, kind, end)) = question(message) else {
            continue;
        };
        lock(&shared.questions).push(Question {
            at: Instant::now(),
            name: name.clone(),
            kind,
        });
        let reply = next_reply(&mut lock(&shared.table), &name, kind);
        send(socket, from, &message[..end], kind, reply);
    }
}

fn next_reply(table: &mut HashMap<(String, u16), Vec<Reply>>, name: &str, kind: u16) -> Reply {
    let Some(replies) = table.get_mut(&(name.to_owned(), kind)) else {
        let exists = table.keys().any(|(known, _)| known == name);
        return if exists {
            Reply::Records(0, Vec::new())
        } else {
            Reply::NoSuchName
        };
    };
    if replies.len() > 1 {
        replies.remove(0)
    } else {
        replies[0].clone()
    }
}

fn send(socket: &UdpSocket, to: SocketAddr, question: &[u8], kind: u16, reply: Reply) {
    match reply {
        Reply::Silence => {}
        Reply::Late(delay, reply) => {
            let (socket, question) = (
                socket.try_clone().expect("the socket again"),
                question.to_vec(),
            );
            thread::spawn(move || {
                thread::sleep(delay);
                send(&socket, to, &question, kind, *reply);
            });
        }
        Reply::NoSuchName => drop(socket.send_to(&message(question, kind, 3, 0, &[]), to)),
        Reply::Failure => drop(socket.send_to(&message(question, kind, 2, 0, &[]), to)),
        Reply::Records(ttl, records) => {
            drop(socket.send_to(&message(question, kind, 0, ttl, &records), to))
        }
    }
}

/// Name, kind and end of the one question of a message (RFC 1035 4.1).
fn question(message: &[u8]) -> Option<(String, u16, usize)> {
    let mut name = String::new();
    let mut at = 12;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(std::str::from_utf8(message.get(at..at + length)?).ok()?);
        at += length;
    }
    let kind = u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]);
    message.get(at + 3)?;
    Some((name.to_ascii_lowercase(), kind, at + 4))
}

fn message(question: &[u8], kind: u16, code: u8, ttl: u32, records: &[Record]) -> Vec<u8> {
    let mut out = question.to_vec();
    out[2] = 0x84 | (question[2] & 0x01); // an authoritative response; "recursion desired" is repeated
    out[3] = 0x80 | code; // recursion is available: resolvers of glibc ask nobody else then
    out[4..12].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
    let mut owner = vec![0xc0, 0x0c]; // a pointer to the question's name
    let mut count: u16 = 0;
    for record in records {
        let (number, data, next) = match record {
            Record::Alias(name) => (5, encoded(name), Some(encoded(name))),
            Record::Address(IpAddr::V4(address)) if kind == 1 => {
                (1, address.octets().to_vec(), None)
            }
            Record::Address(IpAddr::V6(address)) if kind == 28 => {
                (28_u16, address.octets().to_vec(), None)
            }
            Record::Address(_) => continue,
        };
        out.extend_from_slice(&owner);
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&1_u16.to_be_bytes());
        out.extend_from_slice(&ttl.to_be_bytes());
        out.extend_from_slice(
            &u16::try_from(data.len())
                .expect("a short record")
                .to_be_bytes(),
        );
        out.extend_from_slice(&data);
        owner = next.unwrap_or(owner);
        count += 1;
    }
    out[6..8].copy_from_slice(&count.to_be_bytes());
    out
}

fn encoded(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in canonical(name).split('.') {
        out.push(u8::try_from(label.len()).expect("a short label"));
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out
}

fn canonical(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn number(kind: Kind) -> u16 {
    match kind {
        Kind::A => 1,
        Kind::Aaaa => 28,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
