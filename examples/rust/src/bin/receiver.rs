//! A receiver of webhooks in Rust: `WEBHOOK_SECRET=whsec_... receiver PORT INBOX_FILE`.
//!
//! It verifies each request with the public Standard Webhooks library, appends the event to an inbox file, and answers 2xx
//! only when that is on disk. The work itself happens afterwards, from the inbox: "received" and "processed" are two things.
//! It listens on loopback; put a TLS proxy in front of it.

use std::{
    collections::HashSet,
    env,
    fs::{self, File},
    io::{Read, Write},
};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tiny_http::{Header, Request, Response, Server};

const MAX_BODY: u64 = 1 << 20;

/// One line for each event. A line that a crash has cut off is no event: its sender got no answer and comes again.
struct Inbox {
    file: File,
    known: HashSet<String>,
}

impl Inbox {
    fn open(path: &str) -> std::io::Result<Inbox> {
        let file = File::options().append(true).create(true).open(path)?;
        let lines = fs::read_to_string(path)?;
        let known = lines
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter_map(|event| event["id"].as_str().map(str::to_owned))
            .collect();
        Ok(Inbox { file, known })
    }

    /// Whether it is new.
    fn store(&mut self, id: &str, body: &str) -> std::io::Result<bool> {
        if self.known.contains(id) {
            return Ok(false);
        }
        writeln!(self.file, "\n{}", json!({ "id": id, "body": body }))?;
        self.file.sync_data()?;
        self.known.insert(id.to_owned());
        Ok(true)
    }
}

/// What is answered: status and text.
fn take(webhook: &Webhook, inbox: &mut Inbox, headers: &HeaderMap, body: &[u8]) -> (u16, String) {
    // The exact bytes: parsing and printing the JSON again would break the signature.
    if webhook.verify(body, headers).is_err() {
        return (401, String::new());
    }
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if value("content-type") == Some("application/webhook-challenge+json") {
        // Not an event: the sender asks whether this URL is ours.
        return (
            200,
            value("webhook-challenge").unwrap_or_default().to_owned(),
        );
    }
    let (Some(id), Ok(body)) = (value("webhook-id"), std::str::from_utf8(body)) else {
        return (400, String::new());
    };
    match inbox.store(id, body) {
        // A duplicate is a normal thing and as welcome as the first one.
        Ok(new) => {
            println!("{} {id}", if new { "accepted" } else { "duplicate" });
            (204, String::new())
        }
        // Our own trouble: the sender will try again.
        Err(_) => (503, String::new()),
    }
}

fn headers(request: &Request) -> HeaderMap {
    let pair = |header: &Header| {
        Some((
            HeaderName::from_bytes(header.field.as_str().as_str().as_bytes()).ok()?,
            HeaderValue::from_str(header.value.as_str()).ok()?,
        ))
    };
    request.headers().iter().filter_map(pair).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [port, inbox_file] = arguments.as_slice() else {
        return Err("usage: receiver PORT INBOX_FILE".into());
    };
    let webhook = Webhook::new(&env::var("WEBHOOK_SECRET")?)?;
    let mut inbox = Inbox::open(inbox_file)?;
    let server = Server::http(format!("127.0.0.1:{port}"))?;
    println!("listening on http://{}/", server.server_addr());
    for mut request in server.incoming_requests() {
        let mut body = Vec::new();
        // One byte more than is taken tells the longest body from one that is too long.
        let read = request
            .as_reader()
            .take(MAX_BODY + 1)
            .read_to_end(&mut body);
        let (status, text) = match read {
            Ok(_) if body.len() as u64 > MAX_BODY => (413, String::new()),
            Ok(_) => take(&webhook, &mut inbox, &headers(&request), &body),
            Err(_) => (400, String::new()),
        };
        // A sender that has gone away meanwhile comes again.
        let _ = request.respond(Response::from_string(text).with_status_code(status));
    }
    Ok(())
}
