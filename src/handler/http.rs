//! A POST for each message: the body as it came, the metadata in headers, the answer's status as the verdict.
//!
//! One run is one request: nothing here, and nothing below, sends a message twice by itself. 2xx is
//! done; 408, 409, 425, 429 and 5xx retry; any other 4xx, and 3xx, give up (see `answer`). An
//! endpoint that cannot be reached, so that nothing was sent, says nothing about the message; a
//! connection lost after that is a failed attempt, since the endpoint may have worked.
//!
//! At the drain deadline the request is dropped, and so is its connection. The endpoint is not told
//! and may do its work to the end, as after a crash: the same key comes again, so an endpoint that
//! remembers `Idempotency-Key` does nothing twice.

mod answer;
mod endpoint;
mod request;
mod retry_after;
mod signature;

use std::{fmt, path::Path, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use reqwest::{Client, ClientBuilder, redirect, retry};
use tokio::time::{Instant, timeout, timeout_at};

use super::{Handler, Verdict, Work};
use crate::secret_file::{BearerToken, SecretFile};
use endpoint::Endpoint;
use request::StaticHeaders;
use signature::SigningKeys;

pub(crate) use answer::causes;
pub use endpoint::shown;

/// What to post to, and how.
#[derive(Clone, Copy)]
pub struct HttpOptions<'a> {
    /// `http://` or `https://`; a user and password in it become basic authentication.
    pub url: &'a str,
    /// Sent with every request, beside what describes the message.
    pub headers: &'a [(String, String)],
    /// Its text is sent as `Authorization: Bearer …`.
    pub bearer_token_file: Option<&'a Path>,
    /// One or several secrets to sign with, by the Standard Webhooks scheme.
    pub signature_secret_file: Option<&'a Path>,
    /// For one whole run: connect, send, and the answer.
    pub timeout: Duration,
}

/// Posts messages to one endpoint, over a pool of connections.
#[derive(Clone)]
pub struct Http {
    spec: Arc<Spec>,
}

struct Spec {
    client: Client,
    endpoint: Endpoint,
    headers: StaticHeaders,
    bearer_token: Option<SecretFile<BearerToken>>,
    signing_keys: Option<SecretFile<SigningKeys>>,
    timeout: Duration,
}

/// For name lookup, TCP and TLS together; at most half of a run's time, so that an endpoint that does
/// not answer its phone is told apart from one that is slow.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// Common servers close an idle connection after 2 s or more. Ours is gone before that, since a
/// request that crosses with the server's close is a failed attempt.
const IDLE_CONNECTION: Duration = Duration::from_millis(1500);

/// A dead HTTP/2 connection is noticed within two of these.
const PING_INTERVAL: Duration = Duration::from_secs(10);

impl Http {
    /// # Errors
    ///
    /// One sentence on what is wrong with the options; no part of the URL or of a header's value is
    /// in it.
    pub fn new(options: &HttpOptions<'_>) -> Result<Self, String> {
        let endpoint = Endpoint::parse(options.url)?;
        let headers = StaticHeaders::parse(options.headers)?;
        let ways = usize::from(endpoint.has_credentials())
            + usize::from(options.bearer_token_file.is_some())
            + usize::from(headers.authorize());
        if ways > 1 {
            return Err("http: more than one of a user in the URL, a bearer token and an Authorization \
                        header: keep one of them"
                .to_owned());
        }
        let client = client(&endpoint, options.timeout)?;
        let spec = Spec {
            client,
            endpoint,
            headers,
            bearer_token: options.bearer_token_file.map(SecretFile::new),
            signing_keys: options.signature_secret_file.map(SecretFile::new),
            timeout: options.timeout,
        };
        Ok(Self { spec: Arc::new(spec) })
    }
}

/// The URL and the headers may hold secrets.
impl fmt::Debug for HttpOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions").field("url", &shown(self.url)).finish_non_exhaustive()
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("url", &self.spec.endpoint.to_string()).finish_non_exhaustive()
    }
}

