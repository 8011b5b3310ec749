//! TLS to a broker: the files that its URL names, and what its failures mean.

use std::{io, path::Path};

use lapin::tcp::{OwnedIdentity, OwnedTLSConfig};

use crate::broker::{BrokerError, Endpoint, Kind};

/// How the TLS library words what the other side says before it hangs up.
const ALERT: &str = "received fatal alert: ";
/// What a broker says about our certificate, or its absence. (Its own one is judged by us.)
const ABOUT_OURS: [&str; 8] = [
    "CertificateRequired",
    "BadCertificate",
    "UnsupportedCertificate",
    "CertificateRevoked",
    "CertificateExpired",
    "CertificateUnknown",
    "UnknownCA",
    "AccessDenied",
];
/// Before TLS 1.3 a missing certificate has no word of its own.
const ABOUT_NONE: &str = "HandshakeFailure";

/// Reads the PEM files that the URL names.
pub(super) fn config(endpoint: &Endpoint) -> Result<OwnedTLSConfig, BrokerError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| {
            BrokerError::new(Kind::Setup, format!("cannot read the TLS file {}: {error}", path.display()))
        })
    };
    let files = &endpoint.tls_files;
    let cert_chain = match &files.cacertfile {
        Some(path) => Some(String::from_utf8(read(path)?).map_err(|_| {
            BrokerError::new(Kind::Setup, format!("the TLS file {} is not PEM", path.display()))
        })?),
        None => None,
    };
    let identity = match (&files.certfile, &files.keyfile) {
        (Some(certificate), Some(key)) => {
            Some(OwnedIdentity::PKCS8 { pem: read(certificate)?, key: read(key)? })
        }
        _ => None,
    };
    Ok(OwnedTLSConfig { identity, cert_chain })
}

/// A certificate stays as wrong as it is; a connection that breaks in between may do better.
pub(super) fn failed(has_certificate: bool, error: &io::Error) -> BrokerError {
    if let Some(refused) = refused(has_certificate, error) {
        return refused;
    }
    match error.kind() {
        io::ErrorKind::InvalidData => BrokerError::new(
            Kind::Tls,
            format!("TLS failed: {error} (is it a TLS port, and cacertfile the authority that signed it?)"),
        ),
        _ => BrokerError::new(Kind::Unreachable, format!("TLS failed: {error}")),
    }
}

/// If it is our certificate that the broker does not accept: which one, and what to do.
pub(super) fn refused(has_certificate: bool, error: &io::Error) -> Option<BrokerError> {
    let text = error.to_string();
    let alert = text.strip_prefix(ALERT)?;
    let message = match (has_certificate, ABOUT_OURS.contains(&alert), alert == ABOUT_NONE) {
        (true, true, _) => format!(
            "the broker refuses the client certificate in certfile ({alert}): is it in date, and of an authority that the broker trusts?"
        ),
        (false, true, _) | (false, _, true) => format!(
            "the broker wants a client certificate ({alert}): name one in the URL, with certfile and keyfile"
        ),
        (true, false, _) | (false, false, false) => return None,
    };
    Some(BrokerError::new(Kind::Tls, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_about_our_certificate_is_told_from_other_failures() {
        let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
        for (has_certificate, text, says) in [
            (
                false,
                "received fatal alert: CertificateRequired",
                "wants a client certificate (CertificateRequired)",
            ),
            (
                false,
                "received fatal alert: HandshakeFailure",
                "wants a client certificate (HandshakeFailure)",
            ),
            (
                true,
                "received fatal alert: UnknownCA",
                "refuses the client certificate in certfile (UnknownCA)",
            ),
            (
                true,
                "received fatal alert: HandshakeFailure",
                "TLS failed: received fatal alert: HandshakeFailure",
            ),
            (false, "invalid peer certificate: UnknownIssuer", "TLS failed: invalid peer certificate"),
        ] {
            let error = failed(has_certificate, &invalid(text));
            assert!(error.kind() == Kind::Tls && error.to_string().contains(says), "{error}");
        }
        let broken = failed(false, &io::Error::from(io::ErrorKind::ConnectionReset));
        assert_eq!(broken.kind(), Kind::Unreachable);
    }
}
