//! Goal: each rule refuses what it is for, and nothing else.

use hyper::Request;

use super::*;

const TOKEN: &str = "0123456789abcdef";

fn access(hosts: &[&str], token: Option<&str>) -> (tempfile::TempDir, Result<Access, String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    if let Some(token) = token {
        std::fs::write(&path, token).unwrap();
    }
    let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
    let access = Access::new(hosts, token.is_some().then_some(path.as_path()));
    (folder, access)
}

fn head(uri: &str, headers: &[(&str, &str)]) -> Parts {
    let request =
        headers.iter().fold(Request::get(uri), |request, (name, value)| request.header(*name, *value));
    request.body(()).unwrap().into_parts().0
}

fn to(host: &str) -> Parts {
    head("/", &[("host", host)])
}

fn status<T>(checked: Result<T, Refusal>) -> u16 {
    checked.map_or_else(|refusal| refusal.status.as_u16(), |_| 200)
}

#[test]
fn only_addresses_and_names_that_are_ours_are_served() {
    let (_folder, access) = access(&["status.example"], None);
    let access = access.unwrap();
    for (host, expected) in [
        ("127.0.0.1:9464", 200),
        ("10.1.2.3", 200),
        ("[::1]:9464", 200),
        ("localhost:1", 200),
        ("LOCALHOST", 200),
        ("Status.Example:80", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("status.example.", 421),
        ("2130706433", 421),
        ("localhost@evil.example", 400),
        ("evil.example@localhost", 400),
        ("a b", 400),
        ("", 400),
    ] {
        assert_eq!(status(access.check_host(&to(host))), expected, "{host}");
    }
    assert_eq!(status(access.check_host(&head("/", &[]))), 400, "no host");
    assert_eq!(status(access.check_host(&head("/", &[("host", "localhost"), ("host", "::1")]))), 400);
    let both = |first: &str| status(access.check_host(&head(first, &[("host", "localhost")])));
    assert_eq!([both("http://localhost/"), both("http://evil.example/")], [200, 400]);
}

#[test]
fn what_another_sites_page_sends_is_refused() {
    let (_folder, access) = access(&[], None);
    let access = access.unwrap();
    for (header, value, expected) in [
        ("origin", "http://localhost:1", 200),
        ("origin", "https://localhost:1", 200),
        ("origin", "http://LocalHost:1", 200),
        ("origin", "http://localhost:2", 403),
        ("origin", "http://localhost", 403),
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "localhost:1", 403),
        ("sec-fetch-site", "same-origin", 200),
        ("sec-fetch-site", "none", 200),
        ("sec-fetch-site", "same-site", 403),
        ("sec-fetch-site", "cross-site", 403),
        ("accept", "*/*", 200),
    ] {
        let head = head("/", &[("host", "localhost:1"), (header, value)]);
        assert_eq!(status(access.check_origin(&head)), expected, "{header}: {value}");
    }
}

#[test]
fn acting_takes_the_token_and_reading_takes_it_from_elsewhere() {
    let (_folder, access) = access(&["status.example"], Some(&format!("{TOKEN}\n")));
    let mut access = access.unwrap();
    let given = |host: &str, given: &str| head("/", &[("host", host), ("authorization", given)]);
    let right = format!("Bearer {TOKEN}");
    assert_eq!(access.check_token(&to("localhost")), Ok(Standing::Reader));
    assert_eq!(access.check_token(&given("localhost", &right)), Ok(Standing::Holder));
    assert_eq!(status(access.check_action(&to("localhost"))), 401);
    assert_eq!(status(access.check_action(&given("localhost", &right))), 200);
    for wrong in
        [TOKEN, "Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "bearer 0123456789abcdef"]
    {
        assert_eq!(status(access.check_token(&given("localhost", wrong))), 401, "{wrong}");
        assert_eq!(status(access.check_action(&given("localhost", wrong))), 401, "{wrong}");
    }
    // From a proxy, under a name, or from another host: nobody reads without it.
    for (header, value) in [("forwarded", "for=1.2.3.4"), ("x-forwarded-for", "1.2.3.4")] {
        assert_eq!(status(access.check_token(&head("/", &[("host", "localhost"), (header, value)]))), 401);
    }
    assert_eq!(status(access.check_token(&to("status.example"))), 401);
    access.listens_at("0.0.0.0".parse().unwrap());
    assert_eq!(status(access.check_token(&to("127.0.0.1"))), 401);
    assert_eq!(status(access.check_token(&given("127.0.0.1", &right))), 200);
    access.listens_at("::ffff:127.0.0.1".parse().unwrap());
    assert_eq!(status(access.check_token(&to("[::1]"))), 200);
}

#[test]
fn without_a_token_nobody_acts_and_only_this_host_reads() {
    let (_folder, access) = access(&[], None);
    let mut access = access.unwrap();
    let guess = head("/", &[("host", "localhost"), ("authorization", "Bearer ")]);
    assert_eq!([status(access.check_token(&guess)), status(access.check_action(&guess))], [200, 403]);
    access.listens_at("10.0.0.1".parse().unwrap());
    assert_eq!(status(access.check_token(&to("10.0.0.1"))), 403);
}

#[test]
fn a_token_that_can_be_guessed_or_not_be_read_is_one_sentence() {
    assert!(access(&[], Some("short")).1.err().unwrap().contains("has less than 16 characters"));
    assert!(access(&[], Some("")).1.err().unwrap().contains("it is empty"));
    let missing = Access::new(Vec::new(), Some(Path::new("/no/such"))).err().unwrap();
    assert!(missing.contains("'/no/such': No such file"), "{missing}");
}
