//! Where messages are posted to, and whether somebody listens there.

use std::{fmt, sync::Arc};

use reqwest::Url;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName},
};

const FORM: &str = "write http://HOST:PORT/PATH or https://…";

/// A URL with all that a connection to it needs. `Display` shows scheme, host and port only: a path
/// or a query may hold a secret as well.
pub(super) struct Endpoint {
    url: Url,
    tls: Option<ClientConfig>,
}

/// A URL as it may be logged: scheme, host and port.
pub fn shown(url: &str) -> String {
    Url::parse(url).map_or_else(|_| "***".to_owned(), |url| url.origin().ascii_serialization())
}

impl Endpoint {
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let url =
            Url::parse(url).map_err(|error| format!("http: the URL cannot be read ({error}): {FORM}"))?;
        let tls = match url.scheme() {
            "http" => None,
            "https" => Some(trusting_the_system()?),
            _ => return Err(format!("http: the URL is neither http nor https: {FORM}")),
        };
        Ok(Self { url, tls })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    pub(super) fn tls(&self) -> Option<&ClientConfig> {
        self.tls.as_ref()
    }

    pub(super) fn has_credentials(&self) -> bool {
        !self.url.username().is_empty() || self.url.password().is_some()
    }

    /// Opens a connection, TLS included, as far as a request could be sent, and closes it.
    pub(super) async fn connect(&self) -> Result<(), String> {
        let host = self.url.host_str().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        // Both schemes have a port of their own.
        let port = self.url.port_or_known_default().unwrap_or_default();
        let failed = |error: std::io::Error| self.unreachable(&error.to_string());
        let stream = TcpStream::connect((host, port)).await.map_err(failed)?;
        if let Some(tls) = &self.tls {
            let name = ServerName::try_from(host.to_owned())
                .map_err(|error| self.unreachable(&error.to_string()))?;
            TlsConnector::from(Arc::new(tls.clone())).connect(name, stream).await.map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn unreachable(&self, why: &str) -> String {
        format!("cannot reach {self}: {why}")
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url.origin().ascii_serialization())
    }
}

/// The system's certificate authorities, or those in `SSL_CERT_FILE` and `SSL_CERT_DIR`.
fn trusting_the_system() -> Result<ClientConfig, String> {
    let failed = |error| format!("http: TLS cannot be used: {error}: install the system's CA certificates");
    let mut tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(failed)?
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

/// For a client that never speaks TLS.
pub(super) fn trusting_nobody() -> Result<ClientConfig, String> {
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("http: TLS cannot be used: {error}"))?;
    Ok(tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_urls_are_taken_and_no_error_shows_one() {
        for url in [
            "",
            "localhost:80/hidden",
            "ftp://u:hidden@h",
            "http://",
            "http://u:hidden@h:port",
            "http:hidden",
        ] {
            if let Ok(endpoint) = Endpoint::parse(url) {
                // WHATWG's reading: the scheme's slashes may be missing.
                assert_eq!((url, endpoint.to_string().as_str()), ("http:hidden", "http://hidden"));
                continue;
            }
            let error = Endpoint::parse(url).err().unwrap();
            assert!(error.contains("write http://HOST") && !error.contains("hidden"), "{url}: {error}");
        }
    }

    #[test]
    fn an_endpoint_is_shown_without_user_path_and_query() {
        for (url, expected) in [
            ("http://user:hidden@host:8080/hidden?hidden", "http://host:8080"),
            ("http://[::1]/hidden", "http://[::1]"),
        ] {
            assert_eq!(Endpoint::parse(url).unwrap().to_string(), expected);
            assert_eq!(shown(url), expected);
        }
        assert_eq!(shown("https://u:hidden@host/x"), "https://host");
        assert_eq!(shown("hidden"), "***");
    }
}
