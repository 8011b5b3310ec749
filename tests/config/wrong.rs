//! Goal: whatever is wrong is said in one sentence of its own, all of it in one run, with exit code 2.

use std::fs;

use crate::setup::Setup;

/// One worker with these lines in its table.
fn worker(lines: &str) -> String {
    let queue = if lines.contains("queue =") { "" } else { "queue = \"q\"\n" };
    let handler = if lines.contains('!') { "" } else { "log = true\n" };
    format!("[[worker]]\n{queue}{handler}{}\n", lines.replace('!', ""))
}

#[test]
fn each_wrong_value_gives_its_sentence() {
    let w = |lines: &str| worker(lines);
    let long = "é".repeat(128);
    for (file, expected) in [
        (
            w("prefetch = 0"),
            "[[worker]] #1: prefetch = 0: expected a whole number from 1 to 65535 (in AMQP, 0 would mean unlimited)",
        ),
        (
            w("prefetch = \"many\""),
            "[[worker]] #1: prefetch = \"many\": expected a whole number from 1 to 65535",
        ),
        (w("prefetch = 65536"), "prefetch = 65536: expected a whole number"),
        (w("prefetch = 4\nconcurrency = 5"), "prefetch = 4: it is less than the concurrency, 5"),
        (w("concurrency = -1"), "concurrency = -1: expected a whole number from 1 to 65535"),
        (w("concurrency = 1.5"), "concurrency = 1.5: expected a whole number"),
        (w("concurrency = true"), "concurrency = true: expected a whole number"),
        (w("timeout = 30"), "timeout = 30: expected a time with its unit, as in \"30s\""),
        (w("timeout = \"0s\""), "timeout = \"0s\": expected a time from 1ms to 365d"),
        (w("timeout = \"99999999999999999999y\""), "expected a time"),
        (w("timeout = 1979-05-27"), "timeout = 1979-05-27: expected a time"),
        (w("kill_grace = []"), "kill_grace = […]: expected a time"),
        (w("declare = \"creat\""), "declare = \"creat\": expected one of create, passive, none"),
        (w("queue_type = {}"), "queue_type = {…}: expected quorum or classic"),
        (w("on_mismatch = \"x, expected y\""), "expected one of dead-letter, ack, process"),
        (
            w("key = \"heder:x\""),
            "key = \"heder:x\": unknown key 'heder:x': expected message-id, header:NAME",
        ),
        (w("key = []"), "key = […]: an empty key identifies nothing"),
        (w("key = [1]"), "key = […]: expected a text such as \"message-id\""),
        (w("scope = \"\""), "scope = \"\": it has 0 bytes: expected 1 to 255"),
        (w(&format!("scope = \"{long}\"")), "it has 256 bytes: expected 1 to 255"),
        (w("queue = \"\""), "queue = \"\": a queue's name has 1 to 255 bytes: give one"),
        (w("queue = 7"), "queue = 7: expected a queue's name"),
        (w(&format!("queue = \"{long}\"")), "it has 256 bytes, AMQP allows 255"),
        (
            w(&format!("queue = \"{}\"", "q".repeat(244))),
            "with '.retry.66000' at its end more than the 255 that AMQP allows: shorten it to 243",
        ),
        (w("queue = \"amq.gen-1\""), "names that begin with 'amq.' are the broker's own"),
        (w("queue = \"a\\u0000b\""), "a NUL character stands in the name"),
        (w("!"), "[[worker]] #1: no handler: give exec"),
        (w("!log = false"), "[[worker]] #1: no handler: give exec"),
        (w("!log = \"yes\""), "log = \"yes\": expected true or false"),
        (w("exec = [\"a\"]"), "more than one handler (exec, log): keep one of them"),
        (w("!exec = []"), "exec = […]: no program is named"),
        (w("!exec = [\" \"]"), "exec = […]: no program is named"),
        (w("!exec = \"a b\""), "exec = \"a b\": expected a list of texts, the program first"),
        (w("!exec = [\"a\", \"\\u0000\"]"), "a NUL character cannot be passed"),
        (w("!http = \"hidden@h\""), "[[worker]] #1: http = ***: expected http://HOST:PORT/PATH or https://…"),
        (w("!http = \"http://\""), "http = ***: expected http://HOST:PORT/PATH"),
        (w("!http = \"http://h/hid den\""), "http = ***: a blank or control character stands in it"),
        (w("!http = [\"http://h\"]"), "http = ***: expected http://HOST:PORT/PATH"),
        (
            w("!http = \"http://h\"\nhttp_headers = [\"hidden\"]"),
            "http_headers = ***: expected { Name = \"value\" } in the file",
        ),
        (w("!http = \"http://h\"\nhttp_headers = { A = 1 }"), "http_headers = ***: expected { Name ="),
        (
            w("!http = \"http://h\"\nhttp_bearer_token_file = 1"),
            "http_bearer_token_file = 1: expected the name of a file",
        ),
        (
            w("http_headers = { A = \"hidden\" }"),
            "[[worker]] #1: http_headers is only for http handlers: take it out, or give http",
        ),
        (w("!shell = \" \""), "shell = \" \": expected a command line for /bin/sh"),
        (w("!shell = [\"a\"]"), "shell = […]: expected a command line for /bin/sh"),
        (w("!shell = \"a\\u0000\""), "a NUL character cannot be passed"),
        (w("!exec = [\"a\"]\nshell = \"a\""), "more than one handler (exec, shell): keep one of them"),
        (
            w("!exec = [\"a\"]\nexit_codes = \"x\""),
            "exit_codes = \"x\": expected sysexits or rabbitmq-cli-consumer",
        ),
        (w("!pipe = []"), "pipe = […]: no program is named"),
        (w("!pipe = \"a b\""), "pipe = \"a b\": expected a list of texts, the program first"),
        (w("!pipe = [\"a\"]\npipe_children = 0"), "pipe_children = 0: expected a whole number from 1"),
        (w("!pipe = [\"a\"]\npipe_in_flight = \"x\""), "pipe_in_flight = \"x\": expected a whole number"),
        (
            w("!pipe = [\"a\"]\npipe_framing = \"x\""),
            "pipe_framing = \"x\": expected lines or length_prefixed_uint32_be",
        ),
        (w("!sql = \"\""), "sql = \"\": expected the name of a file with SQL statements"),
        (w("!log = true\nsql_schema = \"a\""), "sql_schema is only for sql handlers"),
        (w("retry = 3"), "[[worker]] #1: retry = 3: expected a table of settings"),
        (
            w("retry = { max_attempts = 0 }"),
            "[[worker]] #1: retry: max_attempts = 0: expected a whole number from 1",
        ),
        (w("retry = { multiplier = 0.5 }"), "multiplier = 0.5: expected a number from 1 to 1000"),
        (w("retry = { multiplier = nan }"), "multiplier = NaN: expected a number from 1 to 1000"),
        (w("retry = { jitter = 1.5 }"), "jitter = 1.5: expected a number from 0 to 1"),
        (
            w("retry = { initial_interval = \"5m\", max_interval = \"1m\" }"),
            "initial_interval = \"5m\": it is more than max_interval, 1m: lower it",
        ),
        (
            w("retry = { max_interval = \"40d\", jitter = 0.5 }"),
            "retry: max_interval with its jitter reaches 60d, but a queue can delay a message for 49d 17h",
        ),
        (w("retry = { max_atempts = 2 }"), "retry: unknown key 'max_atempts' (did you mean 'max_attempts'?)"),
        (w("prefech = 2"), "[[worker]] #1: unknown key 'prefech' (did you mean 'prefetch'?)"),
        (w("colour = 2"), "[[worker]] #1: unknown key 'colour' (known here: "),
        (w("[ledgr]"), "unknown key 'ledgr' (did you mean 'ledger'?)"),
        (w("[broker]\nheartbeat = \"0s\""), "[broker]: heartbeat = \"0s\": expected a time from 1s to "),
        (w("[broker]\nheartbeat = \"1500ms\""), "expected whole seconds"),
        (w("[broker]\nurl = 5"), "[broker]: url = ***: expected amqp://HOST:PORT/VHOST"),
        (w("[broker]\nurl = []"), "[broker]: url = ***: expected amqp://"),
        (w("[broker]\nurl = \"amqp://\""), "[broker]: url = ***: expected amqp://"),
        (w("[broker]\nurl = \"amqp://u:hidden @h\""), "a blank or control character stands in it"),
        (w("[broker]\nurl = \"http://u:hidden@h\""), "[broker]: url = ***: expected amqp://"),
        (
            w("[broker]\npassword = \"hidden\""),
            "[broker]: unknown key 'password' (known here: url, password_file, heartbeat)",
        ),
        (
            w("[broker]\npassword_file = \"/no/such\""),
            "password_file = \"/no/such\": the file cannot be read (No such file",
        ),
        (
            w("[ledger]\nurl = \"postgres://u:hidden@h/db\""),
            "postgres ledgers are not available in this version",
        ),
        (w("[ledger]\nurl = \"sqlight:x\""), "unknown kind of ledger: use sqlite:PATH"),
        (w("[ledger]\nurl = \"sqlite::memory:\""), "a ledger in memory forgets"),
        (w("[ledger]\nurl = \"\""), "no file is named"),
        (
            w("[ledger]\nretention = \"2m\""),
            "[[worker]] #1: a message can be under way through its attempts for 2m 46s, but [ledger]: retention = \"2m\" forgets it after 2m",
        ),
        (w("retry = { max_attempts = 100000 }"), "but [ledger]: retention (default 7d) forgets it after 7d"),
        (
            "drain_timeout = \"2d\"\n".to_owned() + &w(""),
            "drain_timeout = \"2d\": expected a time from 0s to 1d",
        ),
        ("listen = 9464\n".to_owned() + &w(""), "listen = 9464: expected a port, which is then opened on"),
        ("listen = \"localhost:http\"\n".to_owned() + &w(""), "listen = \"localhost:http\": expected a port"),
        ("listen = \"70000\"\n".to_owned() + &w(""), "listen = \"70000\": expected a port"),
        ("listen_token_file = \"t\"\n".to_owned() + &w(""), "listen_token_file is only for what listens"),
        ("listen_host = \"h\"\n".to_owned() + &w(""), "listen_host is only for what listens"),
        (
            "listen = \"1\"\nlisten_host = \"http://h\"\n".to_owned() + &w(""),
            "expected host names without scheme",
        ),
        (
            "listen = \"1\"\nlisten_host = \"h:80\"\n".to_owned() + &w(""),
            "expected host names without scheme",
        ),
        (w("") + &w("scope = \"other\""), "[[worker]] #2: queue = \"q\": [[worker]] #1 consumes it already"),
        ("worker = 1".to_owned(), "worker = 1: expected tables, each begun by a line [[worker]]"),
        ("worker = [1]".to_owned(), "expected tables, each begun by a line [[worker]]"),
        (String::new(), "no worker is configured: give --queue Q with --exec CMD"),
        ("[[worker]]\nlog = true".to_owned(), "[[worker]] #1: no queue is named"),
        ("a = 1\nb = = 2".to_owned(), "is not valid TOML: line 2, column 5: "),
    ] {
        let failure = Setup::new().file(&file).fails();
        assert!(failure.contains(expected), "{file}\nexpected: {expected}\nfound: {failure}");
        assert!(!failure.contains("hidden"), "{failure}");
        assert!(!failure.contains("problems in"), "one mistake only:\n{file}\n{failure}");
    }
}

