//! The pool: a queue of messages, the children that take from it, and what is wrong with the program.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{self, Notify, futures::Notified},
    task::JoinSet,
};
use tracing::{debug, warn};

use super::{
    super::{Verdict, output::with_words, program},
    PipeOptions,
    answers::Request,
    child::{Child, Ended, Why},
};

/// A child that ended before its first answer is judged by another one that is given nothing: it has
/// to live twice as long and this much longer, but no longer than the maximum.
const TRIAL_MIN: Duration = Duration::from_millis(500);
const TRIAL_MAX: Duration = Duration::from_secs(5);

/// Each of its keepers is a task that keeps one child and starts it when there is work for it.
#[derive(Debug)]
pub(super) struct Pool {
    options: PipeOptions,
    state: Mutex<State>,
    /// One for each message that is put into the queue.
    arrived: Notify,
    begun: AtomicBool,
    keepers: sync::Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Request>,
    /// While it is set, nothing is queued.
    trouble: Option<Trouble>,
    /// A child that has proven that it stays, and has no keeper yet.
    spare: Option<Child>,
    closing: bool,
}

/// Why children do not stay.
#[derive(Clone, Debug)]
struct Trouble {
    error: String,
    lived: Duration,
}

impl Pool {
    pub(super) fn new(options: PipeOptions) -> Self {
        Self {
            options,
            state: Mutex::default(),
            arrived: Notify::new(),
            begun: AtomicBool::new(false),
            keepers: sync::Mutex::default(),
        }
    }

    pub(super) fn options(&self) -> &PipeOptions {
        &self.options
    }

    /// Queues a message. Messages are handed over in this order.
    pub(super) fn submit(self: &Arc<Self>, request: Request) {
        {
            let mut state = self.state();
            if state.closing {
                return request.answer(Verdict::Stopped);
            }
            if let Some(Trouble { error, .. }) = state.trouble.clone() {
                return request.answer(Verdict::CannotStart { error });
            }
            state.queue.push_back(request);
        }
        self.arrived.notify_one();
        if !self.begun.swap(true, Ordering::Relaxed)
            // Only closing holds it.
            && let Ok(mut keepers) = self.keepers.try_lock()
        {
            for _ in 0..self.options.children {
                keepers.spawn(keep(self.clone()));
            }
        }
    }

    /// The next message that is still to be done.
    pub(super) fn take(&self) -> Option<Request> {
        loop {
            let request = self.state().queue.pop_front()?;
            if *request.work.stop.borrow() {
                request.answer(Verdict::Stopped);
            } else if !request.answer.is_closed() {
                return Some(request);
            }
        }
    }

