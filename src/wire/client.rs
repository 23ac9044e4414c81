//! One exchange: a POST to a target, an `Outcome` back, all inside one deadline. Every default of
//! ureq is set here by hand, so that neither the environment nor a new release changes one. It does
//! not follow redirects, does not judge a status and never fails: what happens is data.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use ureq::config::{AutoHeaderValue, Config, IpFamily, RedirectAuthHeaders};
use ureq::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, RETRY_AFTER, USER_AGENT};
use ureq::http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, Version};
use ureq::{Agent, Body, Error};

use crate::rules::address::Boundary;
use crate::rules::delivery::{Answer, Outcome, Phase};
use crate::rules::proxy::Proxy;
use crate::rules::target::Target;
use crate::wire::classify;
use crate::wire::dial::Dialer;
use crate::wire::exchange;
use crate::wire::lookup::Lookups;
use crate::wire::pool::Pool;
use crate::wire::proxy::Tunnel;
use crate::wire::resolver::{GuardedResolver, KEEP};
use crate::wire::socket::{INPUT_BUFFER, OUTPUT_BUFFER};
use crate::wire::tls;

/// The largest response head.
const MAX_HEAD: usize = 16 * 1024;
/// A response body is read up to here to keep the connection; a longer one costs the connection.
const MAX_DRAIN: u64 = 64 * 1024;
/// What is kept of Retry-After: a few lines of a sane length.
const MAX_RETRY_AFTER_LINES: usize = 4;
const MAX_RETRY_AFTER_BYTES: usize = 128;

/// What a client is made of; a change of any of it makes a new client.
pub struct ClientSettings {
    /// Which addresses may be reached.
    pub boundary: Boundary,
    /// The proxy that every request goes through; none = directly.
    pub proxy: Option<Proxy>,
    /// The time for connecting, TLS included; also the most a name look-up may take.
    pub connect_timeout: Duration,
    /// The time for the whole exchange, from the look-up to the end of the response body.
    pub request_timeout: Duration,
    /// How many bytes of a response body are kept.
    pub max_excerpt: usize,
    /// The User-Agent header.
    pub user_agent: String,
    /// Trusted certificates in PEM; when given, they replace those of the system.
    pub ca_pem: Option<Vec<u8>>,
    /// Idle connections kept per scheme, host and port.
    pub max_idle_per_host: usize,
    /// Idle connections kept altogether.
    pub max_idle: usize,
}

/// What one exchange may take, where it is not what the settings say.
pub(super) struct Bounds {
    /// The time for the whole exchange, at most that of the settings.
    pub time: Duration,
    /// How many bytes of the response body are kept.
    pub excerpt: usize,
}

/// Sends requests; shared by all threads. One TLS configuration, one pool.
pub struct Client {
    settings: ClientSettings,
    user_agent: HeaderValue,
    tls: Arc<ClientConfig>,
    lookups: Arc<Lookups>,
    /// Replaced after a panic inside ureq, which may have left the lock of its pool poisoned: then
    /// every later request would panic, too.
    agent: RwLock<Agent>,
}

impl Client {
    /// A client for these settings. Fails when the User-Agent or the certificates cannot be used.
    pub fn new(settings: ClientSettings) -> Result<Client, String> {
        Client::with_lookups(settings, Lookups::of_the_system())
    }

    pub(super) fn with_lookups(
        settings: ClientSettings,
        lookups: Arc<Lookups>,
    ) -> Result<Client, String> {
        let user_agent = header_value(&settings.user_agent).ok_or_else(|| {
            "user agent contains a character that a header cannot hold".to_owned()
        })?;
        let tls = tls::config(settings.ca_pem.as_deref())?;
        let agent = agent(&settings, &tls, &lookups);
        Ok(Client {
            settings,
            user_agent,
            tls,
            lookups,
            agent: RwLock::new(agent),
        })
    }

    /// A client whose connections come from elsewhere.
    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn over(
        settings: ClientSettings,
        connector: impl ureq::unversioned::transport::Connector,
    ) -> Result<Client, String> {
        let client = Client::new(settings)?;
        let resolver = GuardedResolver::with_lookups(
            client.settings.boundary.clone(),
            client.settings.connect_timeout,
            Arc::clone(&client.lookups),
            KEEP,
        );
        let agent = Agent::with_parts(config(&client.settings), connector, resolver);
        Ok(Client {
            agent: RwLock::new(agent),
            ..client
        })
    }

