//! No file, however odd, makes the configuration panic; each of its problems is one line that says something.

#![no_main]

use ackonce::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = std::env::temp_dir().join(format!("ackonce-fuzz-{}.toml", std::process::id()));
    std::fs::write(&path, bytes).expect("a file in the temporary folder");
    let file = [path.to_string_lossy().into_owned()];
    if let Err(problems) = Config::load([("config", &file[..])], []) {
        assert!(!problems.is_empty(), "refused without a reason");
        for problem in problems.iter().map(ToString::to_string) {
            assert!(!problem.trim().is_empty() && !problem.contains(char::is_control), "{problem:?}");
        }
    }
});
