//! A small HTTP proxy that tunnels by CONNECT, or does to a request what a test orders. It keeps what it was asked
//! and refuses to forward anything but tunnels.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// What the proxy does with a request.
#[derive(Clone, Debug)]
pub enum Manner {
    /// What it is asked for; 502 when the target does not take the connection.
    Tunnel,
    /// The same for those who send this header line, and 407 for others.
    TunnelFor(String),
    /// These bytes, and nothing else.
    Say(Vec<u8>),
    /// The end of the connection.
    Close,
}

/// A running proxy.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    manner: Mutex<Manner>,
    heads: Mutex<Vec<String>>,
    stopping: AtomicBool,
}

impl Proxy {
    /// A proxy that tunnels, on 127.0.0.1.
    pub fn start() -> Proxy {
        Self::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// The same on an address of this machine; port 0 = any.
    pub fn at(address: SocketAddr) -> Proxy {
        let listener = TcpListener::bind(address).expect("a port for the proxy");
        let address = listener.local_addr().expect("the address of the proxy");
        let shared = Arc::new(Shared {
            manner: Mutex::new(Manner::Tunnel),
            heads: Mutex::default(),
            stopping: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if of_thread.stopping.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&of_thread);
                thread::spawn(move || {
                    // An error is the client's affair: the test looks at what it was asked.
                    let _ = serve(stream, &shared);
                });
            }
        });
        Proxy { address, shared }
    }

    /// The value of `webhook.proxy`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on requests are treated so.
    pub fn behave(&self, manner: Manner) {
        *lock(&self.shared.manner) = manner;
    }

    /// Request line and header lines of every request so far.
    pub fn heads(&self) -> Vec<String> {
        lock(&self.shared.heads).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; should it fail, the thread ends with the process.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    lock(&shared.heads).push(head.clone());
    let manner = lock(&shared.manner).clone();
    match manner {
        Manner::TunnelFor(line) if !head.lines().any(|is| is == line) => stream.write_all(
            b"HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n",
        ),
        Manner::Tunnel | Manner::TunnelFor(_) => tunnel(stream, &head),
        Manner::Say(bytes) => {
            stream.write_all(&bytes)?;
            // Until the client leaves.
            while stream.read(&mut byte)? > 0 {}
            Ok(())
        }
        Manner::Close => Ok(()),
    }
}

fn tunnel(mut stream: TcpStream, head: &str) -> io::Result<()> {
    let mut words = head.split(' ');
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    if method != Some("CONNECT") {
        return stream.write_all(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n");
    }
    // An address, and no name: this proxy looks nothing up.
    let onward = match target.parse::<SocketAddr>() {
        Ok(address) => TcpStream::connect_timeout(&address, Duration::from_secs(5)),
        Err(_) => Err(io::ErrorKind::InvalidInput.into()),
    };
    let Ok(onward) = onward else {
        return stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n");
    };
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (back, forth) = (onward.try_clone()?, stream.try_clone()?);
    thread::spawn(move || pump(back, forth));
    pump(stream, onward);
    Ok(())
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