#[test]
fn ten_mistakes_are_reported_in_one_run() {
    let file = r#"
        drain_timeout = 5
        [broker]
        url = "http://app:hidden@host"
        heartbeat = "never"
        [ledger]
        retension = "7d"
        [[worker]]
        prefech = 1
        exec = []
        [[worker]]
        queue = "b"
        log = true
        prefetch = 0
        timeout = "soon"
        retry = { jitter = 2 }
    "#;
    let setup = Setup::new().file(file).env("ACKONCE_PREFECH", "1").args(["--declare", "perhaps"]);
    let failure = setup.fails();
    for expected in [
        "13 problems in the configuration:",
        "unknown environment variable 'ACKONCE_PREFECH' (did you mean 'ACKONCE_PREFETCH'?)",
        "[broker]: url = ***: expected",
        "[broker]: heartbeat = \"never\": expected a time with its unit",
        "[ledger]: unknown key 'retension' (did you mean 'retention'?)",
        "drain_timeout = 5: expected a time with its unit",
        "[[worker]] #1: no queue is named",
        "[[worker]] #1: exec = […]: no program",
        "[[worker]] #1: unknown key 'prefech' (did you mean 'prefetch'?)",
        "--declare \"perhaps\": expected one of create, passive, none",
        "[[worker]] #2: prefetch = 0",
        "[[worker]] #2: timeout = \"soon\"",
        "[[worker]] #2: retry: jitter = 2",
    ] {
        assert!(failure.contains(expected), "{expected}\n{failure}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let directory = Setup::new();
    let directory = directory.dir.path().to_string_lossy().into_owned();
    for (path, expected) in [
        ("/no/such.toml", "the configuration file \"/no/such.toml\" does not exist: check its name"),
        (directory.as_str(), "is a directory: name a file in it"),
        ("/dev/zero", "is larger than 1 MiB"),
    ] {
        let _keep = fs::create_dir_all(&directory);
        let failure = Setup::new().args(["--config", path]).fails();
        assert!(failure.contains(expected), "{failure}");
    }
    let failure = Setup::new().bytes(b"a = 1\nb = \"\xff\"").fails();
    assert!(failure.contains("is not UTF-8 (line 2): save it as UTF-8"), "{failure}");
}

/// Found before anything is connected to: waiting does not cure it.
#[test]
fn a_handler_that_can_never_start_is_said_at_once() {
    for (args, expected) in [
        (["--exec", "/no/such"], "the handler '/no/such' does not exist: check the path"),
        (["--exec", "/dev/null"], "the handler '/dev/null' is not executable"),
        (["--exec", "no-such-program"], "the handler 'no-such-program' is not in PATH"),
    ] {
        let failure = Setup::new().args(["--queue", "q"]).args(args).fails();
        assert!(failure.contains(expected), "{failure}");
    }
}
