//! The settings `webhook.*`: every definition, and a parsed copy for those who act on them.
//!
//! All are SIGHUP and superuser-only: the leader could not see a session's SET, and a tenant must
//! never move the boundary. None is POSTMASTER, so that emit works in a server without preloading.
//! A text that cannot be parsed is refused when it is set; the old value stays in force.

use std::ffi::{CStr, CString, c_char, c_void};
use std::time::Duration;

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use pgrx::pg_sys;

use crate::rules::address::{Boundary, Nat64, parse_networks};
use crate::rules::forbidden::Forbidden;
use crate::rules::policy::{RetryPolicy, parse_schedule};
use crate::rules::proxy::{Proxy, parse_proxy};
use crate::rules::redaction::parse_names;
use crate::rules::target::{parse_domains, parse_ports};
use crate::wire::interfaces;

/// Name, description, variable, lowest and highest value, flags of a numeric setting.
type Number = (
    &'static CStr,
    &'static CStr,
    &'static GucSetting<i32>,
    i32,
    i32,
    GucFlags,
);
type Text = GucSetting<Option<CString>>;

static ENABLED: GucSetting<bool> = GucSetting::<bool>::new(true);
static DATABASES: Text = Text::new(Some(c"*"));
static NODE_NAME: Text = Text::new(Some(c""));
static MAX_IN_FLIGHT: GucSetting<i32> = GucSetting::<i32>::new(256);
static MAX_IN_FLIGHT_PER_PARTNER: GucSetting<i32> = GucSetting::<i32>::new(64);
static MAX_IN_FLIGHT_PER_ENDPOINT: GucSetting<i32> = GucSetting::<i32>::new(8);
static MAX_ENDPOINTS_PER_PARTNER: GucSetting<i32> = GucSetting::<i32>::new(50);
static CONNECT_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(5_000);
static REQUEST_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(20_000);
static MAX_PAYLOAD: GucSetting<i32> = GucSetting::<i32>::new(256);
static MAX_RESPONSE_EXCERPT: GucSetting<i32> = GucSetting::<i32>::new(4);
static RETRY_SCHEDULE: Text = Text::new(Some(c"5s,5m,30m,2h,5h,10h,14h,20h,24h"));
static RETRY_AFTER_MAX: GucSetting<i32> = GucSetting::<i32>::new(24 * 3600);
static CLIENT_ERROR_ATTEMPTS: GucSetting<i32> = GucSetting::<i32>::new(1);
static ALLOW_HTTP: GucSetting<bool> = GucSetting::<bool>::new(false);
static ALLOWED_PORTS: Text = Text::new(Some(c"443,8443"));
static ALLOWED_DOMAINS: Text = Text::new(Some(c""));
static DENIED_DOMAINS: Text = Text::new(Some(c""));
static ALLOW_NETWORKS: Text = Text::new(Some(c""));
static DENY_NETWORKS: Text = Text::new(Some(c""));
static NAT64: Text = Text::new(Some(c"deny"));
static PROXY: Text = Text::new(Some(c""));
static PROXY_CREDENTIALS_FILE: Text = Text::new(Some(c""));
static REDACT_KEYS: Text = Text::new(Some(c""));
static VALIDATION: Text = Text::new(Some(c"warn"));
static UNKNOWN_TYPES: Text = Text::new(Some(c"accept"));
static FORBIDDEN_KEYS: Text = Text::new(Some(c"password,passwd,secret,client_secret,token,access_token,refresh_token,api_key,authorization,credential,credentials,private_key,prompt,raw_prompt,internal_note,internal_notes"));
static FORBIDDEN_KEYS_MODE: Text = Text::new(Some(c"warn"));
static IDEMPOTENCY_CONFLICT: Text = Text::new(Some(c"warn"));
static CA_FILE: Text = Text::new(Some(c""));
static MASTER_KEY_FILE: Text = Text::new(Some(c""));
static ROTATION_OVERLAP: GucSetting<i32> = GucSetting::<i32>::new(24 * 3600);
static POLL_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(1_000);
static RESULT_FLUSH_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(20);
static FIRST_PASS_LIMIT: GucSetting<i32> = GucSetting::<i32>::new(2_000);
static SHUTDOWN_GRACE: GucSetting<i32> = GucSetting::<i32>::new(5_000);
static DISABLE_AFTER: GucSetting<i32> = GucSetting::<i32>::new(5 * 86_400);
static VERIFICATION_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(24 * 3600);
static IDEMPOTENCY_WINDOW: GucSetting<i32> = GucSetting::<i32>::new(24 * 3600);
static EVENT_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(90 * 86_400);
static DELIVERY_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(60 * 86_400);
static ATTEMPT_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(30 * 86_400);
static INBOX_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(120 * 86_400);
static AUDIT_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(365 * 86_400);
static ALERT_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(90 * 86_400);

