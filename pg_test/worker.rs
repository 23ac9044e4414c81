//! The worker's behaviour, seen from outside: SQL on one side, HTTP on the other. So far it proves that the house
//! itself can be trusted: that servers, receivers, name server and verifiers do what the tests will order.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, TcpStream},
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use webhook_outbox_test::{
    cluster::{Cluster, Shutdown},
    dns::{DnsServer, Kind, Record, Reply},
    receiver::{Answer, Receiver},
    tls::Authority,
    verifier,
    wait::wait_for,
};

const SOON: Duration = Duration::from_secs(60);

#[test]
fn cluster_starts_stops_recovers_from_a_crash_and_leaves_nothing() {
    let mut cluster = Cluster::plan()
        .without("shared_preload_libraries")
        .setting("work_mem", "5MB")
        .start();
    let folder: PathBuf = cluster.folder().to_owned();
    let mut client = cluster.create_database("shop");
    client
        .batch_execute("create table t as select 1 as kept")
        .expect("a table");
    let version: String = client
        .query_one("show server_version_num", &[])
        .expect("version")
        .get(0);
    assert_eq!(version[..2], cluster.major().to_string());

    cluster.reload(&[("work_mem", "6MB")]);
    assert_eq!(show(&cluster, "work_mem"), "6MB");

    cluster.crash();
    assert!(cluster.try_connect("shop").is_err());
    cluster.start();
    let kept: i32 = cluster
        .connect("shop")
        .query_one("select kept from t", &[])
        .expect("the row")
        .get(0);
    assert_eq!(kept, 1);
    assert!(
        cluster
            .log()
            .contains("database system was not properly shut down")
    );

    assert!(cluster.stop(Shutdown::Fast) < SOON);
    cluster.start();
    let postmaster = cluster.postmaster();
    drop(cluster);
    assert!(!folder.exists());
    assert!(!std::path::Path::new(&format!("/proc/{postmaster}")).exists());
}

#[test]
fn cluster_runs_its_own_programs() {
    let cluster = Cluster::plan().without("shared_preload_libraries").start();
    let output = cluster
        .program("pg_dump")
        .arg("postgres")
        .output()
        .expect("pg_dump");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("PostgreSQL database dump complete"));
}

#[test]
fn receiver_records_the_request_as_it_came() {
    let receiver = Receiver::http();
    receiver.script(
        "/hook",
        vec![
            Answer::status(503).header("Retry-After", "7").body("later"),
            Answer::status(204),
        ],
    );
    let mut stream = TcpStream::connect(receiver.address()).expect("a connection");
    let request =
        "POST /hook HTTP/1.1\r\nHost: x\r\nB-b:  2 \r\na-A: 1\r\nContent-Length: 2\r\n\r\nhi";
    stream.write_all(request.as_bytes()).expect("a request");
    assert_eq!(
        answer(&mut stream, "later"),
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\ncontent-length: 5\r\n\r\nlater"
    );
    stream.write_all(request.as_bytes()).expect("a request");
    assert_eq!(
        answer(&mut stream, "\r\n\r\n"),
        "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n"
    );

    let seen = receiver.wait_for(2, SOON);
    assert_eq!(seen[0].head, request.as_bytes()[..request.len() - 2]);
    assert_eq!(seen[0].text(), "hi");
    assert_eq!(seen[0].header("b-B"), Some("2"));
    let names: Vec<&str> = seen[0]
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["Host", "B-b", "a-A", "Content-Length"]);
    assert_eq!(
        (
            seen[0].connection,
            seen[1].connection,
            receiver.connections()
        ),
        (1, 1, 1)
    );
}

#[test]
fn receiver_resets_closes_and_babbles_to_order() {
    let receiver = Receiver::http();
    receiver.script("/reset", vec![Answer::reset()]);
    receiver.script("/close", vec![Answer::close()]);
    receiver.script("/babble", vec![Answer::raw("hm\r\n\r\n")]);
    receiver.script(
        "/late",
        vec![Answer::status(200).after(Duration::from_millis(300))],
    );
    receiver.script(
        "/slow",
        vec![
            Answer::status(200)
                .slow_body("abc", 1, Duration::from_millis(100))
                .and_close(),
        ],
    );
    receiver.script(
        "/endless",
        vec![Answer::status(200).endless_body(1000, Duration::ZERO)],
    );

    let error = ask(&receiver, "/reset").expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(ask(&receiver, "/close").expect("nothing"), "");
    assert_eq!(ask(&receiver, "/babble").expect("babble"), "hm\r\n\r\n");
    let start = Instant::now();
    assert!(ask(&receiver, "/slow").expect("an answer").ends_with("abc"));
    assert!(start.elapsed() >= Duration::from_millis(300));

    let start = Instant::now();
    let mut stream = begin(&receiver, "/late");
    answer(&mut stream, "\r\n\r\n");
    assert!(start.elapsed() >= Duration::from_millis(300));

    let mut stream = begin(&receiver, "/endless");
    let mut much = vec![0; 1 << 20];
    stream
        .read_exact(&mut much)
        .expect("as much as anybody could want");
}

#[test]
fn receiver_lets_300_connections_hang_and_answers_another() {
    let receiver = Receiver::http();
    receiver.script("/hang", vec![Answer::hang()]);
    let hanging: Vec<TcpStream> = (0..300).map(|_| begin(&receiver, "/hang")).collect();
    wait_for("all of them hang", SOON, || receiver.in_flight() == 300);
    let mut stream = begin(&receiver, "/other");
    assert!(answer(&mut stream, "\r\n\r\n").starts_with("HTTP/1.1 200 OK"));
    drop(hanging);
    wait_for("those who left are forgotten", SOON, || {
        receiver.in_flight() == 0
    });
    assert!(receiver.peak() >= 300);
}

