//! Goal: no file, flag or variable, however odd, makes the configuration panic.

use proptest::prelude::*;

use crate::setup::Setup;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_text_in_the_file_makes_it_panic(
        lines in proptest::collection::vec(
            r#"(\[broker\]|\[\[worker\]\]|(queue|url|key|exec|retry|timeout|log|é) = ([0-9]{1,20}|"[^"\\\r\n]{0,9}"|\[\]|\{\}|true|-?inf|["x"]|\PC{0,9})|\PC{0,20})"#,
            0..12,
        )
    ) {
        let _ = Setup::new().file(&lines.join("\n")).load();
    }

    #[test]
    fn no_value_makes_it_panic(key in 0..KEYS.len(), value in "\\PC*|[0-9]{1,30}[a-z]{0,3}|[-+0-9.e]{1,9}") {
        let value = value.replace('\0', "");
        let flag = format!("--{}={value}", KEYS[key]);
        let _ = Setup::new().args([flag.as_str(), "--queue=q"]).try_load();
        let name = format!("ACKONCE_{}", KEYS[key].replace('-', "_").to_uppercase());
        let _ = Setup::new().args(["--log"]).env(&name, &value).load();
    }
}

const KEYS: [&str; 22] = [
    "url",
    "password-file",
    "heartbeat",
    "ledger",
    "retention",
    "drain-timeout",
    "exec",
    "key",
    "scope",
    "on-missing-key",
    "timeout",
    "kill-grace",
    "concurrency",
    "prefetch",
    "dead-letter",
    "declare",
    "queue-type",
    "max-attempts",
    "initial-interval",
    "multiplier",
    "max-interval",
    "jitter",
];
