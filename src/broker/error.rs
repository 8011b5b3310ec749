//! What goes wrong at a broker: one sentence with a hint, and whether trying again can help.

use std::{fmt, io};

use lapin::{ErrorKind, protocol::AMQPError};

/// A failed operation at the broker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BrokerError {
    kind: Kind,
    message: String,
}

/// What callers branch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No connection could be made: no such host, nothing listens, no route.
    Unreachable,
    /// TLS could not be agreed on.
    Tls,
    /// The broker does not let us in: user, password or vhost.
    Refused,
    /// 404: no such queue or exchange.
    NotFound,
    /// 406: it exists with other arguments, or an argument or limit is not met.
    PreconditionFailed,
    /// 403 on something other than the login: a permission is missing.
    Denied,
    /// 405, or 403 for an exclusive consumer: another one has it for itself, for now.
    Locked,
    /// The broker has raised an alarm and takes no messages from this connection.
    Blocked,
    /// A time limit of ours has passed; what was asked may still happen.
    Timeout,
    /// The connection or channel ended; what was under way may or may not have happened.
    Lost,
    /// A message or a name is larger than AMQP or the broker takes.
    TooLarge,
    /// A file or option on our side cannot be used.
    Setup,
}

impl Kind {
    /// In the order of the variants.
    pub const ALL: [Kind; 12] = [
        Kind::Unreachable,
        Kind::Tls,
        Kind::Refused,
        Kind::NotFound,
        Kind::PreconditionFailed,
        Kind::Denied,
        Kind::Locked,
        Kind::Blocked,
        Kind::Timeout,
        Kind::Lost,
        Kind::TooLarge,
        Kind::Setup,
    ];

    /// A fixed word: a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Unreachable => "unreachable",
            Kind::Tls => "tls",
            Kind::Refused => "refused",
            Kind::NotFound => "not-found",
            Kind::PreconditionFailed => "precondition-failed",
            Kind::Denied => "denied",
            Kind::Locked => "locked",
            Kind::Blocked => "blocked",
            Kind::Timeout => "timeout",
            Kind::Lost => "lost",
            Kind::TooLarge => "too-large",
            Kind::Setup => "setup",
        }
    }
}

impl BrokerError {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Trying the same again cannot help until somebody changes something.
    pub fn is_permanent(&self) -> bool {
        match self.kind {
            Kind::Refused
            | Kind::NotFound
            | Kind::PreconditionFailed
            | Kind::Denied
            | Kind::TooLarge
            | Kind::Tls
            | Kind::Setup => true,
            Kind::Unreachable | Kind::Locked | Kind::Blocked | Kind::Timeout | Kind::Lost => false,
        }
    }

    /// The same error with words before its message: what was being done.
    #[must_use]
    pub fn context(self, what: impl fmt::Display) -> Self {
        Self { kind: self.kind, message: format!("{what}: {}", self.message) }
    }

    /// For whatever lapin answers once a connection is in use.
    pub(super) fn from_lapin(error: &lapin::Error) -> Self {
        match error.kind() {
            ErrorKind::ProtocolError(error) => Self::from_reply(error),
            ErrorKind::IOError(error) | ErrorKind::RuntimeShutdownError(error) => Self::from_io(error),
            ErrorKind::MissingHeartbeatError => {
                Self::new(Kind::Lost, "the connection is lost: the broker sent no heartbeat for too long")
            }
            ErrorKind::ChannelsLimitReached => {
                Self::new(Kind::Lost, "no channel is free: the broker's channel_max is reached")
            }
            ErrorKind::InvalidProtocolVersion(version) => {
                Self::new(Kind::Unreachable, format!("the server speaks AMQP {version}, not 0-9-1"))
            }
            ErrorKind::InvalidChannelState(..) | ErrorKind::InvalidChannel(_) => {
                Self::new(Kind::Lost, "the channel is closed")
            }
            ErrorKind::InvalidConnectionState(_) => Self::new(Kind::Lost, "the connection is closed"),
            ErrorKind::ParsingError(_) => {
                Self::new(Kind::Lost, "the connection is lost: what the server sent is not AMQP 0-9-1")
            }
            ErrorKind::AuthProviderError(error) => Self::new(Kind::Refused, format!("login failed: {error}")),
            other => Self::new(
                Kind::Lost,
                format!("the connection is lost: {}", lapin::Error::from(other.clone())),
            ),
        }
    }

