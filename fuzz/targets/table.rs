//! Headers as they come from the wire, in any bytes: what is read can be sent, and comes back as it was.

#![no_main]

use ackonce::broker::convert::round_trip;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| round_trip(bytes));
