//! See `webhook_outbox::rules::fuzz::received`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| webhook_outbox::rules::fuzz::received::run(data));
