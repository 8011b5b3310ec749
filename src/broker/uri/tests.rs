use super::*;

/// Holds every character that has a meaning in a URL.
const PASSWORD: &str = "p#/?@:%ü ";

fn endpoint(url: &str) -> Endpoint {
    Endpoint::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn hint(url: &str) -> String {
    Endpoint::parse(url).map(|endpoint| endpoint.to_string()).expect_err(url).to_string()
}

#[test]
fn what_is_left_out_has_a_default() {
    let shown = |url| endpoint(url).to_string();
    assert_eq!(shown("amqp://h"), "amqp://guest@h:5672/%2F");
    assert_eq!(shown("amqps://h"), "amqps://guest@h:5671/%2F");
    assert_eq!(shown(" AMQP://u@h:1/%2f\n"), "amqp://u@h:1/%2F");
    assert_eq!(shown("amqp://u:p@h/a%2Fb"), "amqp://u@h:5672/a%2Fb");
    assert_eq!(endpoint("amqp://h").to_lapin().authority.userinfo, AMQPUserInfo::default());
    assert_eq!(endpoint("amqp://h").to_lapin().query.heartbeat, Some(20));
    assert_eq!(endpoint("amqp://h:/v").port(), 5672);
}

#[test]
fn an_encoded_or_separate_password_arrives_whole_and_is_never_shown() {
    let encoded = utf8_percent_encode(PASSWORD, NON_ALPHANUMERIC).to_string();
    let in_url = endpoint(&format!("amqp://u:{encoded}@h/v"));
    let separate = endpoint("amqp://u:other@h/v").with_password(PASSWORD);
    assert_eq!(in_url, separate);
    assert_eq!(in_url.to_lapin().authority.userinfo.password, PASSWORD);
    for shown in [format!("{in_url}"), format!("{in_url:?}"), format!("{:?}", Some(&separate))] {
        assert!(!shown.contains(PASSWORD) && !shown.contains(&encoded) && !shown.contains("p#"), "{shown}");
    }
}

#[test]
fn ipv6_addresses_stay_what_they_are() {
    let v6 = endpoint("amqp://u@[::1]:5673/v");
    assert_eq!((v6.host(), v6.port()), ("::1", 5673));
    assert_eq!(v6.to_string(), "amqp://u@[::1]:5673/v");
    assert_eq!(endpoint("amqp://[2001:db8::2]").authority(), "[2001:db8::2]:5672");
    assert!(hint("amqp://::1:5672").contains("brackets"));
    assert!(hint("amqp://[::1").contains("']'"));
    assert!(hint("amqp://[h]:1").contains("no IPv6 address"));
    assert!(hint("amqp://[::1]5672").contains("':port'"));
}

/// K62: each mistake has its own hint, and none quotes what may be a password.
#[test]
fn mistakes_get_a_precise_hint_that_quotes_nothing() {
    for (url, expected) in [
        ("secret", "not a URL"),
        ("http://u:secret@h", "scheme is unknown"),
        ("amqp://u:secret#x@h/v", "%23"),
        ("amqp://u:secret/x@h/v", "%2F"),
        ("amqp://u:secret?x@h/v", "%3F"),
        ("amqp://u:secret@x@h/v", "%40"),
        ("amqp://u:secret%x@h/v", "%25"),
        ("amqp://u:secret%ff@h/v", "not UTF-8"),
        ("amqp://u:secret", "no port number"),
        ("amqp://u:secret@h:0", "out of range: 1 to 65535"),
        ("amqp://u:secret@h:65536", "out of range: 1 to 65535"),
        ("amqp://u:secret@h:99999999999999999999", "out of range: 1 to 65535"),
        ("amqp://u:secret@", "no host"),
        ("amqp://:secret@h", "no user"),
        ("amqp://u:secret@h/", "empty vhost: leave the slash out, or write %2f for the default vhost"),
        ("amqp://u:secret@h//", "write %2f"),
        ("amqp://u:secret@h/a/b", "write %2f"),
        ("amqp://u:secret@h/%252f", "encoded twice"),
        ("amqp://u:secret@h/%252F", "encoded twice"),
        ("amqp://u:secret@h?hartbeat=secret", "unknown parameter"),
        ("amqp://u:secret@h?heartbeat=70000", "heartbeat is not"),
        ("amqp://u:secret@h?frame_max=1024", "below 4096"),
        ("amqp://u:secret@h?auth_mechanism=secret", "auth_mechanism is one of"),
        ("amqps://u:secret@h?certfile=a", "together"),
    ] {
        let hint = hint(url);
        assert!(hint.contains(expected), "{url}: {hint}");
        assert!(!hint.contains("secret"), "{url}: {hint}");
    }
    let long = format!("amqp://h/{}", "v".repeat(256));
    assert!(hint(&long).contains("256 bytes"));
}

#[test]
fn parameters_are_taken_over_and_a_small_frame_is_warned_about() {
    let url = "amqps://h/v?heartbeat=5&frame_max=4096&channel_max=7&connection_timeout=1500\
               &auth_mechanism=external&cacertfile=%2fca.pem&certfile=c&keyfile=k";
    let endpoint = endpoint(url);
    let query = endpoint.to_lapin().query;
    assert_eq!((query.heartbeat, query.frame_max, query.channel_max), (Some(5), Some(4096), Some(7)));
    assert_eq!(query.auth_mechanism, Some(SASLMechanism::External));
    assert_eq!(endpoint.connect_timeout(), Some(Duration::from_millis(1500)));
    assert_eq!(endpoint.tls_files.cacertfile.as_deref(), Some("/ca.pem".as_ref()));
    assert!(endpoint.warnings()[0].contains("frame_max=4096"), "{:?}", endpoint.warnings());
    assert_eq!(Endpoint::parse("amqp://h?frame_max=8192").map(|e| e.warnings()), Ok(vec![]));
}

proptest::proptest! {
    /// Whatever a user, password and vhost hold, encoding them is enough.
    #[test]
    fn encoded_parts_always_arrive(user in ".{1,20}", password in ".{0,20}", vhost in "[^%]{1,20}") {
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let url = format!("amqp://{}:{}@h/{}", encode(&user), encode(&password), encode(&vhost));
        let uri = endpoint(&url).to_lapin();
        proptest::prop_assert_eq!(uri.authority.userinfo, AMQPUserInfo { username: user, password });
        proptest::prop_assert_eq!(uri.vhost, vhost);
    }

    #[test]
    fn no_text_panics_or_is_quoted(text in "amqp://.{0,40}") {
        let _ = Endpoint::parse(&text);
    }
}
