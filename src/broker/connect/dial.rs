//! From an endpoint to an open connection: name, TCP, TLS, login.

use std::{
    io,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    os::fd::AsFd,
    time::Duration,
};

use lapin::{AsyncTcpStream, ConnectionProperties, ErrorKind, runtime, tcp::OwnedTLSConfig};
use tokio::{sync::oneshot, time::timeout};

use super::{CONNECT_TIMEOUT, CutOnDrop, HANDSHAKE_TIMEOUT, Socket, tls};
use crate::broker::{BrokerError, Endpoint, Kind};

/// The addresses behind the endpoint's host, in the resolver's order.
pub(super) async fn resolve(endpoint: &Endpoint, limit: Duration) -> Result<Vec<SocketAddr>, BrokerError> {
    let unreachable = |why: String| BrokerError::new(Kind::Unreachable, why);
    let (host, port) = (endpoint.host().to_owned(), endpoint.port());
    let (answer, answered) = oneshot::channel();
    // A thread of its own: a resolver that hangs must not keep the process from ending.
    std::thread::Builder::new()
        .name("resolve".into())
        .spawn(move || {
            // The receiver is gone only if nobody waits any more.
            let _ = answer.send((host.as_str(), port).to_socket_addrs().map(Vec::from_iter));
        })
        .map_err(|error| unreachable(format!("no thread to look the host up: {error}")))?;
    let host = endpoint.host();
    match timeout(limit, answered).await {
        Ok(Ok(Ok(addresses))) if !addresses.is_empty() => Ok(addresses),
        Ok(Ok(Ok(_))) => Err(unreachable(format!("the host name '{host}' has no address"))),
        Ok(Ok(Err(error))) => Err(unreachable(format!("the host name '{host}' is not known: {error}"))),
        Ok(Err(_)) => Err(unreachable(format!("looking up '{host}' failed"))),
        Err(_) => Err(unreachable(format!("looking up '{host}' took longer than {limit:?}"))),
    }
}

/// Opens one connection to one address.
pub(super) async fn dial(
    endpoint: &Endpoint,
    address: SocketAddr,
    files: OwnedTLSConfig,
    properties: ConnectionProperties,
    guard: CutOnDrop,
) -> Result<(lapin::Connection, Socket), BrokerError> {
    let runtime = runtime::default_runtime().map_err(|error| BrokerError::from_lapin(&error))?;
    let connect_limit = endpoint.connect_timeout().unwrap_or(CONNECT_TIMEOUT);
    let (host, use_tls) = (endpoint.host().to_owned(), endpoint.is_tls());
    let has_certificate = files.identity.is_some();
    let socket = guard.0.clone().unwrap_or_default();
    let connecting = lapin::Connection::connector(
        endpoint.to_lapin(),
        runtime,
        // Runs on lapin's input/output thread, so it bounds itself as well.
        async move |_, runtime| {
            let connecting = AsyncTcpStream::connect(&runtime, address);
            let stream = match timeout(connect_limit, connecting).await {
                Ok(connected) => connected.map_err(|error| unreachable(address, &error))?,
                Err(_) => return Err(no_answer(address, connect_limit).into_io().into()),
            };
            if let AsyncTcpStream::Plain(plain) = &stream {
                socket.keep(TcpStream::from(plain.get_ref().as_fd().try_clone_to_owned()?));
            }
            if !use_tls {
                return Ok(stream);
            }
            match timeout(HANDSHAKE_TIMEOUT, stream.into_tls(&host, files.as_ref())).await {
                Ok(stream) => stream.map_err(|error| tls::failed(has_certificate, &error).into_io().into()),
                Err(_) => Err(silent(address).into_io().into()),
            }
        },
        properties,
    );
    match timeout(connect_limit + HANDSHAKE_TIMEOUT, connecting).await {
        Ok(Ok(connection)) => Ok((connection, guard.disarm())),
        Ok(Err(error)) => Err(login_failed(endpoint, address, has_certificate, &error)),
        Err(_) => Err(silent(address)),
    }
}

impl BrokerError {
    /// Through lapin and out again; see [`BrokerError::from_lapin`].
    fn into_io(self) -> io::Error {
        io::Error::other(self)
    }
}

pub(super) fn unreachable(address: SocketAddr, error: &io::Error) -> lapin::Error {
    let message = match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("nothing listens on {address}: is the broker running?"),
        _ => format!("cannot connect to {address}: {error}"),
    };
    BrokerError::new(Kind::Unreachable, message).into_io().into()
}

pub(super) fn no_answer(address: SocketAddr, limit: Duration) -> BrokerError {
    let message = format!("{address} does not answer within {limit:?}: is there a firewall between?");
    BrokerError::new(Kind::Unreachable, message)
}

pub(super) fn silent(address: SocketAddr) -> BrokerError {
    let message =
        format!("{address} accepts connections but does not speak AMQP within {HANDSHAKE_TIMEOUT:?}");
    BrokerError::new(Kind::Timeout, message)
}

/// What listens there hung up at our greeting, or answered it with something else.
pub(super) fn no_amqp(address: SocketAddr) -> BrokerError {
    let message = format!(
        "{address} does not greet as AMQP 0-9-1 does: is it an AMQP port, and with TLS or without as the URL says?"
    );
    BrokerError::new(Kind::Unreachable, message)
}

/// What an error means between the TCP connection and the login.
fn login_failed(
    endpoint: &Endpoint,
    address: SocketAddr,
    has_certificate: bool,
    error: &lapin::Error,
) -> BrokerError {
    // Since TLS 1.3 a broker judges our certificate after the handshake is over for us.
    if let ErrorKind::IOError(error) = error.kind()
        && let Some(refused) = tls::refused(has_certificate, error)
    {
        return refused;
    }
    let told = BrokerError::from_lapin(error);
    let (user, vhost) = (endpoint.user(), endpoint.vhost());
    if let ErrorKind::ProtocolError(reply) = error.kind() {
        let refused = |hint: String| BrokerError::new(Kind::Refused, format!("{hint}; {told}"));
        return match reply.get_id() {
            403 if user == "guest" && !address.ip().is_loopback() => refused(
                "access refused for user 'guest', who may only log in from the broker's own host: use another user"
                    .into(),
            ),
            403 => refused(format!("access refused for user '{user}': wrong user or password?")),
            530 if told.kind() == Kind::Lost => told,
            530 if reply.get_message().as_str().ends_with("not found") => {
                let spell = if vhost.starts_with('/') && vhost.len() > 1 { ", without a leading slash?" } else { "" };
                refused(format!("the vhost '{vhost}' does not exist{spell}"))
            }
            530 => refused(format!("user '{user}' has no access to the vhost '{vhost}'")),
            _ => told,
        };
    }
    match (error.kind(), told.kind()) {
        (ErrorKind::IOError(_), Kind::Lost) | (ErrorKind::InvalidConnectionState(_), _) => BrokerError::new(
            Kind::Unreachable,
            format!(
                "{address} closed the connection during the handshake: is it an AMQP port, and with TLS or without as the URL says?"
            ),
        ),
        (ErrorKind::ParsingError(_), _) => BrokerError::new(
            Kind::Unreachable,
            format!("{address} does not speak AMQP 0-9-1: is it a TLS port (amqps://) or another service?"),
        ),
        _ => told,
    }
}