    /// Sends one POST and waits for its outcome. `headers` come after Host, Content-Type (application/json
    /// unless they hold one), User-Agent and Content-Length; `now` is the wall clock in microseconds.
    /// The outcome's `key_ids` are empty: who signed knows them.
    pub fn post(
        &self,
        target: &Target,
        headers: &[(String, String)],
        body: &[u8],
        now: i64,
    ) -> Outcome {
        let bounds = Bounds {
            time: self.settings.request_timeout,
            excerpt: self.settings.max_excerpt,
        };
        self.post_within(target, headers, body, now, &bounds).0
    }

    /// The same within other bounds; says the content type of the response, too.
    pub(super) fn post_within(
        &self,
        target: &Target,
        headers: &[(String, String)],
        body: &[u8],
        now: i64,
        bounds: &Bounds,
    ) -> (Outcome, Option<String>) {
        let started = Instant::now();
        let mut read = ReadBody::default();
        let answer = match self.request(target, headers, body) {
            Ok((uri, headers)) => {
                let exchange = AssertUnwindSafe(|| {
                    self.exchange(&uri, &headers, body, started, bounds, &mut read)
                });
                catch_unwind(exchange).unwrap_or_else(|_| {
                    let fresh = agent(&self.settings, &self.tls, &self.lookups);
                    *self.agent.write().unwrap_or_else(PoisonError::into_inner) = fresh;
                    classify::internal("HTTP client panicked")
                })
            }
            Err(detail) => classify::internal(detail),
        };
        let outcome = Outcome {
            started_at: now,
            latency_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
            answer,
            excerpt: read.excerpt,
            response_bytes: read.bytes,
            key_ids: Vec::new(),
        };
        (outcome, read.kind)
    }

    /// Checks and puts together what is sent. A header map iterates in the order of insertion, so
    /// Host goes out first; ureq adds nothing, for everything it would add is here.
    fn request(
        &self,
        target: &Target,
        headers: &[(String, String)],
        body: &[u8],
    ) -> Result<(Uri, HeaderMap), &'static str> {
        let uri = Uri::try_from(target.url()).map_err(|_| "URL cannot be sent")?;
        let host = header_value(&target.authority()).ok_or("host cannot be sent")?;
        let mut map = HeaderMap::with_capacity(headers.len() + 4);
        map.insert(HOST, host);
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        map.insert(USER_AGENT, self.user_agent.clone());
        map.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| "header name contains a character that it cannot hold")?;
            let value = header_value(value)
                .ok_or("header value contains a character that it cannot hold")?;
            if is_reserved(&name) || (name != CONTENT_TYPE && map.contains_key(&name)) {
                return Err("header is set twice");
            }
            map.insert(name, value);
        }
        Ok((uri, map))
    }

    fn exchange(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        body: &[u8],
        started: Instant,
        bounds: &Bounds,
        read: &mut ReadBody,
    ) -> Answer {
        let whole = bounds.time.min(self.settings.request_timeout);
        let mut sent = self.send(uri, headers, body, whole, false);
        // A receiver may close an idle connection in the very moment we reuse it: the pool probes it
        // before, but that is no promise, and ureq does not send again. When a reused connection dies before the
        // first byte of a response, the request is sent once more on a new one. That is safe: an
        // event may arrive twice anyway, and both carry the same event and attempt.
        if let Err(error) = &sent {
            let progress = exchange::progress();
            let left = whole.saturating_sub(started.elapsed());
            let stale = progress.reused && progress.heard == 0 && classify::is_closed(error);
            if stale && !left.is_zero() {
                sent = self.send(uri, headers, body, left, true);
            }
        }
        let response = match sent {
            Ok(response) => response,
            Err(error) => return classify::failure(&error, exchange::progress()),
        };
        let answer = Answer::Status {
            code: response.status().as_u16(),
            retry_after: retry_after(response.headers()),
        };
        read.kind = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .map(str::to_owned);
        match read.drain(response.into_body(), bounds.excerpt) {
            Ok(()) => answer,
            Err(error) => classify::failure(&error, exchange::progress()),
        }
    }

    fn send(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        body: &[u8],
        left: Duration,
        only_new: bool,
    ) -> Result<Response<Body>, Error> {
        exchange::begin(only_new);
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.clone();
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = headers.clone();
        let agent = self
            .agent
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if only_new || left < self.settings.request_timeout {
            // A second try has what the first one left of the time; some have less of it from the start.
            request = agent
                .configure_request(request)
                .timeout_global(Some(left))
                .build();
        }
        let response = agent.run(request)?;
        exchange::reach(Phase::Body);
        Ok(response)
    }
}

