//! From what the workers show to sentences: what is wrong, and since when.

use tokio::time::Instant;

use super::WatchedWorker;

/// A sentence for each worker whose loop is stuck; none if all are well.
pub(super) fn unhealthy(workers: &[WatchedWorker], now: Instant) -> Vec<String> {
    let stuck = |worker: &WatchedWorker| Some(worker.signs.shown().stuck(now)?.said_at(now));
    workers.iter().filter_map(|worker| Some(said(worker, &stuck(worker)?))).collect()
}

/// A sentence for each thing that keeps a worker from its work; none if all work.
pub(super) fn unready(workers: &[WatchedWorker], now: Instant) -> Vec<String> {
    let reasons = |worker: &WatchedWorker| -> Vec<String> {
        worker.signs.shown().not_working(now).iter().map(|reason| said(worker, reason)).collect()
    };
    workers.iter().flat_map(reasons).collect()
}

/// How a worker is, for people: whether all is well, and that in sentences.
pub(super) fn words(worker: &WatchedWorker, now: Instant) -> (bool, Vec<String>) {
    let mut said = worker.signs.shown().not_working(now);
    let well = said.is_empty();
    if well {
        said.push("consuming".to_owned());
    }
    if worker.outlet.is_blocked() {
        said.push("an alarm of the broker blocks copies: dead letters and long delays wait".to_owned());
    }
    (well, said)
}

fn said(worker: &WatchedWorker, reason: &str) -> String {
    format!("{}: {reason}", worker.queue)
}
