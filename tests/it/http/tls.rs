//! The http handler over TLS, where HTTP/2 is spoken.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer},
};

use crate::harness::{World, until};

/// An authority of the test's own, in PEM, and a server for `localhost` that it vouches for.
fn authority_and_server() -> (String, Arc<ServerConfig>) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = authority.self_signed(&authority_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let certificate =
        CertificateParams::new(vec!["localhost".into()]).unwrap().signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (pem, Arc::new(server))
}

/// A request's key, attempt and body.
type Seen = (String, String, Vec<u8>);

/// TLS and HTTP/2 work with the authorities of the environment. A stream that the server refuses, which
/// a client may send again by itself, is one POST and one attempt (K74). Without trust the worker
/// pauses: nothing was sent (K75).
#[tokio::test(flavor = "multi_thread")]
async fn each_attempt_is_one_post_over_http_2_as_well() {
    let world = World::new("https").await;
    let (pem, server) = authority_and_server();
    let authorities = world.path("authority.pem");
    std::fs::write(&authorities, pem).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/hook", listener.local_addr().unwrap().port());
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let accepted = Arc::new(AtomicUsize::new(0));
    let (kept, counted) = (seen.clone(), accepted.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let (acceptor, kept) = (TlsAcceptor::from(server.clone()), kept.clone());
            tokio::spawn(async move {
                // A client that does not trust us ends here, and a probe below.
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let text = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
                    let (key, attempt) = (text("idempotency-key"), text("ackonce-attempt"));
                    let refuse = key == "refused" && attempt == "1";
                    kept.lock().unwrap().push((key, attempt, Vec::new()));
                    if refuse {
                        respond.send_reset(h2::Reason::REFUSED_STREAM);
                        continue;
                    }
                    let kept = kept.clone();
                    let index = kept.lock().unwrap().len() - 1;
                    tokio::spawn(async move {
                        let mut body = request.into_body();
                        while let Some(Ok(data)) = body.data().await {
                            kept.lock().unwrap()[index].2.extend_from_slice(&data);
                            let _ = body.flow_control().release_capacity(data.len());
                        }
                        let mut stream = respond.send_response(http::Response::new(()), false).unwrap();
                        stream.send_data(Bytes::from_static(b"ok"), true).unwrap();
                    });
                }
            });
        }
    });
    let large = vec![7; 1024 * 1024];
    world.publish("large", &large).await;
    world.publish("refused", b"x").await;

    let worker = world.worker(&["--http", &url]);
    worker.until_said("paused, no attempt is used: cannot reach https://localhost").await;
    until("it goes on probing", crate::harness::LIMIT, async || accepted.load(Ordering::SeqCst) >= 3).await;
    assert_eq!(worker.said().matches("paused, no attempt is used").count(), 1, "{}", worker.said());
    worker.terminate().await.expect_exit(0).expect_said("certificate");
    assert_eq!(world.rows(), []);

    let worker = world.worker_with(
        |command| {
            command.env("SSL_CERT_FILE", &authorities).env_remove("SSL_CERT_DIR");
        },
        &["--http", &url, "--initial-interval", "20ms", "--max-attempts", "3"],
    );
    world.until_state("done", 2).await;
    world.stop_and_find_nothing_left(worker).await;
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    let expected = [
        ("large".to_owned(), "1".to_owned(), large),
        ("refused".to_owned(), "1".to_owned(), Vec::new()),
        ("refused".to_owned(), "2".to_owned(), b"x".to_vec()),
    ];
    assert!(seen == expected, "{:?}", seen.iter().map(|(k, a, b)| (k, a, b.len())).collect::<Vec<_>>());
}
