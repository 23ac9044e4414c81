//! See `webhook_outbox::rules::fuzz::texts`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| webhook_outbox::rules::fuzz::texts::run(data));
