//! Values that must never be printed, and texts that might hold one.

use std::{borrow::Cow, fmt};

/// A text that neither `Debug` nor `Display` shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself: not for logs, errors or command lines.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Names with values that are not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretPairs(Vec<(String, String)>);

impl SecretPairs {
    pub fn new(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }

    /// The values too: not for logs, errors or command lines.
    pub fn expose(&self) -> &[(String, String)] {
        &self.0
    }
}

impl fmt::Debug for SecretPairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(name, _)| (name, "***"))).finish()
    }
}

/// A broker's URL as it was written. `Debug` and `Display` show scheme, host, port and vhost only.
#[derive(Clone, PartialEq, Eq)]
pub struct BrokerUrl(Secret);

impl BrokerUrl {
    pub fn new(url: impl Into<String>) -> Self {
        Self(Secret::new(url))
    }

    /// The URL with its credentials: not for logs, errors or command lines.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// Whether the URL holds a password beside the user's name.
    pub fn has_password(&self) -> bool {
        let Some((_, rest)) = self.expose().split_once("://") else { return false };
        let authority = rest.split('/').next().unwrap_or_default();
        authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    }
}

/// What is left after everything up to the last `@` and the query are gone. A remainder that does
/// not look like `host[:port][/vhost]` may be a mistyped password and is not shown.
impl fmt::Display for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.expose();
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        if !matches!(scheme, "amqp" | "amqps") {
            return f.write_str("***");
        }
        let (user, rest) = match rest.rsplit_once('@') {
            Some((_, rest)) => ("***@", rest),
            None => ("", rest),
        };
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let authority = rest.split('/').next().unwrap_or_default();
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (authority, ""),
        };
        let host_ok = host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c));
        let port_ok = port.len() <= 5 && port.chars().all(|c| c.is_ascii_digit());
        if host_ok && port_ok { write!(f, "{scheme}://{user}{rest}") } else { write!(f, "{scheme}://***") }
    }
}

impl fmt::Debug for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The text with the credentials of every URL in it replaced: on each line, whatever stands between
/// the first `://` and the last `@`. Takes out too much rather than too little.
pub fn without_credentials(text: &str) -> Cow<'_, str> {
    if !(text.contains("://") && text.contains('@')) {
        return Cow::Borrowed(text);
    }
    let line = |line: &str| match (line.find("://"), line.rfind('@')) {
        (Some(start), Some(end)) if start + 3 <= end => {
            format!("{}***{}", &line[..start + 3], &line[end..])
        }
        _ => line.to_owned(),
    };
    Cow::Owned(text.split('\n').map(line).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_url_is_shown_without_its_credentials() {
        for (url, shown) in [
            ("amqp://127.0.0.1:5672", "amqp://127.0.0.1:5672"),
            ("amqp://u:hidden@h:5672/a%2fb?heartbeat=5", "amqp://***@h:5672/a%2fb"),
            ("amqps://u:hid@den/#?@[::1]:5671", "amqps://***@[::1]:5671"),
            ("amqp://u:hidden#h", "amqp://***"),
            ("amqp://u:hidden", "amqp://***"),
            ("http://u:hidden@h", "***"),
            ("u:hidden@h", "***"),
            ("", "***"),
        ] {
            let url = BrokerUrl::new(url);
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), shown);
        }
        assert_eq!(format!("{:?} {0}", Secret::new("hidden")), "*** ***");
    }

    #[test]
    fn a_password_in_the_url_is_noticed() {
        for (url, expected) in [
            ("amqp://u:p@h", true),
            ("amqp://u@h:5672", false),
            ("amqp://h:5672/a@b", false),
            ("amqp://u:@h", true),
            ("nothing", false),
        ] {
            assert_eq!(BrokerUrl::new(url).has_password(), expected, "{url}");
        }
    }

    #[test]
    fn credentials_are_taken_out_of_a_text() {
        assert_eq!(without_credentials("no URL @ all"), "no URL @ all");
        assert_eq!(
            without_credentials("error: 'amqp://u:a b'c@d@h'\nfor mail@host see http://x"),
            "error: 'amqp://***@h'\nfor mail@host see http://x"
        );
    }
}