/// Defines every setting and reserves the prefix, so that a misspelt name is reported.
pub fn define() {
    flag(
        c"webhook.enabled",
        c"Lets this server send webhooks; off = nothing is ever sent.",
        &ENABLED,
    );
    flag(
        c"webhook.allow_http",
        c"Accepts callback URLs without TLS; for tests on loopback.",
        &ALLOW_HTTP,
    );

    const MS: GucFlags = GucFlags::UNIT_MS;
    const S: GucFlags = GucFlags::UNIT_S;
    const KB: GucFlags = GucFlags::UNIT_KB;
    const NONE: GucFlags = GucFlags::empty();
    const DAY: i32 = 86_400;
    #[rustfmt::skip]
    let numbers: [Number; 24] = [
        (c"webhook.max_in_flight", c"Limits the requests under way per database.", &MAX_IN_FLIGHT, 1, 4096, NONE),
        (c"webhook.max_in_flight_per_partner", c"Limits the requests under way per partner.", &MAX_IN_FLIGHT_PER_PARTNER, 1, 4096, NONE),
        (c"webhook.max_in_flight_per_endpoint", c"Limits the requests under way per endpoint.", &MAX_IN_FLIGHT_PER_ENDPOINT, 1, 4096, NONE),
        (c"webhook.max_endpoints_per_partner", c"Limits the endpoints of a partner that are not deleted.", &MAX_ENDPOINTS_PER_PARTNER, 1, 100_000, NONE),
        (c"webhook.connect_timeout", c"Ends an attempt whose connection is not made in time.", &CONNECT_TIMEOUT, 10, 600_000, MS),
        (c"webhook.request_timeout", c"Ends an attempt whose whole exchange is not done in time.", &REQUEST_TIMEOUT, 10, 600_000, MS),
        (c"webhook.max_payload", c"Refuses larger payloads at emit.", &MAX_PAYLOAD, 1, 65_536, KB),
        (c"webhook.max_response_excerpt", c"Keeps at most this much of a response body.", &MAX_RESPONSE_EXCERPT, 0, 1_024, KB),
        (c"webhook.retry_after_max", c"Caps the wait that a receiver's Retry-After may ask for.", &RETRY_AFTER_MAX, 0, 30 * 86_400, S),
        (c"webhook.client_error_attempts", c"Attempts for 3xx and 4xx answers that have no rule of their own.", &CLIENT_ERROR_ATTEMPTS, 1, 50, NONE),
        (c"webhook.disable_after", c"Disables an endpoint that failed for this long without one success; its owner is warned at half.", &DISABLE_AFTER, 60, 365 * 86_400, S),
        (c"webhook.poll_interval", c"Looks for work at least this often.", &POLL_INTERVAL, 50, 60_000, MS),
        (c"webhook.result_flush_interval", c"Writes results at least this often while there are any.", &RESULT_FLUSH_INTERVAL, 1, 1_000, MS),
        (c"webhook.first_pass_limit", c"Parks what could not be sent within this time of being read.", &FIRST_PASS_LIMIT, 100, 60_000, MS),
        (c"webhook.shutdown_grace", c"Lets requests under way finish for this long at shutdown.", &SHUTDOWN_GRACE, 0, 60_000, MS),
        (c"webhook.verification_timeout", c"Closes an endpoint, or drops a new URL, whose control was not proven within this time.", &VERIFICATION_TIMEOUT, 1, 30 * 86_400, S),
        (c"webhook.idempotency_window", c"Remembers idempotency keys for this long.", &IDEMPOTENCY_WINDOW, 60, 30 * 86_400, S),
        (c"webhook.rotation_overlap", c"Lets a former signing key sign for this long beside the new one.", &ROTATION_OVERLAP, 0, 7 * 86_400, S),
        (c"webhook.event_retention", c"Keeps events and the feed for this long.", &EVENT_RETENTION, DAY, 3_660 * DAY, S),
        (c"webhook.delivery_retention", c"Keeps deliveries for this long, never longer than their events.", &DELIVERY_RETENTION, DAY, 3_660 * DAY, S),
        (c"webhook.attempt_retention", c"Keeps attempts and response excerpts for this long, never longer than their deliveries.", &ATTEMPT_RETENTION, DAY, 3_660 * DAY, S),
        (c"webhook.inbox_retention", c"Keeps what was received for this long.", &INBOX_RETENTION, DAY, 3_660 * DAY, S),
        (c"webhook.audit_retention", c"Keeps the audit log and the tombstones of erased events for this long.", &AUDIT_RETENTION, DAY, 3_660 * DAY, S),
        (c"webhook.alert_retention", c"Keeps alerts, finished requests and findings of reconciliation for this long.", &ALERT_RETENTION, DAY, 3_660 * DAY, S),
    ];
    for (name, short, setting, low, high, flags) in numbers {
        GucRegistry::define_int_guc(
            name,
            short,
            c"",
            setting,
            low,
            high,
            GucContext::Sighup,
            flags,
        );
    }

    #[rustfmt::skip]
    let texts: [(&'static CStr, &'static CStr, &'static Text, pg_sys::GucStringCheckHook); 18] = [
        (c"webhook.databases", c"Names the databases that may have a leader, comma separated; * = all.", &DATABASES, None),
        (c"webhook.node_name", c"Is folded into the origin, so that physical copies can be told apart.", &NODE_NAME, None),
        (c"webhook.retry_schedule", c"Waits between the attempts of a series, comma separated.", &RETRY_SCHEDULE, Some(check_schedule)),
        (c"webhook.allowed_ports", c"Ports that callback URLs may name; * = any but those that browsers block.", &ALLOWED_PORTS, Some(check_ports)),
        (c"webhook.allowed_domains", c"Domains that callback URLs may name, subdomains included; empty = all.", &ALLOWED_DOMAINS, Some(check_domains)),
        (c"webhook.denied_domains", c"Domains that callback URLs may not name, subdomains included; wins over allowed_domains.", &DENIED_DOMAINS, Some(check_domains)),
        (c"webhook.allow_networks", c"Networks that may be reached although they are blocked by default.", &ALLOW_NETWORKS, Some(check_networks)),
        (c"webhook.deny_networks", c"Networks that may never be reached; wins over allow_networks.", &DENY_NETWORKS, Some(check_networks)),
        (c"webhook.nat64", c"Says whether 64:ff9b::/96 is refused (deny) or judged by its IPv4 address (judge).", &NAT64, Some(check_nat64)),
        (c"webhook.proxy", c"HTTP proxy that every request goes through by CONNECT, http://host:port; empty = directly.", &PROXY, Some(check_proxy)),
        (c"webhook.proxy_credentials_file", c"File with the one line name:password that the proxy is told.", &PROXY_CREDENTIALS_FILE, None),
        (c"webhook.redact_keys", c"Further names whose values are hidden in what receivers answer, comma separated.", &REDACT_KEYS, Some(check_names)),
        (c"webhook.validation", c"Says what emit does with a payload that breaks its schema, where the schema does not say so itself: off, warn or enforce.", &VALIDATION, Some(check_validation)),
        (c"webhook.unknown_types", c"Says what emit does with event types that are not registered: accept, warn or refuse.", &UNKNOWN_TYPES, Some(check_unknown_types)),
        (c"webhook.forbidden_keys", c"Names that payloads must not have at any depth, comma separated; *name* forbids every name that holds it.", &FORBIDDEN_KEYS, Some(check_forbidden_keys)),
        (c"webhook.forbidden_keys_mode", c"Says what emit does with a payload that has a forbidden name: off, warn or refuse.", &FORBIDDEN_KEYS_MODE, Some(check_forbidden_keys_mode)),
        (c"webhook.idempotency_conflict", c"Says what emit does when a key comes back with other content: first (return the first id), warn or error.", &IDEMPOTENCY_CONFLICT, Some(check_conflict)),
        (c"webhook.ca_file", c"PEM file of certificate authorities that replaces those of the system.", &CA_FILE, None),
    ];
    for (name, short, setting, check) in texts {
        // SAFETY: the check hooks below are extern "C-unwind" functions that only read the proposed
        // value and never unwind.
        unsafe {
            GucRegistry::define_string_guc_with_hooks(
                name,
                short,
                c"",
                setting,
                GucContext::Sighup,
                GucFlags::empty(),
                check,
                None,
                None,
            );
        }
    }
    // SAFETY: the check hook is an extern "C-unwind" function that only reads the proposed value.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            c"webhook.master_key_file",
            c"File outside the database whose key encrypts signing keys and seal keys.",
            c"",
            &MASTER_KEY_FILE,
            GucContext::Sighup,
            GucFlags::SUPERUSER_ONLY,
            Some(check_absolute),
            None,
            None,
        );
    }
    // SAFETY: called once per process at load time with a static C string.
    #[cfg(not(any(feature = "pg13", feature = "pg14")))]
    unsafe {
        pg_sys::MarkGUCPrefixReserved(c"webhook".as_ptr())
    };
    // SAFETY: the same.
    #[cfg(any(feature = "pg13", feature = "pg14"))]
    unsafe {
        pg_sys::EmitWarningsOnPlaceholders(c"webhook".as_ptr())
    };
}

