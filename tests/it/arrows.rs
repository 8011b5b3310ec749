//! The house rules that a compiler does not check: who may name whom.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Each part of the crate, and the parts it may name.
const MAY_NAME: [(&str, &[&str]); 13] = [
    ("message", &[]),
    // Any part may mark a moment at which tests make it die.
    ("crash_point", &[]),
    ("secret_file", &[]),
    ("key", &["message"]),
    ("handler", &["key", "message", "ledger", "secret_file"]),
    ("ledger", &["key", "message"]),
    ("broker", &["message"]),
    ("worker", &["broker", "handler", "key", "ledger", "message"]),
    ("listen", &["broker", "ledger", "secret_file", "worker"]),
    ("notify", &["worker"]),
    ("telemetry", &["handler", "key", "ledger", "message", "worker"]),
    ("config", &["broker", "handler", "key", "worker"]),
    (
        "cli",
        &[
            "broker",
            "config",
            "handler",
            "key",
            "ledger",
            "listen",
            "message",
            "notify",
            "telemetry",
            "worker",
        ],
    ),
];

/// A driver, and the one place that may name it; spans are sent with the client of the HTTP handler.
const DRIVERS: [(&str, &[&str]); 8] = [
    ("hyper", &["listen"]),
    ("lapin", &["broker"]),
    ("opentelemetry", &["telemetry"]),
    ("prometheus_client", &["listen"]),
    ("reqwest", &["handler/http", "telemetry"]),
    ("rusqlite", &["ledger/sqlite"]),
    ("sd_notify", &["notify"]),
    ("tokio_rustls", &["handler/http"]),
];

#[test]
fn arrows_point_one_way() {
    let mut wrong = Vec::new();
    for (file, text) in sources() {
        let part = file.split(['/', '.']).next().unwrap_or_default();
        let Some((_, allowed)) = MAY_NAME.iter().find(|(name, _)| *name == part) else {
            assert!(matches!(part, "lib" | "main"), "{file} belongs to no part that this test knows");
            continue;
        };
        for named in names_after_crate(&text) {
            if named != part && named != "crash_point" && !allowed.contains(&named.as_str()) {
                wrong.push(format!("{file} names {named}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_driver_is_named_in_one_place() {
    let mut wrong = Vec::new();
    for (file, text) in sources() {
        for (driver, places) in DRIVERS {
            let names_it = text.contains(&format!("{driver}::")) || text.contains(&format!("use {driver}"));
            if names_it && !places.iter().any(|place| file.starts_with(place)) {
                wrong.push(format!("{file} names {driver}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A rule that finds nothing proves nothing.
#[test]
fn the_rules_see_what_is_there() {
    assert_eq!(
        names_after_crate("use crate::{\n    a::B,\n    c::{D, e::F},\n};\nuse crate::g::H;"),
        ["a", "c", "g"]
    );
    let files = sources();
    for (driver, places) in DRIVERS {
        for place in places {
            let names_it = |(file, text): &(String, String)| {
                file.starts_with(place) && text.contains(&format!("{driver}::"))
            };
            assert!(files.iter().any(names_it), "{driver} in {place}");
        }
    }
}

/// The first word of each path that starts with `crate::`, in a list or alone.
fn names_after_crate(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        if let Some(list) = rest.strip_prefix('{') {
            let mut depth = 1;
            let mut item = String::new();
            for character in list.chars() {
                match character {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                if depth == 0 || (depth == 1 && character == ',') {
                    names.extend(first_word(&item));
                    item.clear();
                } else {
                    item.push(character);
                }
                if depth == 0 {
                    break;
                }
            }
        } else {
            names.extend(first_word(rest));
        }
    }
    names
}

fn first_word(path: &str) -> Option<String> {
    let word: String =
        path.trim_start().chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
    (!word.is_empty()).then_some(word)
}

/// The code of every source file under `src/`, without its comments, by its path there.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path: PathBuf = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).expect("under src").display().to_string();
                let text = fs::read_to_string(&path).expect("text");
                let code: String = text
                    .lines()
                    .filter(|line| !line.trim_start().starts_with("//"))
                    .map(|l| format!("{l}\n"))
                    .collect();
                files.push((name, code));
            }
        }
    }
    files
}
