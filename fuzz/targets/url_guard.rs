//! See `webhook_outbox::wire::fuzz::url_guard`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| webhook_outbox::wire::fuzz::url_guard(data));
