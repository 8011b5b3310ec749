//! What is told of workers while they run: on a terminal a line for each that stays below the log, and a
//! line of the log for each minute.

mod status;
mod summary;

use std::{
    io::{self, IsTerminal, Write},
    sync::Arc,
};

use tokio::{sync::watch, task::JoinSet};

use crate::{
    cli::{logging, screen},
    worker::{
        outcome::Counts,
        signs::{Shown, Signs},
    },
};

/// One worker, as it is seen from outside.
pub(super) struct Observed {
    queue: Arc<str>,
    counts: watch::Receiver<Counts>,
    shown: Box<dyn Fn() -> Shown + Send + Sync>,
}

impl Observed {
    pub(super) fn new(queue: Arc<str>, counts: watch::Receiver<Counts>, signs: Arc<Signs>) -> Self {
        Self { queue, counts, shown: Box::new(move || signs.shown()) }
    }

    fn counts(&self) -> Counts {
        *self.counts.borrow()
    }
}

/// What is told goes on until [`Telling::end`].
pub(super) struct Telling(JoinSet<()>);

/// Begins to tell.
pub(super) fn tell(workers: Vec<Observed>) -> Telling {
    let workers: Arc<[Observed]> = workers.into();
    let mut telling = JoinSet::new();
    let minutely = workers.clone();
    telling.spawn(async move { summary::every_minute(&minutely).await });
    if has_status() {
        telling.spawn(async move { status::show(&workers).await });
    }
    Telling(telling)
}

impl Telling {
    /// Ends it, and takes the lines away.
    pub(super) async fn end(mut self) {
        self.0.shutdown().await;
        screen::clear();
    }
}

/// Where messages are printed to.
pub(super) fn stdout() -> Box<dyn Write + Send> {
    if has_status() && io::stdout().is_terminal() { Box::new(screen::Stdout) } else { Box::new(io::stdout()) }
}

/// A terminal that could show them is seen to where they are drawn.
fn has_status() -> bool {
    io::stderr().is_terminal() && !logging::is_json()
}