fn flag(name: &'static CStr, short: &'static CStr, setting: &'static GucSetting<bool>) {
    GucRegistry::define_bool_guc(
        name,
        short,
        c"",
        setting,
        GucContext::Sighup,
        GucFlags::empty(),
    );
}

/// A parsed copy of the settings, for those who act on them.
#[derive(Clone)]
pub struct Settings {
    pub enabled: bool,
    pub max_in_flight: usize,
    pub max_in_flight_per_partner: usize,
    pub max_in_flight_per_endpoint: usize,
    pub connect_timeout: Duration,
    pub request_timeout: Duration,
    pub max_response_excerpt: usize,
    pub redact_keys: Vec<String>,
    pub retry: RetryPolicy,
    pub disable_after: Duration,
    pub verification_timeout: Duration,
    pub boundary: Boundary,
    pub proxy: Option<Proxy>,
    pub proxy_credentials_file: String,
    pub ca_file: String,
    pub poll_interval: Duration,
    pub result_flush_interval: Duration,
    pub first_pass_limit: Duration,
    pub shutdown_grace: Duration,
    pub ages: Ages,
}

/// How long things are kept; nothing longer than what it refers to.
#[derive(Clone, Copy)]
pub struct Ages {
    pub event: Duration,
    pub delivery: Duration,
    pub attempt: Duration,
    pub audit: Duration,
    pub alert: Duration,
    pub inbox: Duration,
}

