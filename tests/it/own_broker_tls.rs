//! TLS to a broker that has an authority of its own and asks for client certificates; and what is said when something of it
//! is wrong.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::harness::{LIMIT, Node, Process, World, ackonce};

/// An authority, and what it vouches for.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, name);
        let pem = parameters.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(parameters, key) }
    }

    /// A certificate for that name, and its key, both in PEM.
    fn vouch_for(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        (parameters.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// A broker that speaks TLS, and files for it: `ca.pem` and `client.pem` with `client.key` are right; `other.pem`, and
/// `stranger.pem` with `stranger.key`, are of an authority that it does not know.
struct Setup {
    node: Node,
    files: TempDir,
    world: World,
}

impl Setup {
    async fn new(name: &str) -> Self {
        let node = Node::start_new();
        let files = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(files.path().join(name), text).unwrap();
        let (ours, other) = (Authority::new("ours"), Authority::new("other"));
        for (authority, name, file) in
            [(&ours, "localhost", "server"), (&ours, "worker", "client"), (&other, "worker", "stranger")]
        {
            let (certificate, key) = authority.vouch_for(name);
            write(&format!("{file}.pem"), &certificate);
            write(&format!("{file}.key"), &key);
        }
        write("ca.pem", &ours.pem);
        write("other.pem", &other.pem);
        let place = files.path().display();
        node.configure(&format!(
            "listeners.ssl.1 = 127.0.0.1:{}\nssl_options.cacertfile = {place}/ca.pem\n\
             ssl_options.certfile = {place}/server.pem\nssl_options.keyfile = {place}/server.key\n\
             ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n",
            node.spare_port(),
        ));
        let world = World::at(&node.url, name).await;
        Self { node, files, world }
    }

    /// The URL to that host, with the files that are named.
    fn url(&self, host: &str, authority: &str, identity: Option<&str>) -> String {
        let place = self.files.path().display();
        let identity = identity.map_or_else(String::new, |name| {
            format!("&certfile={place}/{name}.pem&keyfile={place}/{name}.key")
        });
        format!("amqps://{host}:{}?cacertfile={place}/{authority}.pem{identity}", self.node.spare_port())
    }

    /// `run` with that URL.
    fn worker(&mut self, url: String) -> Process {
        self.world.url = url;
        self.world.worker(&["--log"])
    }
}

/// A private authority and a client certificate are all it takes, for each command.
#[tokio::test(flavor = "multi_thread")]
async fn own_broker_tls_with_a_private_authority_and_a_client_certificate_works() {
    let mut setup = Setup::new("tls").await;
    let url = setup.url("localhost", "ca", Some("client"));
    for arguments in [
        vec!["publish", "--message-id", "a", "--queue", &setup.world.queue, "--repeat", "2", "x"],
        vec!["check", "--log", "--queue", &setup.world.queue],
    ]
    .into_iter()
    .rev()
    {
        if arguments[0] == "publish" {
            setup.world.declare(&setup.world.queue, "quorum").await;
        }
        let mut command = ackonce();
        command.args(&arguments).env("AMQP_URL", &url).current_dir(setup.world.folder.path());
        Process::start(command, setup.world.folder.path()).ended(LIMIT).await.expect_exit(0);
    }
    let worker = setup.worker(url);
    setup.world.until_state("done", 1).await;
    worker.until_said("consuming from amqps://guest@localhost:").await;
    setup.world.stop_and_find_nothing_left(worker).await;
    assert_eq!(setup.world.rows()[0].duplicates, 1);
}

/// Each mistake ends the first connect with one sentence that names it.
#[tokio::test(flavor = "multi_thread")]
async fn own_broker_tls_each_mistake_is_one_sentence() {
    let mut setup = Setup::new("tls.wrong").await;
    for (host, authority, identity, says) in [
        ("localhost", "other", Some("client"), "TLS failed: invalid peer certificate: UnknownIssuer"),
        ("127.0.0.1", "ca", Some("client"), "certificate not valid for name \"127.0.0.1\""),
        (
            "localhost",
            "ca",
            None,
            "the broker wants a client certificate (CertificateRequired): name one in the URL",
        ),
        (
            "localhost",
            "ca",
            Some("stranger"),
            "the broker refuses the client certificate in certfile (UnknownCA)",
        ),
        ("localhost", "nowhere", Some("client"), "cannot read the TLS file"),
        ("localhost", "client.key#", Some("client"), "broker URL: it holds an unencoded '#'"),
    ] {
        let url = setup.url(host, authority, identity);
        let ended = setup.worker(url.clone()).ended(LIMIT).await;
        let sentence = ended.said.lines().last().unwrap_or_default();
        assert!(sentence.starts_with("ackonce: ") && sentence.contains(says), "{says}: {}", ended.said);
        ended.expect_exit(if says.starts_with("broker URL") { 2 } else { 1 });

        let mut command = ackonce();
        command.args(["check", "--log", "--queue", &setup.world.queue]).env("AMQP_URL", &url);
        let checked = Process::start(command, setup.world.folder.path()).ended(LIMIT).await;
        let all = format!("{}{}", checked.printed, checked.said);
        assert!(all.contains(says) && !checked.status.success(), "{says}: {all}");
    }
}
