//! However a child's answers are cut into reads, and whatever it writes: the same replies, and never a panic.

#![no_main]

use ackonce::handler::pipe::{Framing, read_replies};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, u8, Vec<u8>)| {
    let (lines, step, bytes) = input;
    let framing = if lines { Framing::Lines } else { Framing::LengthPrefixed };
    let whole = read_replies(framing, &bytes, bytes.len().max(1));
    let pieces = read_replies(framing, &bytes, usize::from(step).max(1));
    assert_eq!(whole, pieces, "it depends on the reads");
});