impl Ages {
    fn read() -> Ages {
        let event = seconds(&EVENT_RETENTION);
        let delivery = seconds(&DELIVERY_RETENTION).min(event);
        Ages {
            event,
            delivery,
            attempt: seconds(&ATTEMPT_RETENTION).min(delivery),
            audit: seconds(&AUDIT_RETENTION),
            alert: seconds(&ALERT_RETENTION),
            inbox: seconds(&INBOX_RETENTION),
        }
    }
}

impl Settings {
    /// Reads the values in force. Texts were checked when they were set; should one not parse all
    /// the same, the strictest reading of it is taken.
    pub fn read() -> Settings {
        Settings {
            enabled: ENABLED.get(),
            max_in_flight: count(&MAX_IN_FLIGHT),
            max_in_flight_per_partner: count(&MAX_IN_FLIGHT_PER_PARTNER),
            max_in_flight_per_endpoint: count(&MAX_IN_FLIGHT_PER_ENDPOINT),
            connect_timeout: milliseconds(&CONNECT_TIMEOUT),
            request_timeout: milliseconds(&REQUEST_TIMEOUT),
            max_response_excerpt: count(&MAX_RESPONSE_EXCERPT) * 1024,
            redact_keys: redact_keys(),
            retry: RetryPolicy {
                schedule: parse_schedule(&text(&RETRY_SCHEDULE)).unwrap_or_default(),
                client_error_attempts: CLIENT_ERROR_ATTEMPTS.get().unsigned_abs(),
                retry_after_max: seconds(&RETRY_AFTER_MAX),
            },
            disable_after: seconds(&DISABLE_AFTER),
            verification_timeout: seconds(&VERIFICATION_TIMEOUT),
            boundary: boundary(),
            proxy: parse_proxy(&text(&PROXY)).unwrap_or_default(),
            proxy_credentials_file: text(&PROXY_CREDENTIALS_FILE),
            ca_file: text(&CA_FILE),
            poll_interval: milliseconds(&POLL_INTERVAL),
            result_flush_interval: milliseconds(&RESULT_FLUSH_INTERVAL),
            first_pass_limit: milliseconds(&FIRST_PASS_LIMIT),
            shutdown_grace: milliseconds(&SHUTDOWN_GRACE),
            ages: Ages::read(),
        }
    }
}

