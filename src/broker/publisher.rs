//! Confirmed publishing on a connection of its own.
//!
//! A memory alarm blocks whoever publishes, and lapin then writes nothing on that connection: so
//! this is never the connection that consumes. Connecting happens when it is first needed, and
//! again after a loss; what was under way then fails as [`PublishError::Lost`] and is sent again
//! only by whoever asked for it.

mod driver;
mod outgoing;
mod pending;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch},
    time::{Instant, Sleep, sleep_until, timeout_at},
};

use super::{BrokerError, Connection, Endpoint, Kind, connect};
use connect::State;
use driver::{Driver, Job};
use outgoing::Prepared;
pub use outgoing::{Outgoing, PublishError};

/// Bodies in flight at once, together; one larger body goes alone.
const IN_FLIGHT_BYTES_MAX: usize = 64 << 20;
/// Permits count in units of this size: semaphores take 32-bit amounts.
const BYTES_UNIT: usize = 1024;
/// After a failed connect, others who ask within this time get the same answer.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Publishes messages and learns what became of each.
///
/// Dropping it cuts its connection; [`Publisher::close`] says goodbye first.
pub struct Publisher {
    endpoints: Vec<Endpoint>,
    purpose: String,
    window: usize,
    messages: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    link: Mutex<Link>,
}

/// The connection in use, if there is one.
#[derive(Default)]
struct Link {
    live: Option<Live>,
    failed: Option<(Instant, BrokerError)>,
}

#[derive(Clone)]
struct Live {
    connection: Arc<Connection>,
    jobs: mpsc::UnboundedSender<Job>,
}

