//! See `webhook_outbox::rules::fuzz::secrets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| webhook_outbox::rules::fuzz::secrets::run(data));