/// The boundary that callback URLs and addresses are held against.
pub fn boundary() -> Boundary {
    Boundary {
        allow_http: ALLOW_HTTP.get(),
        ports: parse_ports(&text(&ALLOWED_PORTS)).unwrap_or_default(),
        allowed_domains: parse_domains(&text(&ALLOWED_DOMAINS)).unwrap_or_default(),
        allow_networks: parse_networks(&text(&ALLOW_NETWORKS)).unwrap_or_default(),
        deny_networks: parse_networks(&text(&DENY_NETWORKS)).unwrap_or_default(),
        denied_domains: parse_domains(&text(&DENIED_DOMAINS)).unwrap_or_default(),
        // When the system does not say, the resolver asks again in a few seconds.
        own_addresses: interfaces::addresses().unwrap_or_default(),
        // SAFETY: plain read of a setting that no reload changes.
        own_port: u16::try_from(unsafe { pg_sys::PostPortNumber }).unwrap_or(0),
        nat64: match text(&NAT64).as_str() {
            "judge" => Nat64::Judge,
            _ => Nat64::Deny,
        },
    }
}

/// The longest that a connection, or a look-up of a name, may take.
pub fn connect_timeout() -> Duration {
    milliseconds(&CONNECT_TIMEOUT)
}

/// Further names whose values are hidden in what receivers answer.
pub fn redact_keys() -> Vec<String> {
    parse_names(&text(&REDACT_KEYS)).unwrap_or_default()
}

/// Name of this node, folded into the origin.
pub fn node_name() -> String {
    text(&NODE_NAME)
}

/// Which databases may have a leader, as it is set.
pub fn databases() -> String {
    text(&DATABASES)
}

/// Whether a database may have a leader.
pub fn serves_database(name: &str) -> bool {
    text(&DATABASES)
        .split(',')
        .map(str::trim)
        .any(|entry| entry == "*" || entry == name)
}

/// File of the master keys; empty = keys are stored in clear.
pub fn master_key_file() -> String {
    text(&MASTER_KEY_FILE)
}

/// Largest payload that emit accepts, in bytes.
pub fn max_payload() -> usize {
    count(&MAX_PAYLOAD) * 1024
}

/// What follows from a rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Off,
    Warn,
    Refuse,
}

impl Mode {
    /// Reads a value of any of these settings; they were checked when they were set.
    pub fn of(text: &str) -> Mode {
        match text {
            "off" | "accept" | "first" => Mode::Off,
            "enforce" | "refuse" | "error" => Mode::Refuse,
            _ => Mode::Warn,
        }
    }
}

/// What follows from a payload that breaks its schema, where the schema does not say so.
pub fn validation() -> Mode {
    mode(&VALIDATION)
}

/// What follows from an event type that is not registered.
pub fn unknown_types() -> Mode {
    mode(&UNKNOWN_TYPES)
}

/// What follows from a forbidden name in a payload.
pub fn forbidden_keys_mode() -> Mode {
    mode(&FORBIDDEN_KEYS_MODE)
}

/// What follows from an idempotency key that comes back with other content.
pub fn idempotency_conflict() -> Mode {
    mode(&IDEMPOTENCY_CONFLICT)
}

/// The names that payloads must not have, as they are set.
pub fn forbidden_keys() -> Option<CString> {
    FORBIDDEN_KEYS.get()
}