impl Publisher {
    /// `window` bounds the messages that wait for a confirm at once (at least 1); together their
    /// bodies stay within 64 MiB. Nothing is connected yet.
    pub fn new(endpoints: Vec<Endpoint>, purpose: impl Into<String>, window: usize) -> Self {
        let window = window.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            endpoints,
            purpose: purpose.into(),
            window,
            messages: Arc::new(Semaphore::new(window)),
            bytes: Arc::new(Semaphore::new(IN_FLIGHT_BYTES_MAX / BYTES_UNIT)),
            link: Mutex::new(Link::default()),
        }
    }

    /// Connects now, unless connected: to learn early that it cannot work, or to declare queues.
    ///
    /// # Errors
    ///
    /// Why there is no connection.
    pub async fn connection(&self) -> Result<Arc<Connection>, BrokerError> {
        Ok(self.live().await?.connection)
    }

    /// Publishes one message and waits until the broker has it.
    ///
    /// # Errors
    ///
    /// See [`PublishError`]; after `limit` at the latest.
    ///
    /// # Cancellation
    ///
    /// The message may or may not arrive.
    pub async fn publish(&self, outgoing: Outgoing, limit: Duration) -> Result<(), PublishError> {
        self.send(outgoing, Instant::now() + limit).await?.await
    }

    /// Hands one message over, once the window has room for it, and returns what resolves to its confirm.
    ///
    /// Messages that one caller hands over one after the other reach the broker in that order.
    ///
    /// # Errors
    ///
    /// See [`PublishError`]: in all of them nothing was sent. At `deadline` at the latest.
    ///
    /// # Cancellation
    ///
    /// Nothing was sent.
    pub async fn send(&self, outgoing: Outgoing, deadline: Instant) -> Result<Confirm, PublishError> {
        let prepared = Prepared::new(outgoing)?;
        match timeout_at(deadline, self.hand_over(prepared, deadline)).await {
            Ok(result) => result,
            Err(_) => Err(match self.link.try_lock().map(|link| link.live.clone()) {
                Ok(Some(live)) => late(&live.connection.state().borrow()),
                Ok(None) => PublishError::Timeout,
                Err(_) => PublishError::NotConnected(BrokerError::new(
                    Kind::Timeout,
                    "there was no connection by the deadline",
                )),
            }),
        }
    }

    /// Whether an alarm of the broker's blocks the connection just now.
    pub fn is_blocked(&self) -> bool {
        // While somebody connects there is nothing that could be blocked.
        let Ok(link) = self.link.try_lock() else { return false };
        link.live.as_ref().is_some_and(|live| live.connection.blocked().is_some())
    }

    /// Says goodbye within `limit`, then cuts. What still waits for its confirm fails as lost.
    pub async fn close(&self, limit: Duration) {
        let live = self.link.lock().await.live.take();
        if let Some(live) = live {
            live.connection.close(limit).await;
        }
    }

    async fn hand_over(&self, prepared: Prepared, deadline: Instant) -> Result<Confirm, PublishError> {
        let room = Arc::new(self.room(prepared.body_bytes()).await);
        let prepared = Arc::new(prepared);
        loop {
            let live = self.live().await.map_err(PublishError::NotConnected)?;
            prepared.check_frame(live.connection.frame_max_bytes())?;
            let mut state = live.connection.state();
            // Fails only together with the connection, which the next line notices as well.
            let _ = state.wait_for(|state| state.blocked.is_none() || state.ended.is_some()).await;
            if !live.connection.is_open() {
                continue;
            }
            let (reply, answer) = oneshot::channel();
            // Fails if the connection has just ended: then another is made.
            if live.jobs.send(Job { prepared: prepared.clone(), reply, room: room.clone() }).is_ok() {
                return Ok(Confirm { answer, state, late: Box::pin(sleep_until(deadline)), room });
            }
        }
    }

    async fn room(&self, bytes: usize) -> Room {
        let units = bytes.min(IN_FLIGHT_BYTES_MAX) / BYTES_UNIT;
        let message = self.messages.clone().acquire_owned().await;
        let bytes = self.bytes.clone().acquire_many_owned(u32::try_from(units).unwrap_or(u32::MAX)).await;
        // Nothing ever closes these semaphores, which is all that can fail here.
        Room(std::sync::Mutex::new(message.ok().zip(bytes.ok())))
    }

    async fn live(&self) -> Result<Live, BrokerError> {
        let mut link = self.link.lock().await;
        if let Some(live) = &link.live
            && live.connection.is_open()
            && !live.jobs.is_closed()
        {
            return Ok(live.clone());
        }
        link.live = None;
        if let Some((at, error)) = &link.failed
            && at.elapsed() < CONNECT_PAUSE
        {
            return Err(error.clone());
        }
        match self.open().await {
            Ok(live) => {
                *link = Link { live: Some(live.clone()), failed: None };
                Ok(live)
            }
            Err(error) => {
                link.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn open(&self) -> Result<Live, BrokerError> {
        let connection = Arc::new(connect::connect(&self.endpoints, &self.purpose).await?);
        let (jobs, queue) = mpsc::unbounded_channel();
        // Messages whose caller gave up stay known until the broker answers them: so many and no more.
        let driver = Driver::new(connection.clone(), self.window * 2).await?;
        tokio::spawn(driver.run(queue));
        Ok(Live { connection, jobs })
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("endpoints", &self.endpoints)
            .field("purpose", &self.purpose)
            .finish()
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        // The driver holds the connection as well, and waits for confirms that nobody wants any more.
        if let Some(live) = &self.link.get_mut().live {
            live.connection.cut();
        }
    }
}

/// Resolves to what became of one message, at its deadline at the latest.
///
/// Dropping it makes room in the window; the message may or may not arrive.
pub struct Confirm {
    answer: oneshot::Receiver<Result<(), PublishError>>,
    state: watch::Receiver<State>,
    late: Pin<Box<Sleep>>,
    room: Arc<Room>,
}

/// A message's place in the window. Given back when the broker has answered, even if nobody looks at
/// the answer, or when nobody waits for it any more: whichever is first.
#[derive(Debug)]
struct Room(std::sync::Mutex<Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>>);

impl Room {
    fn give_back(&self) {
        drop(self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take());
    }
}

impl Drop for Confirm {
    fn drop(&mut self) {
        self.room.give_back();
    }
}

impl Future for Confirm {
    type Output = Result<(), PublishError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(answer) = Pin::new(&mut self.answer).poll(context) {
            // The driver answers everything; without an answer it was stopped together with its runtime.
            return Poll::Ready(answer.unwrap_or(Err(PublishError::Lost("publishing was stopped".into()))));
        }
        match self.late.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(late(&self.state.borrow()))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl fmt::Debug for Confirm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Confirm").finish_non_exhaustive()
    }
}

/// Why nothing was confirmed by the deadline.
fn late(state: &State) -> PublishError {
    match &state.blocked {
        Some(reason) => PublishError::Blocked(reason.clone()),
        None => PublishError::Timeout,
    }
}
