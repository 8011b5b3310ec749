//! Goal: no file, flag or variable, however odd, makes the configuration panic; each of its problems is a sentence.

use ackonce::config::{Config, Problems};
use proptest::prelude::*;

use crate::setup::Setup;

/// One line that a terminal shows as it is, and that somebody reads to its end.
fn check(loaded: &Result<Config, Problems>) -> Result<(), TestCaseError> {
    let Err(problems) = loaded else { return Ok(()) };
    prop_assert!(!problems.is_empty(), "refused without a reason");
    for problem in problems.iter().map(ToString::to_string) {
        prop_assert!(!problem.trim().is_empty(), "{problem:?} says nothing");
        prop_assert!(!problem.contains(char::is_control), "{problem:?} is not one line");
        prop_assert!(
            problem.chars().count() <= 1000,
            "{} characters: {problem:.100}…",
            problem.chars().count()
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_text_in_the_file_makes_it_panic(
        lines in proptest::collection::vec(
            r#"(\[broker\]|\[\[worker\]\]|(queue|url|key|exec|retry|timeout|log|é) = ([0-9]{1,20}|"[^"\\\r\n]{0,9}"|\[\]|\{\}|true|-?inf|["x"]|\PC{0,9})|\PC{0,20})"#,
            0..12,
        )
    ) {
        check(&Setup::new().file(&lines.join("\n")).load())?;
    }

    #[test]
    fn no_bytes_as_the_file_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&Setup::new().bytes(&bytes).load())?;
    }

    /// Each key that there is with a value of each type, at each place where keys are.
    #[test]
    fn no_value_of_the_file_makes_it_panic(
        settings in prop::collection::vec((0..TABLES.len(), 0..KEYS.len(), any_value()), 1..8),
    ) {
        let mut tables = [const { String::new() }; TABLES.len()];
        for (table, key, value) in settings {
            tables[table].push_str(&format!("{} = {value}\n", KEYS[key].replace('-', "_")));
        }
        let text: String = TABLES.iter().zip(&tables).map(|(name, table)| format!("{name}\n{table}")).collect();
        check(&Setup::new().file(&text).load())?;
    }

    #[test]
    fn no_time_makes_it_panic(time in "[-+]?[0-9]{0,22}(\\.[0-9]{0,3})?(ns|us|ms|s|sec|m|min|h|d|w|month|y|é| |_){0,3}") {
        for key in ["timeout", "retention", "drain-timeout", "max-interval", "initial-interval", "heartbeat", "kill-grace"] {
            let flag = format!("--{key}={time}");
            if let Some(loaded) = Setup::new().args([flag.as_str(), "--queue=q", "--log"]).try_load() {
                check(&loaded)?;
            }
        }
    }

    #[test]
    fn no_value_makes_it_panic(key in 0..KEYS.len(), value in "\\PC*|[0-9]{1,30}[a-z]{0,3}|[-+0-9.e]{1,9}") {
        let value = value.replace('\0', "");
        let flag = format!("--{}={value}", KEYS[key]);
        if let Some(loaded) = Setup::new().args([flag.as_str(), "--queue=q"]).try_load() {
            check(&loaded)?;
        }
        let name = format!("ACKONCE_{}", KEYS[key].replace('-', "_").to_uppercase());
        check(&Setup::new().args(["--log"]).env(&name, &value).load())?;
    }
}

const TABLES: [&str; 5] = ["", "[broker]", "[ledger]", "[[worker]]", "[worker.retry]"];

/// A TOML value of any type, written down.
fn any_value() -> impl Strategy<Value = String> {
    let text = |text: &str| {
        let escape = |c: char| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        };
        format!("\"{}\"", text.chars().map(escape).collect::<String>())
    };
    let leaf = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| format!("{number:?}").to_lowercase()),
        any::<bool>().prop_map(|bool| bool.to_string()),
        ".{0,30}".prop_map(move |any| text(&any)),
        r"(header|property|json|body|message-id|sqlite|amqp|https?):.{0,12}".prop_map(move |any| text(&any)),
        Just("1979-05-27T07:32:00Z".to_owned()),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(", "))),
            ("[a-z_]{1,12}", inner).prop_map(|(key, value)| format!("{{ {key} = {value} }}")),
        ]
    })
}

const KEYS: [&str; 31] = [
    "listen",
    "listen-token-file",
    "listen-host",
    "queue",
    "http",
    "pipe",
    "sql",
    "http-headers",
    "retry",
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