fn mode(setting: &'static Text) -> Mode {
    setting
        .get()
        .map_or(Mode::Warn, |value| Mode::of(&value.to_string_lossy()))
}

/// For how long an idempotency key stands for its first event.
pub fn idempotency_window() -> Duration {
    seconds(&IDEMPOTENCY_WINDOW)
}

fn text(setting: &'static Text) -> String {
    setting
        .get()
        .map(|value| value.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn count(setting: &'static GucSetting<i32>) -> usize {
    usize::try_from(setting.get()).unwrap_or(0)
}

fn milliseconds(setting: &'static GucSetting<i32>) -> Duration {
    Duration::from_millis(u64::from(setting.get().unsigned_abs()))
}

fn seconds(setting: &'static GucSetting<i32>) -> Duration {
    Duration::from_secs(u64::from(setting.get().unsigned_abs()))
}

macro_rules! check_hook {
    ($name:ident, $parse:expr) => {
        /// Refuses a text that does not parse; the detail says why.
        unsafe extern "C-unwind" fn $name(
            new: *mut *mut c_char,
            _extra: *mut *mut c_void,
            _source: pg_sys::GucSource::Type,
        ) -> bool {
            // SAFETY: PostgreSQL passes a valid pointer to a C string or to NULL.
            let value = unsafe {
                if new.is_null() || (*new).is_null() {
                    String::new()
                } else {
                    CStr::from_ptr(*new).to_string_lossy().into_owned()
                }
            };
            match $parse(&value) {
                Ok(_) => true,
                Err(why) => {
                    refuse(&why);
                    false
                }
            }
        }
    };
}

check_hook!(check_schedule, |text: &str| parse_schedule(text));
check_hook!(check_ports, |text: &str| parse_ports(text));
check_hook!(check_domains, |text: &str| parse_domains(text));
check_hook!(check_names, |text: &str| parse_names(text));
check_hook!(check_networks, |text: &str| parse_networks(text));
check_hook!(check_proxy_text, |text: &str| parse_proxy(text));
check_hook!(check_absolute, |text: &str| {
    if text.is_empty() || text.starts_with('/') {
        Ok(())
    } else {
        Err(String::from("The path is absolute."))
    }
});
check_hook!(check_nat64, |text: &str| match text {
    "deny" | "judge" => Ok(()),
    _ => Err(String::from("The value is \"deny\" or \"judge\".")),
});

check_hook!(check_validation, |text: &str| one_of(
    text,
    &["off", "warn", "enforce"]
));
check_hook!(check_unknown_types, |text: &str| one_of(
    text,
    &["accept", "warn", "refuse"]
));
check_hook!(check_forbidden_keys_mode, |text: &str| one_of(
    text,
    &["off", "warn", "refuse"]
));
check_hook!(check_conflict, |text: &str| one_of(
    text,
    &["first", "warn", "error"]
));
check_hook!(check_forbidden_keys, |text: &str| Forbidden::parse(text));

fn one_of(text: &str, values: &[&str]) -> Result<(), String> {
    if values.contains(&text) {
        return Ok(());
    }
    Err(format!("The value is one of {}.", values.join(", ")))
}

/// Like the other check hooks, but the value, which PostgreSQL would show, may hold a password.
unsafe extern "C-unwind" fn check_proxy(
    new: *mut *mut c_char,
    extra: *mut *mut c_void,
    source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: the arguments of this hook are those of any.
    let good = unsafe { check_proxy_text(new, extra, source) };
    if !good {
        let message = c"invalid value for parameter \"webhook.proxy\"";
        // SAFETY: pstrdup copies the text into memory that PostgreSQL owns, as the GUC code expects.
        unsafe { pg_sys::GUC_check_errmsg_string = pg_sys::pstrdup(message.as_ptr()) };
    }
    good
}

/// Hands the reason of a refusal to PostgreSQL, which shows it as the detail.
fn refuse(why: &str) {
    let Ok(why) = CString::new(why) else { return };
    // SAFETY: pstrdup copies the text into memory that PostgreSQL owns, as the GUC code expects.
    unsafe { pg_sys::GUC_check_errdetail_string = pg_sys::pstrdup(why.as_ptr()) };
}