/// A client for requests of this process's own to another URL: the same trust, no proxies, no redirects.
///
/// # Errors
///
/// What is wrong with the URL, without any part of it.
#[cfg(feature = "otel")]
pub(crate) fn client_for(url: &str, limit: Duration) -> Result<Client, String> {
    client(&Endpoint::parse(url)?, limit)
}

/// Everything that could send a request again, elsewhere or otherwise is switched off.
///
/// What stays is hyper's own: a request that met a closed pooled connection before a byte of it was
/// written goes to another connection.
fn client(endpoint: &Endpoint, limit: Duration) -> Result<Client, String> {
    let mut builder = ClientBuilder::new()
        .retry(retry::never())
        .redirect(redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .connect_timeout(connect_timeout(limit))
        .pool_idle_timeout(IDLE_CONNECTION)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_INTERVAL);
    builder = match endpoint.tls() {
        Some(tls) => builder.tls_backend_preconfigured(tls.clone()),
        // Without this, the system's certificates would be needed for plain HTTP.
        None => builder.tls_backend_preconfigured(endpoint::trusting_nobody()?),
    };
    builder.build().map_err(|error| format!("http: {}", causes(&error)))
}

fn connect_timeout(limit: Duration) -> Duration {
    CONNECT_TIMEOUT_MAX.min(limit / 2)
}

impl Handler for Http {
    fn handle(&self, work: Work) -> BoxFuture<'static, Verdict> {
        let spec = self.spec.clone();
        Box::pin(async move { spec.run(work).await })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { self.spec.secrets().map(drop) })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            self.spec.secrets()?;
            let limit = connect_timeout(self.spec.timeout);
            match timeout(limit, self.spec.endpoint.connect()).await {
                Ok(result) => result,
                Err(_) => Err(self.spec.endpoint.unreachable("timed out")),
            }
        })
    }

    fn guarantee(&self) -> &'static str {
        "each message is posted until it is answered with 2xx once; a crash between that answer and the ledger's commit, or an answer that is lost, posts it again under the same Idempotency-Key"
    }
}

impl Spec {
    async fn run(&self, mut work: Work) -> Verdict {
        let secrets = match self.secrets() {
            Ok(secrets) => secrets,
            Err(error) => return Verdict::CannotStart { error },
        };
        let request = request::build(&self.client, self.endpoint.url(), &self.headers, &secrets, &work);
        let request = match request {
            Ok(request) => request,
            // Only what the message brought can be wrong here.
            Err(error) => {
                return Verdict::GiveUp { error: format!("no request can hold it: {}", causes(&error)) };
            }
        };
        let deadline = Instant::now() + self.timeout;
        let answered = tokio::select! {
            biased;
            answered = timeout_at(deadline, self.client.execute(request)) => answered,
            // An error means that the worker is gone, which is a stop as well.
            _ = work.stop.wait_for(|stop| *stop) => return Verdict::Stopped,
        };
        match answered {
            // The verdict is known by now, so no stop can change it.
            Ok(Ok(response)) => answer::verdict(response, deadline).await,
            Ok(Err(error)) if error.is_connect() => {
                Verdict::CannotStart { error: self.endpoint.unreachable(&causes(&error)) }
            }
            Ok(Err(error)) => Verdict::Retry {
                error: format!("no answer from {}: {}", self.endpoint, causes(&error)),
                after: None,
            },
            Err(_) => {
                let limit = humantime::format_duration(self.timeout);
                let error = format!("timed out after {limit} without an answer from {}", self.endpoint);
                Verdict::Retry { error, after: None }
            }
        }
    }

    fn secrets(&self) -> Result<request::Secrets, String> {
        Ok(request::Secrets {
            bearer_token: self.bearer_token.as_ref().map(SecretFile::read).transpose()?,
            signing_keys: self.signing_keys.as_ref().map(SecretFile::read).transpose()?,
        })
    }
}
