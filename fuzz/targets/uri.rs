//! A broker's URL is taken, or refused in one line; a password in it is never shown.

#![no_main]

use ackonce::broker::Endpoint;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|url: &str| {
    match Endpoint::parse(url) {
        Ok(endpoint) => {
            assert!(!endpoint.host().is_empty());
            let _ = (endpoint.to_string(), endpoint.warnings());
        }
        Err(why) => {
            let why = why.to_string();
            assert!(!why.trim().is_empty() && !why.contains(char::is_control), "{why:?}");
        }
    }
});
