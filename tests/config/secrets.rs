//! Goal: a password is read from where it should be, and never printed.

use std::fs;

use crate::setup::{Setup, report};

#[test]
fn a_password_comes_from_a_file_without_its_newline() {
    let with_password = |text: &str, url: &str| {
        let setup = Setup::new();
        let path = setup.dir.path().join("password");
        fs::write(&path, text).unwrap();
        setup.args(["--queue", "q", "--url", url, "--password-file", &path.to_string_lossy(), "--log"])
    };
    for (text, password) in [("p#/?@:%ü \n", "p#/?@:%ü "), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a")] {
        let config = with_password(text, "amqp://u@h").load().unwrap();
        assert_eq!(config.broker.password.unwrap().expose(), password);
    }
    let both = with_password("hidden", "amqp://u:hidden@h").fails();
    assert!(both.contains("the URL holds a password too: take one of them out"), "{both}");
    assert!(!both.contains("hidden"), "{both}");
    let empty = with_password("\n", "amqp://u@h").fails();
    assert!(empty.contains("the file is empty"), "{empty}");
}

#[test]
fn a_password_comes_from_a_variable_of_its_own() {
    let setup = |url: &str| {
        Setup::new().env("ACKONCE_PASSWORD", "p#/?@:%ü ").args(["--queue", "q", "--url", url, "--log"])
    };
    let config = setup("amqp://u@h").load().unwrap();
    assert_eq!(config.broker.password.as_ref().unwrap().expose(), "p#/?@:%ü ");
    assert!(!format!("{config:?}").contains("p#"), "{config:?}");

    let both = setup("amqp://u:hidden@h").fails();
    assert!(
        both.contains("ACKONCE_PASSWORD=***: the URL holds a password too: take one of them out"),
        "{both}"
    );
    let two = setup("amqp://u@h").env("ACKONCE_PASSWORD_FILE", "/nowhere").fails();
    assert!(two.contains("ACKONCE_PASSWORD=***: ACKONCE_PASSWORD_FILE=\"/nowhere\" is given too"), "{two}");
    for report in [both, two] {
        assert!(!report.contains("hidden") && !report.contains("p#"), "{report}");
    }
}

#[test]
fn a_password_is_never_printed() {
    for url in [
        "amqp://app:hidden@host",
        "amqp//app:hidden@host",
        "amqp://app:hid#den@host",
        "amqp://app:hidden",
        "http://app:hidden@host",
        "app:hidden@host",
        "amqp://app:hidden@ho st/%2f",
    ] {
        for args in [
            vec!["--help"],
            vec!["--url", url, "--log", "--queue"],
            vec!["--ur", "x", "--url", url],
            vec!["--prefetch", "0", "--queue", "q", "--log"],
            vec!["--url", url, "--prefetch", "0", "--queue", "q", "--log"],
            vec!["--ledger", url, "--prefetch", "0"],
        ] {
            let output = Setup::new().env("AMQP_URL", url).env("ACKONCE_LOG_LEVEL", "trace").args(args).run();
            assert!(!report(&output).contains("hid"), "{}", report(&output));
        }
        let misplaced =
            Setup::new().args(["--queue", "amqp://app:hidden@host", "amqp://app:hidden@host"]).run();
        assert_eq!(misplaced.status.code(), Some(2), "{}", report(&misplaced));
        assert!(!report(&misplaced).contains("hidden"), "{}", report(&misplaced));
        let misplaced = Setup::new().args(["--queue", "q", "--key", "amqp://app:hidden@host"]).fails();
        assert!(!misplaced.contains("hidden"), "{misplaced}");
        let level = Setup::new().env("ACKONCE_LOG_LEVEL", "amqp://app:hidden@host").fails();
        assert!(!level.contains("hidden"), "{level}");
    }
    let setup = Setup::new().args(["--queue", "q", "--log", "--url", "amqp://app:hidden@host"]);
    assert!(!format!("{:?}", setup.cli()).contains("hidden"));
    assert!(!format!("{:?}", setup.load().unwrap()).contains("hidden"));
    let cut = Setup::new().file("[broker]\nurl = \"amqp://app:hidden@host\n").fails();
    assert!(!cut.contains("hidden"), "{cut}");
}
