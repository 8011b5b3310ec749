//! Whatever a file holds, its lines are all of it but their ends, which are LF or CR LF.

#![no_main]

use ackonce::cli::publish::lines_of;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let lines = lines_of(bytes).expect("nothing fails in memory");
    let mut rest = bytes;
    for line in &lines {
        rest = rest.strip_prefix(line.as_slice()).expect("in order, byte for byte");
        assert!(!line.contains(&b'\n'), "two lines in one");
        let end = [&b"\r\n"[..], b"\n"].into_iter().find(|end| rest.starts_with(end));
        rest = &rest[end.map_or(0, <[u8]>::len)..];
        assert!(end.is_some() || rest.is_empty(), "a line ends without an end");
    }
    assert!(rest.is_empty(), "lost: {rest:?}");
});