    /// The broker closed a channel or the connection and said why.
    fn from_reply(error: &AMQPError) -> Self {
        let text = printable(error.get_message().as_str());
        let kind = match error.get_id() {
            311 => Kind::TooLarge,
            403 if text.ends_with("in exclusive use") => Kind::Locked,
            403 => Kind::Denied,
            404 => Kind::NotFound,
            405 => Kind::Locked,
            406 if text.contains("larger than configured max size") => Kind::TooLarge,
            406 => Kind::PreconditionFailed,
            // A limit of connections, channels or queues passes; everything else forbidden stays so.
            530 if text.ends_with("is reached") => Kind::Lost,
            530 => Kind::Refused,
            _ => Kind::Lost,
        };
        let hint = hint(kind, &text);
        Self::new(kind, format!("the broker says {} {text}{hint}", error.get_id()))
    }

    fn from_io(error: &io::Error) -> Self {
        // Our own connecting code runs inside lapin and hands its errors out through it.
        if let Some(own) = error.get_ref().and_then(|inner| inner.downcast_ref::<Self>()) {
            return own.clone();
        }
        Self::new(Kind::Lost, format!("the connection is lost: {error}"))
    }
}

/// What to do about what the broker says, where its words leave that open.
fn hint(kind: Kind, text: &str) -> &'static str {
    if text.contains("delivery acknowledgement") && text.contains("timed out") {
        return "; a handler ran for longer than the broker's consumer_timeout: raise that, or lower the worker's timeout";
    }
    // Earlier versions than 4 do not say which permission is missing.
    if kind == Kind::Denied && text.contains("access to queue") {
        return "; consuming it takes read permission, making it takes configure permission: rabbitmqctl set_permissions";
    }
    if kind == Kind::Denied && text.contains("access to exchange") {
        return "; sending there takes write permission on that exchange (amq.default leads to queues by their names): rabbitmqctl set_permissions";
    }
    ""
}

/// One line without control characters: names in a broker's text come from anywhere.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};

    use super::*;

    fn reply(kind: impl Into<AMQPErrorKind>, text: &str) -> BrokerError {
        let error = AMQPError::new(kind.into(), text.into());
        BrokerError::from_lapin(&ErrorKind::ProtocolError(error).into())
    }

    #[test]
    fn the_brokers_words_are_kept_and_sorted_by_what_can_be_done() {
        let missing = reply(AMQPSoftError::NOTFOUND, "NOT_FOUND - no exchange 'x' in vhost '/'");
        assert_eq!(missing.to_string(), "the broker says 404 NOT_FOUND - no exchange 'x' in vhost '/'");
        for (error, kind, permanent) in [
            (missing, Kind::NotFound, true),
            (reply(AMQPSoftError::ACCESSREFUSED, "ACCESS_REFUSED - access to queue"), Kind::Denied, true),
            (reply(AMQPSoftError::ACCESSREFUSED, "queue 'q' in exclusive use"), Kind::Locked, false),
            (reply(AMQPSoftError::RESOURCELOCKED, "RESOURCE_LOCKED"), Kind::Locked, false),
            (reply(AMQPSoftError::PRECONDITIONFAILED, "inequivalent arg"), Kind::PreconditionFailed, true),
            (
                reply(AMQPSoftError::PRECONDITIONFAILED, "message size 2 larger than configured max size 1"),
                Kind::TooLarge,
                true,
            ),
            (reply(AMQPHardError::NOTALLOWED, "vhost x not found"), Kind::Refused, true),
            (reply(AMQPHardError::NOTALLOWED, "connection limit (1) is reached"), Kind::Lost, false),
            (reply(AMQPHardError::CONNECTIONFORCED, "CONNECTION_FORCED - bye"), Kind::Lost, false),
        ] {
            assert_eq!((error.kind(), error.is_permanent()), (kind, permanent), "{error}");
        }
    }

    #[test]
    fn a_missing_permission_is_named() {
        for (text, hint) in [
            ("ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'u'", "read permission"),
            ("ACCESS_REFUSED - configure access to queue 'q' in vhost '/' refused for user 'u'", "configure"),
            ("ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused", "write permission"),
        ] {
            assert!(reply(AMQPSoftError::ACCESSREFUSED, text).to_string().contains(hint), "{text}");
        }
    }

    #[test]
    fn an_error_of_ours_comes_back_out_of_lapin_as_it_went_in() {
        let ours = BrokerError::new(Kind::Tls, "no");
        let through: lapin::Error = io::Error::other(ours.clone()).into();
        assert_eq!(BrokerError::from_lapin(&through), ours);
        let foreign: lapin::Error = io::Error::from(io::ErrorKind::ConnectionReset).into();
        assert_eq!(BrokerError::from_lapin(&foreign).kind(), Kind::Lost);
    }

    #[test]
    fn a_text_stays_on_its_line() {
        assert!(!reply(AMQPSoftError::NOTFOUND, "a\x1b[2J\nb").to_string().contains(char::is_control));
    }
}
