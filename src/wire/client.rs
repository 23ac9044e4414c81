//! One exchange: a POST to a target, an `Outcome` back, all inside one deadline. It does
//! not follow redirects, does not judge a status and never fails: what happens is data.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use ureq::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ureq::http::{self, HeaderMap, HeaderValue, Method, Response, Uri, Version};
use ureq::{Agent, Body, Error};

use crate::rules::address::Boundary;
use crate::rules::delivery::{Answer, Outcome, Phase};
use crate::rules::proxy::Proxy;
use crate::rules::target::Target;
use crate::wire::agent::agent;
use crate::wire::classify;
use crate::wire::exchange::{self, Handed};
use crate::wire::lookup::Lookups;
use crate::wire::pool::Pool;
use crate::wire::request::{self, Request, header_value};
use crate::wire::resolver::{GuardedResolver, KEEP};
use crate::wire::tls;

/// A response body is read up to here to keep the connection; a longer one costs the connection.
const MAX_DRAIN: u64 = 64 * 1024;
/// ureq takes no time at all for no limit.
const LEAST: Duration = Duration::from_millis(1);
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
    /// The pool and the resolver of the first agent, for exchanges that go on without ureq. One that takes its place
    /// shares them: their locks are this room's own.
    pool: Arc<Pool>,
    resolver: Arc<GuardedResolver>,
}

/// An exchange that began without ureq, and has come to where it needs it.
pub(super) struct Begun {
    pub request: Request,
    pub key_ids: Vec<i64>,
    /// By the wall clock, in microseconds.
    pub now: i64,
    pub started: Instant,
    /// The connection that it is on; none = the peer had closed it, so that it begins again on a new one.
    pub handed: Option<Box<Handed>>,
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
        let pool = Arc::new(Pool::new(settings.max_idle, settings.max_idle_per_host));
        let resolver = Arc::new(GuardedResolver::with_lookups(
            settings.boundary.clone(),
            settings.connect_timeout,
            Arc::clone(&lookups),
            KEEP,
        ));
        let agent = agent(&settings, &tls, &lookups, &pool, &resolver);
        Ok(Client {
            settings,
            user_agent,
            tls,
            lookups,
            agent: RwLock::new(agent),
            pool,
            resolver,
        })
    }

    /// A client whose connections come from elsewhere.
    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn over(
        settings: ClientSettings,
        connector: impl ureq::unversioned::transport::Connector,
    ) -> Result<Client, String> {
        let client = Client::new(settings)?;
        let resolver = crate::wire::resolver::Shared(Arc::clone(&client.resolver));
        let config = crate::wire::agent::config(&client.settings);
        let agent = Agent::with_parts(config, connector, resolver);
        Ok(Client {
            agent: RwLock::new(agent),
            ..client
        })
    }

    /// What an exchange may take by the settings.
    fn bounds(&self) -> Bounds {
        Bounds {
            time: self.settings.request_timeout,
            excerpt: self.settings.max_excerpt,
        }
    }

    pub(super) fn settings(&self) -> &ClientSettings {
        &self.settings
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(super) fn resolver(&self) -> &GuardedResolver {
        &self.resolver
    }

    /// What goes out for a target with these headers and a body of this length; see `post`.
    pub(super) fn request(
        &self,
        uri: Uri,
        target: &Target,
        headers: &[(String, String)],
        length: usize,
    ) -> Result<Request, &'static str> {
        Request::new(uri, target, &self.user_agent, headers, length)
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
        let bounds = self.bounds();
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
        let request =
            request::uri(target).and_then(|uri| self.request(uri, target, headers, body.len()));
        match request {
            Ok(request) => self.exchange(&request, body, now, started, bounds, First::Any),
            Err(detail) => {
                let none = ReadBody::default();
                (none.outcome(classify::internal(detail), now, started), None)
            }
        }
    }

    /// Goes on with an exchange that began elsewhere.
    pub(super) fn go_on(&self, begun: Begun, body: &[u8]) -> Outcome {
        let bounds = self.bounds();
        let first = begun.handed.map_or(First::New, First::Handed);
        let (outcome, _) = self.exchange(
            &begun.request,
            body,
            begun.now,
            begun.started,
            &bounds,
            first,
        );
        Outcome {
            key_ids: begun.key_ids,
            ..outcome
        }
    }

    /// One exchange, whatever happens in it.
    fn exchange(
        &self,
        request: &Request,
        body: &[u8],
        now: i64,
        started: Instant,
        bounds: &Bounds,
        first: First,
    ) -> (Outcome, Option<String>) {
        let mut read = ReadBody::default();
        let exchange =
            AssertUnwindSafe(|| self.converse(request, body, started, bounds, first, &mut read));
        let answer = catch_unwind(exchange).unwrap_or_else(|_| {
            let fresh = agent(
                &self.settings,
                &self.tls,
                &self.lookups,
                &self.pool,
                &self.resolver,
            );
            *self.agent.write().unwrap_or_else(PoisonError::into_inner) = fresh;
            classify::internal("HTTP client panicked")
        });
        let kind = read.kind.take();
        (read.outcome(answer, now, started), kind)
    }

    fn converse(
        &self,
        request: &Request,
        body: &[u8],
        started: Instant,
        bounds: &Bounds,
        first: First,
        read: &mut ReadBody,
    ) -> Answer {
        let whole = bounds.time.min(self.settings.request_timeout);
        let left = whole.saturating_sub(started.elapsed());
        let mut sent = match first {
            First::Any => self.send(request, body, whole, First::Any),
            // By the time that is left, however little.
            other => self.send(request, body, left.max(LEAST), other),
        };
        // A receiver may close an idle connection in the very moment we reuse it: the pool probes it
        // before, but that is no promise, and ureq does not send again. When a reused connection dies before the
        // first byte of a response, the request is sent once more on a new one. That is safe: an
        // event may arrive twice anyway, and both carry the same event and attempt.
        if let Err(error) = &sent {
            let progress = exchange::progress();
            let left = whole.saturating_sub(started.elapsed());
            let stale = progress.reused && progress.heard == 0 && classify::is_closed(error);
            if stale && !left.is_zero() {
                sent = self.send(request, body, left, First::New);
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
        request: &Request,
        body: &[u8],
        left: Duration,
        first: First,
    ) -> Result<Response<Body>, Error> {
        exchange::begin(matches!(first, First::New));
        if let First::Handed(handed) = first {
            exchange::hand(*handed);
        }
        let uri = request.uri.clone();
        let headers = request.headers.clone();
        let mut request = http::Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = headers;
        let agent = self
            .agent
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if left < self.settings.request_timeout {
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

/// The connection that an exchange begins on.
enum First {
    /// One that was kept, or a new one.
    Any,
    /// A new one.
    New,
    /// This one, on which the request went out already.
    Handed(Box<Handed>),
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
    fn outcome(self, answer: Answer, now: i64, started: Instant) -> Outcome {
        Outcome {
            started_at: now,
            latency_us: since(started),
            answer,
            excerpt: self.excerpt,
            response_bytes: self.bytes,
            key_ids: Vec::new(),
        }
    }

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

/// Microseconds since then.
pub(super) fn since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
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
