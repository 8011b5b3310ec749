//! The units in packaging/systemd, judged by systemd itself, and held against what the program knows.

#![cfg(target_os = "linux")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::harness::ackonce;

/// The exposure that `systemd-analyze security` may find, in tenths: below 2.0 it says "OK".
const EXPOSURE_MAX: &str = "20";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd")
}

fn unit(name: &str) -> String {
    fs::read_to_string(folder().join(name)).expect("a unit")
}

/// Under which name each unit is looked at.
const UNITS: [(&str, &str); 2] =
    [("ackonce.service", "ackonce.service"), ("ackonce@.service", "ackonce@orders.service")];

/// The values that a unit sets, in its order.
fn set<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

/// What follows `#` without a blank is a line to be used, not a comment.
fn with_all_lines(unit: &str) -> String {
    let used = unit.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(char::is_alphabetic) => rest,
        _ => line,
    });
    used.map(|line| format!("{line}\n")).collect()
}

/// The unit as it would be where the program is this build.
fn at_hand(unit: &str) -> String {
    let here = unit.replace("/usr/local/bin/ackonce", env!("CARGO_BIN_EXE_ackonce"));
    assert_ne!(here, unit, "the unit starts another program");
    here
}

fn analyze(arguments: &[&str], unit: &Path) -> Output {
    let mut command = Command::new("systemd-analyze");
    command.args(arguments).arg(unit).env("SYSTEMD_PAGER", "").env("SYSTEMD_COLORS", "0");
    command.output().expect("systemd-analyze starts: it is in the package systemd; scripts/test installs it")
}

/// systemd finds nothing to complain about, with the lines for the password too.
#[test]
fn systemd_accepts_the_units() {
    for (file, name) in UNITS {
        let text = unit(file);
        for text in [at_hand(&text), at_hand(&with_all_lines(&text))] {
            let folder = tempfile::tempdir().expect("a folder");
            fs::write(folder.path().join(name), &text).expect("a unit");
            // The man page is installed by whoever installs the unit.
            let found = analyze(&["verify", "--man=no"], &folder.path().join(name));
            assert!(found.status.success() && found.stderr.is_empty(), "{file}: {found:?}");
        }
        assert!(!set(&with_all_lines(&text), "LoadCredential").is_empty());
    }
}

/// systemd itself takes the hardening for good.
#[test]
fn systemd_finds_the_units_hardened() {
    for (file, name) in UNITS {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(name), at_hand(&unit(file))).expect("a unit");
        let threshold = format!("--threshold={EXPOSURE_MAX}");
        let found = analyze(&["security", "--offline=true", &threshold], &folder.path().join(name));
        let said = String::from_utf8_lossy(&found.stdout);
        assert!(found.status.success() && said.contains("Overall exposure level"), "{file}: {said}");
    }
}

/// What the units rely on is there: flags, variables, and times that fit together.
#[test]
fn the_units_fit_the_program() {
    let output = ackonce().args(["run", "--help"]).output().expect("help");
    let help = String::from_utf8(output.stdout).expect("text");
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let drain = words.split("[env: ACKONCE_DRAIN_TIMEOUT] [default: ").nth(1).expect("the default");
    let drain = humantime::parse_duration(drain.split(']').next().unwrap()).expect("a time");
    for (file, _) in UNITS {
        let text = with_all_lines(&unit(file));
        assert_eq!(set(&text, "Type"), ["notify"]);
        for word in set(&text, "ExecStart")[0].split(' ').filter(|word| word.starts_with("--")) {
            assert!(words.contains(&format!("{word} ")), "{file}: there is no flag {word}");
        }
        for variable in set(&text, "Environment") {
            let name = variable.split('=').next().unwrap();
            assert!(words.contains(&format!("[env: {name}]")), "{file}: there is no variable {name}");
        }
        let stop = humantime::parse_duration(set(&text, "TimeoutStopSec")[0]).expect("a time");
        assert!(
            stop > drain + std::time::Duration::from_secs(30),
            "{file}: {stop:?} to stop, {drain:?} to drain"
        );
        assert_eq!(set(&text, "RestartPreventExitStatus"), ["2"]);
    }
}

/// The two are one unit, but for the instance's name.
#[test]
fn both_units_are_the_same() {
    let body = |name: &str| unit(name).split_once("[Unit]").expect("a section").1.to_owned();
    let of_instance = body("ackonce@.service")
        .replace(" (%i)", "")
        .replace("/etc/ackonce/%i.toml", "/etc/ackonce/ackonce.toml")
        .replace("/etc/ackonce/%i-password", "/etc/ackonce/rabbitmq-password")
        .replace("ackonce-%i", "ackonce");
    assert_eq!(of_instance, body("ackonce.service"));
}
