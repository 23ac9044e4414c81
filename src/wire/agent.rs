//! ureq as this room uses it: every default is set here by hand, so that neither the environment nor a new release
//! changes one.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use ureq::Agent;
use ureq::config::{AutoHeaderValue, Config, IpFamily, RedirectAuthHeaders};

use crate::wire::client::ClientSettings;
use crate::wire::dial::Dialer;
use crate::wire::lookup::Lookups;
use crate::wire::pool::Pool;
use crate::wire::proxy::Tunnel;
use crate::wire::resolver::{GuardedResolver, Shared};
use crate::wire::socket::{INPUT_BUFFER, OUTPUT_BUFFER};

/// The largest response head.
const MAX_HEAD: usize = 16 * 1024;

/// An agent over this pool and this resolver.
pub(super) fn agent(
    settings: &ClientSettings,
    tls: &Arc<ClientConfig>,
    lookups: &Arc<Lookups>,
    pool: &Arc<Pool>,
    resolver: &Arc<GuardedResolver>,
) -> Agent {
    let dialer = Dialer {
        tls: Arc::clone(tls),
        tunnel: settings
            .proxy
            .clone()
            .map(|proxy| Tunnel::new(proxy, Arc::clone(lookups))),
        pool: Arc::clone(pool),
    };
    Agent::with_parts(config(settings), dialer, Shared(Arc::clone(resolver)))
}

/// Every setting of ureq, by hand. The one left alone is `tls_config`: `Dialer` does TLS itself.
pub(super) fn config(settings: &ClientSettings) -> Config {
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