    /// Returns when there may be a message to take, or when the pool begins to close, after it was
    /// called. One who does not wait for it any more passes it on.
    pub(super) fn arrival(&self) -> Notified<'_> {
        self.arrived.notified()
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state().closing
    }

    /// Whether the program can be found, and, if its children did not stay, whether one does now.
    pub(super) async fn probe(&self) -> Result<(), String> {
        program::find(&self.options.program)?;
        let Some(trouble) = self.state().trouble.clone() else { return Ok(()) };
        let child = self.try_out(trouble.lived).await?;
        let mut state = self.state();
        state.trouble = None;
        state.spare = Some(child);
        Ok(())
    }

    /// Ends all children: by the end of their input, or at once. Nothing is handed over any more.
    pub(super) async fn close(&self, at_once: bool) {
        let (queue, spare) = {
            let mut state = self.state();
            state.closing = true;
            (std::mem::take(&mut state.queue), state.spare.take())
        };
        drop(spare);
        for request in queue {
            request.answer(Verdict::Stopped);
        }
        self.arrived.notify_waiters();
        let mut keepers = self.keepers.lock().await;
        if at_once {
            keepers.shutdown().await;
        }
        while keepers.join_next().await.is_some() {}
    }

    /// Kills all children, without waiting for their end.
    pub(super) fn abort(&self) {
        if let Ok(mut keepers) = self.keepers.try_lock() {
            keepers.abort_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message and a child for it; `None` when the pool closes.
    async fn child_for_next(&self) -> Option<Child> {
        loop {
            let arrival = self.arrival();
            if let Some(request) = self.take() {
                let spare = self.state().spare.take();
                match spare.map_or_else(|| Child::start(&self.options), Ok) {
                    Ok(mut child) => {
                        child.hand_over(request, &self.options);
                        return Some(child);
                    }
                    Err(error) => self.cannot_start([request], self.start_error(&error), Duration::ZERO),
                }
            } else if self.is_closing() {
                return None;
            } else {
                arrival.await;
            }
        }
    }

    /// Starts a child and gives it nothing: one that ends now ends by itself.
    async fn try_out(&self, lived: Duration) -> Result<Child, String> {
        let mut child = Child::start(&self.options).map_err(|error| self.start_error(&error))?;
        let time = (lived * 2 + TRIAL_MIN).min(TRIAL_MAX);
        match child.idle(time).await {
            None => Ok(child),
            Some(status) => {
                let what = format!("'{}' ends by itself: {}", self.options.program, program::ending(status));
                Err(with_words(&what, &child.words().await))
            }
        }
    }

    fn start_error(&self, error: &io::Error) -> String {
        program::start_error(&self.options.program, error)
    }

    /// Nothing is handed over until a probe succeeds; what waits is given back.
    fn cannot_start(&self, requests: impl IntoIterator<Item = Request>, error: String, lived: Duration) {
        let queue = {
            let mut state = self.state();
            state.trouble = Some(Trouble { error: error.clone(), lived });
            std::mem::take(&mut state.queue)
        };
        for request in requests.into_iter().chain(queue) {
            request.answer(Verdict::CannotStart { error: error.clone() });
        }
    }

    /// Answers what an ended child has left. A child that stays comes back if one was tried out.
    async fn conclude(&self, ended: Ended) -> Option<Child> {
        self.log(&ended);
        let unproven = !ended.proven && matches!(ended.why, Why::Exited(_) | Why::ClosedPipe);
        if ended.held.is_empty() {
            return None;
        }
        // Was it the message, or is it the program?
        let mut spare = None;
        if unproven {
            match self.try_out(ended.lived).await {
                Ok(child) => spare = Some(child),
                Err(error) => {
                    let requests = ended.held.into_iter().map(|held| held.request);
                    self.cannot_start(requests, error, ended.lived);
                    return None;
                }
            }
        }
        let Ended { why, held, at, words, .. } = ended;
        for held in held {
            let verdict = match &why {
                Why::Stopped | Why::Closing => Verdict::Stopped,
                why => Verdict::Retry { error: self.reason(why, held.is_late(at), &words), after: None },
            };
            held.request.answer(verdict);
        }
        spare
    }

    /// What happened to a message, in words for its row.
    fn reason(&self, why: &Why, late: bool, words: &str) -> String {
        match why {
            Why::Late if late => {
                let limit = humantime::format_duration(self.options.timeout);
                with_words(&format!("timed out after {limit}"), words)
            }
            Why::Late => "its child was replaced: another message timed out there".to_owned(),
            Why::Exited(status) => {
                with_words(&format!("its child ended without an answer: {}", program::ending(*status)), words)
            }
            Why::ClosedPipe => with_words("its child closed a pipe without an answer", words),
            Why::Nonsense(wrote) => format!("its child was replaced: it wrote {wrote}"),
            Why::Stopped | Why::Closing => "the worker stops".to_owned(),
        }
    }

    fn log(&self, ended: &Ended) {
        let child = ended.pid.unwrap_or_default();
        let held = ended.held.len();
        match &ended.why {
            Why::Closing | Why::Stopped => debug!(child, held, "a child was ended"),
            Why::Exited(status) if held == 0 && status.success() => {
                debug!(child, "a child ended by itself; another starts when there is work");
            }
            why => {
                let late = ended.held.iter().any(|held| held.is_late(ended.at));
                warn!(child, held, "a child is replaced: {}", self.reason(why, late, &ended.words));
            }
        }
    }
}

/// Keeps one child for as long as the pool is open.
async fn keep(pool: Arc<Pool>) {
    let mut spare = None;
    loop {
        let child = match spare.take() {
            Some(child) => child,
            None => match pool.child_for_next().await {
                Some(child) => child,
                None => return,
            },
        };
        let ended = child.serve(&pool).await;
        let closing = matches!(ended.why, Why::Closing);
        spare = pool.conclude(ended).await;
        if closing {
            return;
        }
    }
}
