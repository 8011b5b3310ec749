//! An HTTP/1.1 server that a test scripts byte by byte, and that remembers all it was sent.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::TcpListener,
    task::{JoinHandle, JoinSet},
};

use super::{LIMIT, until};

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// Counts connections from 1.
    pub connection: usize,
    pub at: Instant,
    pub line: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// What follows a request.
#[derive(Clone)]
pub enum Reply {
    /// These bytes; the connection stays.
    Bytes(String),
    /// These bytes, and the connection's end.
    Last(String),
    /// This head, and a body without end.
    Endless(String),
    /// A byte every 50 ms, for ever.
    Trickle,
}

type Script = dyn Fn(&Request) -> Reply + Send + Sync;

/// Dropping it closes its port and all its connections.
pub struct Endpoint {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    /// Of endless bodies.
    pub sent_bytes: Arc<AtomicU64>,
    serving: JoinHandle<()>,
}

/// An answer with that status, further header lines (each with its line end) and body.
pub fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

impl Reply {
    pub fn status(status: &str) -> Self {
        Self::Bytes(answer(status, "", ""))
    }
}

impl Endpoint {
    pub async fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), script).await
    }

    /// On an address that an earlier one had.
    pub async fn at(address: SocketAddr, script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let mut connections = 0;
        let sent_bytes = Arc::new(AtomicU64::new(0));
        let (kept, sent) = (requests.clone(), sent_bytes.clone());
        let script: Arc<Script> = Arc::new(script);
        let serving = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections += 1;
                open.spawn(serve(stream, connections, kept.clone(), sent.clone(), script.clone()));
            }
        });
        Self { address, requests, sent_bytes, serving }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook?x=1", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub async fn until_requests(&self, count: usize) {
        until(&format!("{count} requests have come"), LIMIT, async || self.requests().len() >= count).await;
    }

    /// Each request's key and attempt, in the order of their coming.
    pub fn attempts(&self) -> Vec<(String, String)> {
        let pair = |request: &Request| (request.header("idempotency-key"), request.header("ackonce-attempt"));
        self.requests().iter().map(pair).collect()
    }

    /// Closes the port and all connections, and waits for that.
    pub async fn stop(mut self) -> SocketAddr {
        self.serving.abort();
        let _ = (&mut self.serving).await;
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Request {
    /// Empty if it is absent.
    pub fn header(&self, name: &str) -> String {
        let mut values =
            self.headers.iter().filter(|(found, _)| found == name).map(|(_, value)| value.clone());
        let value = values.next().unwrap_or_default();
        assert_eq!(values.next(), None, "{name} came twice");
        value
    }

    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(found, _)| found == name)
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    kept: Arc<Mutex<Vec<Request>>>,
    sent: Arc<AtomicU64>,
    script: Arc<Script>,
) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream, connection).await {
        kept.lock().unwrap().push(request.clone());
        match script(&request) {
            Reply::Bytes(bytes) => {
                if stream.write_all(bytes.as_bytes()).await.is_err() {
                    return;
                }
            }
            Reply::Last(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
                return;
            }
            Reply::Endless(head) => {
                let chunk = vec![b'x'; 64 * 1024];
                let _ = stream.write_all(head.as_bytes()).await;
                while stream.write_all(&chunk).await.is_ok() {
                    sent.fetch_add(chunk.len() as u64, Ordering::SeqCst);
                }
                return;
            }
            Reply::Trickle => {
                while stream.write_all(b"H").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                return;
            }
        }
    }
}

/// `None` at the connection's end; half a request is none.
async fn read(stream: &mut (impl AsyncBufReadExt + Unpin), connection: usize) -> Option<Request> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|length| *length > 0)?;
        let line = line.trim_end_matches("\r\n").to_owned();
        if line.is_empty() {
            break;
        }
        head.push(line);
    }
    let headers: Vec<(String, String)> = head[1..]
        .iter()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.expect("a length").1.parse().expect("a number");
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { connection, at: Instant::now(), line: head[0].clone(), headers, body })
}
