//! Goal: file, environment and flags are read as they were meant, and count in that order.

use std::time::Duration;

use ackonce::{
    broker::{Declare, topology::QueueType},
    config::{Config, HandlerConfig, LedgerUrl},
    handler::exec::ExitCodes,
    worker::policy::{DeadLetter, OnInterrupted, OnMismatch, OnMissingKey},
};

use crate::setup::Setup;

const GOOD: &str = r#"
drain_timeout = "1m"

[broker]
url = ["amqps://app:hidden@one.example/shop", "amqp://two.example:5673"]
heartbeat = "5s"

[ledger]
url = "sqlite:/var/lib/ackonce/ledger.db"
retention = "14d"

[[worker]]
queue = "orders"
exec = ["./charge.sh", "--fast"]
timeout = "1h 30m"

[[worker]]
queue = "mails"
scope = "orders"
key = ["header:biz_key", "property:type"]
log = true
on_missing_key = "hash-body"
on_mismatch = "ack"
on_interrupted = "dead-letter"
concurrency = 100
dead_letter = "reject"
declare = "passive"
queue_type = "classic"
retry = { max_attempts = 3, initial_interval = "500ms", multiplier = 1.5, max_interval = "10m", jitter = 0 }
"#;

#[test]
fn a_good_file_is_read_as_it_was_meant() {
    let config = Setup::new().file(GOOD).load().unwrap();
    let urls: Vec<_> = config.broker.urls.iter().map(|url| url.expose()).collect();
    assert_eq!(urls, ["amqps://app:hidden@one.example/shop", "amqp://two.example:5673"]);
    assert_eq!(config.broker.heartbeat, Duration::from_secs(5));
    assert_eq!(config.ledger.url, LedgerUrl::Sqlite("/var/lib/ackonce/ledger.db".into()));
    assert_eq!(config.ledger.retention, Duration::from_secs(14 * 86400));
    assert_eq!(config.drain_timeout, Duration::from_secs(60));

    let [orders, mails] = config.workers.as_slice() else { panic!("two workers: {config:?}") };
    assert_eq!((&*orders.policy.queue, &*orders.policy.scope), ("orders", "orders"));
    assert_eq!((orders.policy.concurrency, orders.policy.prefetch), (8, 64));
    assert_eq!((orders.declare, orders.queue_type), (Declare::Create, QueueType::Quorum));
    let HandlerConfig::Exec(exec) = &orders.handler else { panic!("exec: {orders:?}") };
    assert_eq!((exec.program.as_str(), exec.args.as_slice()), ("./charge.sh", &["--fast".to_owned()][..]));
    assert_eq!(exec.timeout, Duration::from_secs(5400));
    assert_eq!(exec.kill_grace, Duration::from_secs(5));

    let policy = &mails.policy;
    assert_eq!((&*policy.queue, &*policy.scope), ("mails", "orders"));
    assert_eq!(policy.key.to_string(), "header:biz_key + property:type");
    assert_eq!(policy.on_missing_key, OnMissingKey::HashBody);
    assert_eq!(policy.on_mismatch, OnMismatch::Ack);
    assert_eq!(policy.on_interrupted, OnInterrupted::DeadLetter);
    assert_eq!(policy.dead_letter, DeadLetter::Reject);
    assert_eq!((policy.concurrency, policy.prefetch), (100, 100));
    assert_eq!((policy.retry.max_attempts, policy.retry.multiplier, policy.retry.jitter), (3, 1.5, 0.0));
    assert_eq!(policy.retry.initial_interval, Duration::from_millis(500));
    assert_eq!(policy.retry.max_interval, Duration::from_secs(600));
    assert_eq!(mails.handler, HandlerConfig::Log);
    assert_eq!((mails.declare, mails.queue_type), (Declare::Passive, QueueType::Classic));
}

