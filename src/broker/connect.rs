//! One connection to a broker, with a time limit on every step, that can always be cut.
//!
//! lapin bounds nothing: neither its connect nor its handshake, and while the broker has blocked a
//! connection it cannot even close it. So we keep a second handle of the socket: shutting that down
//! ends lapin's input/output thread whatever it waits for.

mod dial;
mod greet;
mod tls;

use std::{
    fmt,
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use lapin::{ConnectionProperties, Event};
use tokio::{sync::watch, time::timeout};

pub use greet::greeting;

use super::{BrokerError, Endpoint, Kind, error::printable};

/// For one TCP connect to one address, unless the URL says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// From a TCP connection to a usable one, TLS and login included.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// For the name of a host.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// For opening a channel on a connection that works.
const CHANNEL_TIMEOUT: Duration = Duration::from_secs(10);

/// An open connection. Dropping it cuts it at once; [`Connection::close`] says goodbye first.
pub struct Connection {
    lapin: lapin::Connection,
    socket: Socket,
    state: watch::Sender<State>,
    shown: String,
}

/// What a connection's owner waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The broker takes no messages from this connection: its reason. lapin then writes nothing at
    /// all on it, no acknowledgements and no close either.
    pub blocked: Option<String>,
    /// Why the connection ended. It does not come back.
    pub ended: Option<BrokerError>,
}

/// Connects to the first endpoint that lets us in, trying each address of each in turn.
///
/// `purpose` is shown by the broker's management as the connection's name, after "ackonce ".
///
/// # Errors
///
/// The one endpoint's error, or all of them in one line. It is permanent only if each is. Never
/// contains a password.
///
/// # Cancellation
///
/// Dropping the future cuts what it had opened.
pub async fn connect(endpoints: &[Endpoint], purpose: &str) -> Result<Connection, BrokerError> {
    let mut errors = Vec::new();
    for endpoint in endpoints {
        match connect_one(endpoint, purpose).await {
            Ok(connection) => return Ok(connection),
            Err(error) => errors.push(error.context(endpoint)),
        }
    }
    Err(sum_up(errors))
}

impl Connection {
    /// Opens a channel.
    ///
    /// # Errors
    ///
    /// [`Kind::Lost`], or [`Kind::Timeout`] after ten seconds.
    pub(super) async fn channel(&self) -> Result<lapin::Channel, BrokerError> {
        match timeout(CHANNEL_TIMEOUT, self.lapin.create_channel()).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(error)) => Err(self.why_ended().unwrap_or_else(|| BrokerError::from_lapin(&error))),
            Err(_) => Err(match self.blocked() {
                Some(reason) => BrokerError::new(Kind::Blocked, format!("the broker blocks us: {reason}")),
                None => BrokerError::new(Kind::Timeout, "opening a channel timed out"),
            }),
        }
    }

    /// Whether the broker blocks this connection, and whether it has ended, as it changes.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// The broker's reason if it blocks this connection now.
    pub fn blocked(&self) -> Option<String> {
        self.state.borrow().blocked.clone()
    }

    /// Can still be used, as far as is known.
    pub fn is_open(&self) -> bool {
        self.lapin.status().connected() && self.state.borrow().ended.is_none()
    }

    /// Why it ended, if it has.
    pub fn why_ended(&self) -> Option<BrokerError> {
        self.state.borrow().ended.clone()
    }

    /// The largest frame agreed on, in bytes: one message's properties must fit in one.
    pub fn frame_max_bytes(&self) -> usize {
        self.lapin.configuration().frame_max() as usize
    }

    /// Says goodbye within `limit`, then cuts. Never fails: there is nothing a caller could do.
    pub async fn close(&self, limit: Duration) {
        if self.is_open() && self.blocked().is_none() {
            // Whatever this answers, there is nothing left to do but to cut.
            let _ = timeout(limit, self.lapin.close(200, "OK".into())).await;
        }
        self.cut();
    }

    /// Cuts the connection at once: everything waiting on it fails.
    pub fn cut(&self) {
        self.socket.cut();
        end(&self.state, BrokerError::new(Kind::Lost, "the connection is closed"));
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.shown).finish()
    }
}