#[test]
fn receiver_speaks_tls_under_its_own_authority() {
    let authority = Authority::new();
    let receiver = Receiver::https(authority.receiver(&["hook.example", "127.0.0.1"]));
    let good = tls_status(&authority, &receiver, "hook.example").expect("a good certificate");
    assert!(good.starts_with("HTTP/1.1 200 OK"), "{good}");
    assert!(tls_status(&authority, &receiver, "other.example").is_err());
    assert!(tls_status(&Authority::new(), &receiver, "hook.example").is_err());
    let expired = Receiver::https(authority.expired_receiver(&["hook.example"]));
    assert!(tls_status(&authority, &expired, "hook.example").is_err());
    assert_eq!((receiver.count(), expired.count()), (1, 0));
}

#[test]
fn server_asks_the_name_server_of_its_namespace() {
    let dns = DnsServer::start();
    dns.addresses(
        "two.example",
        &[[127, 0, 0, 7].into(), [10, 1, 2, 3].into()],
    );
    dns.answer(
        "moving.example",
        Kind::A,
        vec![reply([127, 0, 0, 1]), reply([127, 0, 0, 2])],
    );
    let alias = vec![
        Record::Alias("real.example".into()),
        Record::Address([127, 0, 0, 9].into()),
    ];
    dns.answer("alias.example", Kind::A, vec![Reply::Records(60, alias)]);
    dns.answer("silent.example", Kind::A, vec![Reply::Silence]);
    let cluster = Cluster::plan()
        .without("shared_preload_libraries")
        .name_server(dns.address())
        .start();

    assert_eq!(look_up(&cluster, "two.example."), ["10.1.2.3", "127.0.0.7"]);
    assert_eq!(look_up(&cluster, "moving.example."), ["127.0.0.1"]);
    assert_eq!(look_up(&cluster, "moving.example."), ["127.0.0.2"]);
    assert_eq!(look_up(&cluster, "alias.example."), ["127.0.0.9"]);
    assert!(look_up(&cluster, "missing.example.").is_empty());
    assert!(look_up(&cluster, "silent.example.").is_empty());
    assert!(
        dns.questions()
            .iter()
            .any(|question| question.name == "missing.example")
    );
    // The namespace is the server's alone.
    let own = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    assert!(!own.contains(&dns.address().to_string()));
}

#[test]
fn both_public_libraries_accept_a_signed_request_and_refuse_a_changed_one() {
    let secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock")
        .as_secs();
    let library = standardwebhooks::Webhook::new(secret).expect("a secret");
    let body = r#"{"a":1}"#;
    let signature = library
        .sign(
            "evt_1",
            i64::try_from(now).expect("a time"),
            body.as_bytes(),
        )
        .expect("a signature");
    let receiver = Receiver::http();
    for sent in [body, r#"{"a":2}"#] {
        let mut stream = TcpStream::connect(receiver.address()).expect("a connection");
        let head = format!(
            "webhook-id: evt_1\r\nwebhook-timestamp: {now}\r\nwebhook-signature: {signature}"
        );
        write!(
            stream,
            "POST / HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{sent}",
            sent.len()
        )
        .expect("a request");
        answer(&mut stream, "\r\n\r\n");
    }
    let requests = receiver.wait_for(2, SOON);
    assert_eq!(
        verifier::objections(secret, &requests[..1]),
        Vec::<String>::new()
    );
    assert_eq!(verifier::objections(secret, &requests[1..]).len(), 2);
}

fn show(cluster: &Cluster, setting: &str) -> String {
    cluster
        .connect("postgres")
        .query_one(&format!("show {setting}"), &[])
        .expect("a setting")
        .get(0)
}

fn reply(address: [u8; 4]) -> Reply {
    Reply::addresses([Ipv4Addr::from(address)])
}

/// The addresses that getaddrinfo gives a child process of the server.
fn look_up(cluster: &Cluster, name: &str) -> Vec<String> {
    let mut client = cluster.connect("postgres");
    let program = format!("getent ahosts {name} | cut -d '' '' -f 1 || true");
    let statement =
        format!("create temp table answer (address text); copy answer from program '{program}'");
    client.batch_execute(&statement).expect("getent");
    let rows = client
        .query("select distinct address from answer order by 1", &[])
        .expect("the answer");
    rows.iter().map(|row| row.get(0)).collect()
}

fn begin(receiver: &Receiver, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(receiver.address()).expect("a connection");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").expect("a request");
    stream
}

fn ask(receiver: &Receiver, path: &str) -> std::io::Result<String> {
    let mut text = String::new();
    begin(receiver, path).read_to_string(&mut text)?;
    Ok(text)
}

/// Reads until the text ends as expected.
fn answer(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(end.as_bytes()) && stream.read(&mut byte).expect("an answer") > 0 {
        text.push(byte[0]);
    }
    String::from_utf8(text).expect("text")
}

fn tls_status(authority: &Authority, receiver: &Receiver, name: &str) -> std::io::Result<String> {
    use rustls::{
        ClientConfig, ClientConnection, RootCertStore, StreamOwned, pki_types::pem::PemObject,
    };
    let mut roots = RootCertStore::empty();
    let pem = rustls::pki_types::CertificateDer::from_pem_slice(authority.pem().as_bytes())
        .expect("a certificate");
    roots.add(pem).expect("a root");
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from(name.to_owned()).expect("a name");
    let client = ClientConnection::new(config.into(), name).expect("a client");
    assert_eq!(receiver.address().ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    let mut stream = StreamOwned::new(client, TcpStream::connect(receiver.address())?);
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n")?;
    let mut some = [0; 100];
    let size = stream.read(&mut some)?;
    Ok(String::from_utf8_lossy(&some[..size]).into_owned())
}
