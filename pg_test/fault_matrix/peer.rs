//! Peers that fail below HTTP: in the handshake of TCP or of TLS. Their threads end with the test process.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use socket2::{Domain, Socket, Type};

/// The URL of a peer that hands every connection to `talk`.
pub fn peer(scheme: &str, talk: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let talk = Arc::new(talk);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let talk = Arc::clone(&talk);
            thread::spawn(move || talk(stream));
        }
    });
    format!("{scheme}://{address}/hook")
}

/// A peer that hears something, says these bytes whatever it was, and waits for the other side to leave.
pub fn saying(scheme: &str, bytes: impl Into<Vec<u8>>) -> String {
    let bytes = bytes.into();
    peer(scheme, move |mut stream| {
        let mut ignored = [0; 4096];
        // What goes wrong here goes wrong for the sender, too, and that is what the test looks at.
        let _ = stream.read(&mut ignored);
        let _ = stream.write_all(&bytes);
        while stream.read(&mut ignored).is_ok_and(|size| size > 0) {}
    })
}

/// A peer that resets the connection as soon as it hears something.
pub fn resetting(scheme: &str) -> String {
    peer(scheme, |mut stream| {
        let _ = stream.read(&mut [0; 1]);
        let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    })
}

/// A peer that shakes hands, reads a request, and goes on in plain text.
pub fn breaking_tls(config: Arc<ServerConfig>) -> String {
    peer("https", move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
        let mut stream = StreamOwned::new(connection, stream);
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream
            .sock
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        let _ = stream.sock.read(&mut [0; 4096]);
    })
}

/// A peer whose first record of TLS is long and comes byte by byte.
pub fn dripping_handshake() -> String {
    peer("https", |stream| {
        // A record of 16 kB (RFC 8446, 5.1): each byte is something, and none of them the last.
        drip(
            &stream,
            &[&[22, 3, 3, 0x40, 0], [2; 1 << 14].as_slice()].concat(),
        );
    })
}

/// A peer that shakes hands, reads a request, and answers in one record that comes byte by byte.
pub fn dripping_tls(config: Arc<ServerConfig>) -> String {
    peer("https", move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
        let mut stream = StreamOwned::new(connection, stream);
        let _ = stream.read(&mut [0; 4096]);
        let head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(4096));
        let _ = stream.conn.writer().write_all(head.as_bytes());
        let mut record = Vec::new();
        let _ = stream.conn.write_tls(&mut record);
        drip(&stream.sock, &record);
    })
}

fn drip(mut stream: &TcpStream, bytes: &[u8]) {
    let _ = stream.set_nodelay(true);
    for byte in bytes {
        if stream.write_all(&[*byte]).is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// What a server that knows no TLS after 1.0 answers to whatever it is offered (RFC 2246, 7.4.1.3).
pub fn hello_of_tls_1_0() -> Vec<u8> {
    let mut hello = vec![3, 1]; // server_version
    hello.extend([7; 32]); // random
    hello.push(0); // no session id
    hello.extend([0, 0x2f]); // TLS_RSA_WITH_AES_128_CBC_SHA
    hello.push(0); // no compression
    let length = u8::try_from(hello.len()).expect("a short message");
    let message = [&[2, 0, 0, length], hello.as_slice()].concat();
    [&[22, 3, 1, 0, length + 4], message.as_slice()].concat()
}

/// What a server says that shares no version: a fatal alert of protocol_version (RFC 8446, 6.2).
pub const VERSION_ALERT: [u8; 7] = [21, 3, 1, 0, 2, 2, 70];

/// A listener that never accepts.
pub struct Deaf {
    pub address: SocketAddr,
    _listener: Socket,
    _waiting: Vec<TcpStream>,
}

/// A listener whose queue is full: it drops further connections without a word.
pub fn full() -> Deaf {
    let mut deaf = deaf(0);
    while let Ok(stream) = TcpStream::connect_timeout(&deaf.address, Duration::from_secs(1)) {
        deaf._waiting.push(stream);
    }
    deaf
}

/// A listener whose connections open and whose buffers hold next to nothing.
pub fn unread() -> Deaf {
    deaf(16)
}

fn deaf(backlog: i32) -> Deaf {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    listener
        .set_recv_buffer_size(1)
        .expect("the smallest buffer");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    listener.bind(&any.into()).expect("a port");
    listener.listen(backlog).expect("a listener");
    let address = listener.local_addr().expect("its address");
    Deaf {
        address: address.as_socket().expect("an IP address"),
        _listener: listener,
        _waiting: Vec::new(),
    }
}
