//! See `webhook_outbox::wire::fuzz::response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| webhook_outbox::wire::fuzz::response(data));