/// What was read of a response body.
#[derive(Default)]
struct ReadBody {
    excerpt: Vec<u8>,
    bytes: u64,
    /// Its content type.
    kind: Option<String>,
}

impl ReadBody {
    /// Reads to the end, or to the point where the connection is not worth more reading.
    fn drain(&mut self, body: Body, max_excerpt: usize) -> Result<(), Error> {
        let mut reader = body.into_reader();
        // Nearly all answers are short; a long one is read in more pieces.
        let mut buffer = [0; 2 * 1024];
        let enough = MAX_DRAIN.max(u64::try_from(max_excerpt).unwrap_or(u64::MAX));
        while self.bytes < enough {
            let amount = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(amount) => amount,
                Err(error) => return Err(Error::from(error)),
            };
            let chunk = buffer.get(..amount).unwrap_or_default();
            let room = max_excerpt.saturating_sub(self.excerpt.len());
            self.excerpt
                .extend_from_slice(chunk.get(..room).unwrap_or(chunk));
            self.bytes = self.bytes.saturating_add(amount as u64);
        }
        Ok(())
    }
}

fn agent(settings: &ClientSettings, tls: &Arc<ClientConfig>, lookups: &Arc<Lookups>) -> Agent {
    let resolver = GuardedResolver::with_lookups(
        settings.boundary.clone(),
        settings.connect_timeout,
        Arc::clone(lookups),
        KEEP,
    );
    let dialer = Dialer {
        tls: Arc::clone(tls),
        tunnel: settings
            .proxy
            .clone()
            .map(|proxy| Tunnel::new(proxy, Arc::clone(lookups))),
        pool: Arc::new(Pool::new(settings.max_idle, settings.max_idle_per_host)),
    };
    Agent::with_parts(config(settings), dialer, resolver)
}

/// Every setting of ureq, by hand. The one left alone is `tls_config`: `Dialer` does TLS itself.
fn config(settings: &ClientSettings) -> Config {
    Config::builder()
        // ureq's default is the environment's HTTP_PROXY and friends, and with a proxy it never asks
        // the resolver: the boundary would be gone. The operator's proxy is the dialer's affair.
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .redirect_auth_headers(RedirectAuthHeaders::Never)
        .save_redirect_history(false)
        .http_status_as_error(false)
        // The boundary has decided this when it made the target.
        .https_only(false)
        .ip_family(IpFamily::Any)
        .no_delay(true)
        .user_agent(AutoHeaderValue::None)
        .accept(AutoHeaderValue::None)
        .accept_encoding(AutoHeaderValue::None)
        .allow_non_standard_methods(false)
        .max_response_header_size(MAX_HEAD)
        .input_buffer_size(INPUT_BUFFER)
        .output_buffer_size(OUTPUT_BUFFER)
        // Connections are kept by `Pool`.
        .max_idle_connections(0)
        .max_idle_connections_per_host(0)
        .max_idle_age(Duration::ZERO)
        .timeout_global(Some(settings.request_timeout))
        .timeout_per_call(None)
        .timeout_resolve(None)
        .timeout_connect(Some(settings.connect_timeout))
        .timeout_send_request(None)
        .timeout_await_100(None)
        .timeout_send_body(None)
        .timeout_recv_response(None)
        .timeout_recv_body(None)
        .timeout_per_read(None)
        .timeout_per_write(None)
        .build()
}

/// A header value of visible ASCII, spaces and tabs: no CR, LF or NUL that could start another
/// header, and nothing that receivers read in different ways.
fn header_value(text: &str) -> Option<HeaderValue> {
    text.is_ascii()
        .then(|| HeaderValue::from_str(text).ok())
        .flatten()
}

/// Headers that only this file sets.
fn is_reserved(name: &HeaderName) -> bool {
    use ureq::http::header::{CONNECTION, EXPECT, TRANSFER_ENCODING};
    [
        HOST,
        USER_AGENT,
        CONTENT_LENGTH,
        TRANSFER_ENCODING,
        CONNECTION,
        EXPECT,
    ]
    .contains(name)
}

fn retry_after(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(RETRY_AFTER)
        .iter()
        .take(MAX_RETRY_AFTER_LINES)
        .map(|line| {
            let line = line.as_bytes();
            let line = line.get(..MAX_RETRY_AFTER_BYTES).unwrap_or(line);
            String::from_utf8_lossy(line).into_owned()
        })
        .collect()
}