/// As a URL without the password.
impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// A second handle of the connection's socket, shut down when dropped.
#[derive(Clone, Debug, Default)]
struct Socket(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner(Mutex<Option<TcpStream>>);

impl Socket {
    fn keep(&self, socket: TcpStream) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
    }

    fn cut(&self) {
        self.0.cut();
    }
}

impl Inner {
    fn cut(&self) {
        if let Some(socket) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Fails only if the other side has closed it already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Cuts a connection whose future was dropped or whose owner is gone.
struct CutOnDrop(Option<Socket>);

impl CutOnDrop {
    fn disarm(mut self) -> Socket {
        self.0.take().unwrap_or_default()
    }
}

impl Drop for CutOnDrop {
    fn drop(&mut self) {
        if let Some(socket) = &self.0 {
            socket.cut();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.cut();
    }
}

async fn connect_one(endpoint: &Endpoint, purpose: &str) -> Result<Connection, BrokerError> {
    let files = tls::config(endpoint)?;
    let mut errors = Vec::new();
    for address in dial::resolve(endpoint, RESOLVE_TIMEOUT).await? {
        let socket = CutOnDrop(Some(Socket::default()));
        let dialed = dial::dial(endpoint, address, files.clone(), properties(purpose), socket).await;
        match dialed {
            Ok((lapin, socket)) => return Ok(watched(lapin, socket, endpoint)),
            // Another address is the same broker or its twin: it would refuse us as well.
            Err(error) if error.kind() == Kind::Refused => return Err(error),
            Err(error) => errors.push(error),
        }
    }
    errors.dedup();
    Err(sum_up(errors))
}

fn properties(purpose: &str) -> ConnectionProperties {
    ConnectionProperties::default()
        .with_connection_name(format!("ackonce {purpose}").into())
        .with_client_property("product".into(), "ackonce".into())
        .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into())
}

/// Publishes the connection's events; the task ends with the connection.
fn watched(lapin: lapin::Connection, socket: Socket, endpoint: &Endpoint) -> Connection {
    let state = watch::Sender::new(State::default());
    let sender = state.clone();
    // The one listener: several would share a queue and each see only a part.
    let mut events = Box::pin(lapin.events_listener());
    let status = lapin.status().clone();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            match event {
                Event::ConnectionBlocked(reason) => {
                    sender.send_modify(|state| state.blocked = Some(printable(&reason)));
                }
                Event::ConnectionUnblocked => sender.send_modify(|state| state.blocked = None),
                // A channel's error is told as well; only the connection's is ours to tell.
                Event::Error(error) if !status.connected() => {
                    return end(&sender, lost(&error));
                }
                _ => {}
            }
        }
    });
    Connection { lapin, socket, state, shown: endpoint.to_string() }
}

/// Completes when the connection has ended: why.
pub(super) async fn ended(state: &mut watch::Receiver<State>) -> BrokerError {
    match state.wait_for(|state| state.ended.is_some()).await {
        Ok(state) => state.ended.clone(),
        Err(_) => None,
    }
    .unwrap_or_else(|| BrokerError::new(Kind::Lost, "the connection is closed"))
}

/// The first reason stays.
fn end(state: &watch::Sender<State>, why: BrokerError) {
    state.send_modify(|state| {
        state.ended.get_or_insert(why);
    });
}

/// A connection that has worked is lost, whatever the broker says: it may be had again.
fn lost(error: &lapin::Error) -> BrokerError {
    let error = BrokerError::from_lapin(error);
    if error.kind() == Kind::Lost { error } else { BrokerError::new(Kind::Lost, error.to_string()) }
}

fn sum_up(mut errors: Vec<BrokerError>) -> BrokerError {
    if errors.len() <= 1 {
        return errors.pop().unwrap_or_else(|| BrokerError::new(Kind::Setup, "no broker URL is given"));
    }
    let decisive = errors.iter().find(|error| !error.is_permanent()).unwrap_or(&errors[0]);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    BrokerError::new(decisive.kind(), texts.join("; "))
}