#[test]
fn flags_alone_describe_one_worker() {
    let config = Setup::new().args(["--queue", "q", "--exec", "run", "--log", "-x", "--", "--queue"]).load();
    let config = config.unwrap();
    let HandlerConfig::Exec(exec) = &config.workers[0].handler else { panic!("{config:?}") };
    assert_eq!((exec.program.as_str(), exec.args.join(" ").as_str()), ("run", "--log -x -- --queue"));
    assert_eq!(exec.timeout, Duration::from_secs(30));
    assert_eq!(config.broker.urls[0].expose(), "amqp://127.0.0.1:5672");
    assert_eq!(config.broker.heartbeat, Duration::from_secs(20));
    assert_eq!(config.ledger.url, LedgerUrl::Sqlite("ackonce.db".into()));
    assert_eq!(config.ledger.retention, Duration::from_secs(7 * 86400));
    assert_eq!(config.drain_timeout, Duration::from_secs(25));
}

#[test]
fn a_flag_counts_more_than_a_variable_and_that_more_than_the_file() {
    let setup = Setup::new().file(GOOD).env("ACKONCE_RETENTION", "20d").env("ACKONCE_DRAIN_TIMEOUT", "2s");
    let setup = setup.env("AMQP_URL", "amqp://a amqp://b").env("ACKONCE_LEDGER", "");
    let config = setup.args(["--retention", "30d", "--jitter", "0.5"]).load().unwrap();
    assert_eq!(config.ledger.retention, Duration::from_secs(30 * 86400));
    assert_eq!(config.drain_timeout, Duration::from_secs(2));
    assert_eq!(config.broker.urls.len(), 2);
    assert_eq!(config.broker.urls[1].expose(), "amqp://b");
    assert_eq!(config.ledger.url, LedgerUrl::Sqlite("/var/lib/ackonce/ledger.db".into()));
    assert!(config.workers.iter().all(|worker| worker.policy.retry.jitter == 0.5), "{config:?}");
    assert_eq!(config.workers[1].policy.retry.max_attempts, 3);
}

#[test]
fn with_a_file_the_flag_queue_runs_one_of_its_workers() {
    let config = Setup::new().file(GOOD).args(["--queue", "mails", "--exec", "./other"]).load().unwrap();
    assert_eq!(config.workers.len(), 1);
    assert_eq!(&*config.workers[0].policy.queue, "mails");
    assert!(matches!(&config.workers[0].handler, HandlerConfig::Exec(exec) if exec.program == "./other"));

    let failure = Setup::new().file(GOOD).args(["--queue", "none"]).fails();
    assert_eq!(failure, "ackonce: no worker of the file has the queue \"none\": name one that it has\n");
}

#[test]
fn every_flag_has_a_variable() {
    let values = [
        ("PASSWORD_FILE", "/nowhere"),
        ("HEARTBEAT", "?"),
        ("LEDGER", "x:y"),
        ("RETENTION", "?"),
        ("ALLOW_NETWORK_FILE_SYSTEM", "?"),
        ("DRAIN_TIMEOUT", "?"),
        ("QUEUE", "amq.q"),
        ("EXEC", "[1]"),
        ("EXIT_CODES", "?"),
        ("KEY", "?"),
        ("ON_MISSING_KEY", "?"),
        ("ON_MISMATCH", "?"),
        ("ON_INTERRUPTED", "?"),
        ("TIMEOUT", "?"),
        ("KILL_GRACE", "?"),
        ("CONCURRENCY", "?"),
        ("PREFETCH", "?"),
        ("DEAD_LETTER", "?"),
        ("DECLARE", "?"),
        ("QUEUE_TYPE", "?"),
        ("MAX_ATTEMPTS", "?"),
        ("INITIAL_INTERVAL", "?"),
        ("MULTIPLIER", "?"),
        ("MAX_INTERVAL", "?"),
        ("JITTER", "?"),
    ];
    let long = "s".repeat(256);
    let setup = Setup::new().env("ACKONCE_SCOPE", &long).env("AMQP_URL", "?");
    let setup =
        values.iter().fold(setup, |setup, (name, value)| setup.env(&format!("ACKONCE_{name}"), value));
    let failure = setup.fails();
    assert!(failure.starts_with("ackonce: 27 problems in the configuration:\n  1. "), "{failure}");
    for (name, value) in values {
        assert!(
            failure.contains(&format!(" ACKONCE_{name}=\"{value}\": ")) || name == "LEDGER",
            "{name}\n{failure}"
        );
    }
    assert!(failure.contains(" AMQP_URL=***: "), "{failure}");
    let pipe = [("PIPE", "[1]"), ("PIPE_CHILDREN", "?"), ("PIPE_IN_FLIGHT", "?"), ("PIPE_FRAMING", "?")];
    let of = |values: &[(&str, &str)]| {
        let setup = Setup::new().env("ACKONCE_QUEUE", "q");
        values.iter().fold(setup, |setup, (name, value)| setup.env(&format!("ACKONCE_{name}"), value))
    };
    let failure = of(&pipe).fails();
    assert!(failure.starts_with("ackonce: 4 problems in the configuration:\n"), "{failure}");
    let failure = of(&[("SHELL", " ")]).fails();
    assert!(failure.contains("ACKONCE_SHELL=\" \": expected a command line"), "{failure}");
    let config = Setup::new().env("ACKONCE_QUEUE", "q").env("ACKONCE_LOG", "true").load().unwrap();
    assert_eq!(config.workers[0].handler, HandlerConfig::Log);
    let path = Setup::new().file(GOOD).config_path();
    let failure = Setup::new().env("ACKONCE_CONFIG", &path.to_string_lossy()).fails();
    assert!(failure.contains("does not exist"), "{failure}");
}

