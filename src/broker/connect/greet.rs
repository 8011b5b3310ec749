//! What a broker says of itself before anybody has logged in.

use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use lapin::{
    AsyncTcpStream,
    protocol::{AMQPClass, connection::AMQPMethod, parse_class},
    runtime,
    types::{AMQPValue, FieldTable},
};
use tokio::time::timeout;

use super::{
    CONNECT_TIMEOUT, HANDSHAKE_TIMEOUT, RESOLVE_TIMEOUT,
    dial::{self, no_amqp, no_answer, silent, unreachable},
    sum_up, tls,
};
use crate::broker::{BrokerError, Endpoint, error::printable};

/// The frame that begins a conversation is some hundred bytes; longer ones are no AMQP.
const FRAME_BYTES_MAX: usize = 64 * 1024;
const METHOD_FRAME: u8 = 1;
const FRAME_END: u8 = 0xce;

/// A broker's name and version in its own words, such as `RabbitMQ 3.10.8`.
///
/// # Errors
///
/// Why nothing at the endpoint's addresses speaks AMQP.
///
/// # Cancellation
///
/// Dropping the future closes the connection.
pub async fn greeting(endpoint: &Endpoint) -> Result<String, BrokerError> {
    let mut errors = Vec::new();
    for address in dial::resolve(endpoint, RESOLVE_TIMEOUT).await? {
        let limit = endpoint.connect_timeout().unwrap_or(CONNECT_TIMEOUT);
        match timeout(limit + HANDSHAKE_TIMEOUT, greeted(endpoint, address, limit)).await {
            Ok(Ok(server)) => return Ok(server),
            Ok(Err(error)) => errors.push(error),
            Err(_) => errors.push(silent(address)),
        }
    }
    errors.dedup();
    Err(sum_up(errors))
}

async fn greeted(
    endpoint: &Endpoint,
    address: std::net::SocketAddr,
    limit: Duration,
) -> Result<String, BrokerError> {
    let files = tls::config(endpoint)?;
    let has_certificate = files.identity.is_some();
    let runtime = runtime::default_runtime().map_err(|error| BrokerError::from_lapin(&error))?;
    let mut stream = match timeout(limit, AsyncTcpStream::connect(&runtime, address)).await {
        Ok(connected) => connected.map_err(|error| BrokerError::from_lapin(&unreachable(address, &error)))?,
        Err(_) => return Err(no_answer(address, limit)),
    };
    if endpoint.is_tls() {
        let secured = stream.into_tls(endpoint.host(), files.as_ref()).await;
        stream = secured.map_err(|error| tls::failed(has_certificate, &error))?;
    }
    let lost = |error| tls::refused(has_certificate, &error).unwrap_or_else(|| no_amqp(address));
    // Whoever hangs up amid this has said why before, if at all; so what it said is read, written or not.
    if stream.write_all(b"AMQP\x00\x00\x09\x01").await.is_ok() {
        let _ = stream.flush().await;
    }
    let mut head = [0; 7];
    stream.read_exact(&mut head).await.map_err(lost)?;
    let [kind, _, _, length @ ..] = head;
    let length = u32::from_be_bytes(length) as usize;
    if kind != METHOD_FRAME || length > FRAME_BYTES_MAX {
        return Err(no_amqp(address));
    }
    let mut body = vec![0; length + 1];
    stream.read_exact(&mut body).await.map_err(lost)?;
    if body.pop() != Some(FRAME_END) {
        return Err(no_amqp(address));
    }
    match parse_class(body.as_slice()) {
        Ok((_, AMQPClass::Connection(AMQPMethod::Start(start)))) => Ok(server(&start.server_properties)),
        _ => Err(no_amqp(address)),
    }
}

fn server(properties: &FieldTable) -> String {
    let text = |name: &str| match properties.inner().get(name) {
        Some(AMQPValue::LongString(text)) => printable(&String::from_utf8_lossy(text.as_bytes())),
        _ => String::new(),
    };
    match (text("product"), text("version")) {
        (product, version) if version.is_empty() => {
            format!("{product} of an unknown version").trim().to_owned()
        }
        (product, version) => format!("{product} {version}").trim().to_owned(),
    }
}