#[test]
fn lists_in_the_environment_are_words_or_as_in_the_file() {
    let setup = || Setup::new().env("ACKONCE_QUEUE", "q");
    let words = setup().env("ACKONCE_EXEC", "a  b c").load().unwrap();
    let list = setup().env("ACKONCE_EXEC", r#"["a", "b c"]"#).load().unwrap();
    for (config, expected) in [(words, &["b", "c"][..]), (list, &["b c"])] {
        let HandlerConfig::Exec(exec) = &config.workers[0].handler else { panic!("{config:?}") };
        assert_eq!(
            (exec.program.as_str(), exec.args.as_slice()),
            ("a", &expected.iter().map(|s| s.to_string()).collect::<Vec<_>>()[..])
        );
    }
}

/// The slots of a pipe are its children times what each has in flight; the prefetch follows, or bounds them.
#[test]
fn a_pipe_has_as_many_slots_as_its_children_take() {
    for (args, children, slots, prefetch) in [
        (&[][..], 8, 8, 64),
        (&["--concurrency", "3"], 3, 3, 64),
        (&["--pipe-children", "2"], 2, 2, 64),
        (&["--pipe-children", "4", "--pipe-in-flight", "50"], 4, 200, 200),
        (&["--pipe-in-flight", "16", "--prefetch", "20"], 8, 20, 20),
        (&["--pipe-children", "65535", "--pipe-in-flight", "65535"], 65535, 65535, 65535),
    ] {
        let setup = Setup::new().args(["--queue", "q"]).args(args.iter().copied());
        let config = setup.args(["--pipe", "python3", "w.py", "--log"]).load().unwrap();
        let worker = &config.workers[0];
        let HandlerConfig::Pipe(pipe) = &worker.handler else { panic!("{worker:?}") };
        assert_eq!((pipe.program.as_str(), pipe.args.join(" ").as_str()), ("python3", "w.py --log"));
        let found = (pipe.children, worker.policy.concurrency, worker.policy.prefetch);
        assert_eq!(found, (children, slots, prefetch), "{args:?}");
    }
}

#[test]
fn a_shell_is_asked_for_by_name() {
    let setup = Setup::new().args(["--queue", "q", "--shell", "cat | wc -c", "--exit-codes"]);
    let config = setup.args(["rabbitmq-cli-consumer"]).load().unwrap();
    let HandlerConfig::Exec(exec) = &config.workers[0].handler else { panic!("{config:?}") };
    assert_eq!((exec.program.as_str(), exec.args.join(" ").as_str()), ("/bin/sh", "-c cat | wc -c"));
    assert_eq!(exec.exit_codes, ExitCodes::RabbitmqCliConsumer);
}

#[test]
fn what_a_handler_finds_in_its_environment_is_no_setting() {
    let inherited = [
        "KEY",
        "MESSAGE_ID",
        "SCOPE",
        "QUEUE",
        "EXCHANGE",
        "ROUTING_KEY",
        "ATTEMPT",
        "INTERRUPTED",
        "REDELIVERED",
        "TYPE",
        "CONTENT_TYPE",
        "CORRELATION_ID",
        "REPLY_TO",
        "TIMESTAMP",
        "HEADERS",
    ];
    let setup = Setup::new().args(["--queue", "inner", "--log"]);
    let setup =
        inherited.iter().fold(setup, |setup, name| setup.env(&format!("ACKONCE_{name}"), "no key: 1"));
    let config = setup.env("ACKONCE_SERVICE_HOST", "10.0.0.1").env("ACKONCE_PORT", "1").load().unwrap();
    assert_eq!(&*config.workers[0].policy.scope, "inner");
    assert_eq!(config.workers[0].policy.key.to_string(), "message-id");
}

#[test]
fn a_command_without_workers_judges_only_the_rest() {
    let flags = [("ledger", &["other.db".to_owned()][..])];
    let setup = Setup::new().file("[broker]\nurl = \"amqp://h\"\n[[worker]]\nprefetch = 0");
    let path = [setup.config_path().to_string_lossy().into_owned()];
    let flags = flags.into_iter().chain([("config", &path[..])]);
    let (broker, ledger) = Config::load_without_workers(flags, []).unwrap();
    assert_eq!(broker.urls[0].expose(), "amqp://h");
    assert_eq!(ledger.url, LedgerUrl::Sqlite("other.db".into()));
}

#[test]
fn an_http_handler_is_read_from_file_flags_and_environment_and_shows_no_secret() {
    let file = Setup::new().file(
        "[[worker]]\nqueue = \"q\"\nhttp = \"https://u:hidden@h/hidden\"\ntimeout = \"5s\"\n\
         http_headers = { X-Team = \"hidden\", Accept = \"b: c\" }\n\
         http_bearer_token_file = \"/token\"\nhttp_signature_secret_file = \"/secret\"\n",
    );
    let flags = ["--queue", "q", "--http", "https://u:hidden@h/hidden", "--timeout", "5s"];
    let flags =
        Setup::new().args(flags).args(["--http-header", "Accept:b: c", "--http-header", "X-Team: hidden"]);
    let flags = flags.args(["--http-bearer-token-file", "/token", "--http-signature-secret-file", "/secret"]);
    let environment = Setup::new()
        .env("ACKONCE_QUEUE", "q")
        .env("ACKONCE_TIMEOUT", "5s")
        .env("ACKONCE_HTTP", "https://u:hidden@h/hidden")
        .env("ACKONCE_HTTP_BEARER_TOKEN_FILE", "/token")
        .env("ACKONCE_HTTP_SIGNATURE_SECRET_FILE", "/secret");
    let list = r#"["Accept: b: c", "X-Team: hidden"]"#;
    for setup in [
        &file,
        &flags,
        &environment.env("ACKONCE_HTTP_HEADERS", r#"{ Accept = "b: c", X-Team = "hidden" }"#),
        &Setup::new()
            .args(["--queue", "q", "--timeout", "5s", "--http", "https://u:hidden@h/hidden"])
            .args(["--http-bearer-token-file", "/token", "--http-signature-secret-file", "/secret"])
            .env("ACKONCE_HTTP_HEADERS", list),
    ] {
        let config = setup.load().unwrap();
        let HandlerConfig::Http(http) = &config.workers[0].handler else { panic!("{config:?}") };
        assert_eq!(http.url.expose(), "https://u:hidden@h/hidden");
        let mut headers = http.headers.expose().to_vec();
        headers.sort();
        assert_eq!(headers, [("Accept".into(), "b: c".into()), ("X-Team".into(), "hidden".into())]);
        assert_eq!(http.bearer_token_file.as_deref(), Some(std::path::Path::new("/token")));
        assert_eq!(http.signature_secret_file.as_deref(), Some(std::path::Path::new("/secret")));
        assert_eq!(http.timeout, Duration::from_secs(5));
        assert!(!format!("{config:?} {:?}", setup.cli()).contains("hidden"), "{config:?}");
    }
    // Another handler leaves nothing of it behind; a lone header in a variable is one header.
    let config = file.args(["--exec", "x"]).load().unwrap();
    assert!(matches!(config.workers[0].handler, HandlerConfig::Exec(_)), "{config:?}");
    let lone =
        Setup::new().args(["--queue", "q", "--http", "http://h"]).env("ACKONCE_HTTP_HEADERS", "A: b c");
    let config = lone.load().unwrap();
    let HandlerConfig::Http(http) = &config.workers[0].handler else { panic!("{config:?}") };
    assert_eq!(http.headers.expose(), [("A".into(), "b c".into())]);
    // What is wrong beyond the first look is known before anything is consumed.
    for (url, args, expected) in [
        ("http://u:hidden@h:port", ["--jitter", "0"], "http: the URL cannot be read"),
        ("http://u:hidden@h", ["--http-header", "hidden"], "--http-header ***: expected { Name"),
        (
            "http://h",
            ["--http-header", "Idempotency-Key: hidden"],
            "'idempotency-key' is set by ackonce itself",
        ),
        ("http://u:hidden@h", ["--http-header", "Authorization: hidden"], "keep one of them"),
        (
            "http://h",
            ["--http-bearer-token-file", "/no/such"],
            "the bearer token file '/no/such': No such file",
        ),
        ("http://h", ["--http-signature-secret-file", "/dev/null"], "'/dev/null': it is not a file"),
    ] {
        let setup = Setup::new().env("ACKONCE_LOG_LEVEL", "trace").args(["--queue", "q", "--http", url]);
        let failure = setup.args(args).fails();
        assert!(failure.contains(expected) && !failure.contains("hidden"), "{failure}");
    }
}

#[test]
fn nothing_listens_unless_asked_and_a_port_alone_is_for_this_host_only() {
    let setup = || Setup::new().file(GOOD);
    let address = |setup: Setup| setup.load().unwrap().listen.map(|listen| listen.address);
    assert_eq!(address(setup()), None);
    for (given, expected) in [
        ("9464", "127.0.0.1:9464"),
        (" 0 ", "127.0.0.1:0"),
        ("0.0.0.0:80", "0.0.0.0:80"),
        ("[::1]:1", "[::1]:1"),
    ] {
        let expected = Some(expected.parse().unwrap());
        assert_eq!(address(setup().env("ACKONCE_LISTEN", given)), expected);
        let flag = setup().env("ACKONCE_LISTEN", "1.1.1.1:1").args(["--listen", given]);
        assert_eq!(address(flag), expected);
    }
    let file = Setup::new().file(&format!("listen = \"9464\"\n{GOOD}"));
    assert_eq!(address(file), Some("127.0.0.1:9464".parse().unwrap()));
}

/// The token's file and the names of the status page are given in all three places.
#[test]
fn whom_the_status_page_answers_is_read_from_file_flags_and_environment() {
    let file =
        format!("listen = \"1\"\nlisten_token_file = \"/t\"\nlisten_host = [\"a.example\", \"B\"]\n{GOOD}");
    let names = ["--listen-host", "a.example", "--listen-host", "B"];
    for setup in [
        Setup::new().file(&file),
        Setup::new().file(GOOD).args(["--listen", "1", "--listen-token-file", "/t"]).args(names),
        Setup::new()
            .file(GOOD)
            .env("ACKONCE_LISTEN", "1")
            .env("ACKONCE_LISTEN_TOKEN_FILE", "/t")
            .env("ACKONCE_LISTEN_HOST", "a.example B"),
    ] {
        let listen = setup.load().unwrap().listen.unwrap();
        assert_eq!(listen.token_file.as_deref(), Some(std::path::Path::new("/t")));
        assert_eq!(listen.hosts, ["a.example", "b"]);
    }
    let one = Setup::new().file(GOOD).args(["--listen", "1", "--listen-host", "c"]).load().unwrap();
    assert_eq!(one.listen.unwrap().hosts, ["c"]);
}
