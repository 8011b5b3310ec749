//! From what the workers show to sentences: what is wrong, and since when.

use std::time::Duration;

use tokio::time::Instant;

use crate::worker::signs::{Away, Shown};

use super::WatchedWorker;

/// A loop turns at least every second; one that has not for so long is stuck.
const STUCK: Duration = Duration::from_secs(10);

/// A sentence for each worker whose loop is stuck; none if all are well.
pub(super) fn unhealthy(workers: &[WatchedWorker], now: Instant) -> Vec<String> {
    workers.iter().filter_map(|worker| Some(said(worker, &stuck(&worker.signs.shown(), now)?))).collect()
}

/// A sentence for each thing that keeps a worker from its work; none if all work.
pub(super) fn unready(workers: &[WatchedWorker], now: Instant) -> Vec<String> {
    let reasons = |worker: &WatchedWorker| -> Vec<String> {
        hindrances(&worker.signs.shown(), now).iter().map(|reason| said(worker, reason)).collect()
    };
    workers.iter().flat_map(reasons).collect()
}

/// How a worker is, for people: whether all is well, and that in sentences.
pub(super) fn words(worker: &WatchedWorker, now: Instant) -> (bool, Vec<String>) {
    let mut said = hindrances(&worker.signs.shown(), now);
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

fn stuck(shown: &Shown, now: Instant) -> Option<String> {
    let idle = now.saturating_duration_since(shown.turned?);
    (!shown.ended && idle >= STUCK).then(|| format!("its loop has not turned for {} s", idle.as_secs()))
}

fn hindrances(shown: &Shown, now: Instant) -> Vec<String> {
    if shown.ended {
        return vec!["ended".to_owned()];
    }
    let away = |away: &Option<Away>, what: &str| {
        let away = away.as_ref()?;
        let lasted = now.saturating_duration_since(away.since).as_secs();
        let why = if away.why.is_empty() { "still connecting" } else { &away.why };
        Some(format!("{what} for {lasted} s: {why}"))
    };
    let draining = shown.draining.then(|| "draining".to_owned());
    // A drain gives its session up.
    let no_session = if shown.draining { &None } else { &shown.no_session };
    [
        draining,
        stuck(shown, now),
        away(no_session, "no session with the broker"),
        away(&shown.ledger, "paused by its ledger"),
        away(&shown.handler, "paused because its handler cannot start"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use crate::{
        broker::{BrokerError, Kind},
        worker::signs::Signs,
    };

    use super::*;

    fn shown() -> Shown {
        Shown { turned: Some(Instant::now()), no_session: None, ..Signs::new(|_, _| {}).shown() }
    }

    #[test]
    fn a_loop_that_turns_is_well_and_one_that_does_not_is_stuck() {
        let well = shown();
        let turned = well.turned.unwrap();
        assert_eq!(stuck(&well, turned + STUCK - Duration::from_millis(1)), None);
        let later = turned + Duration::from_secs(12);
        assert_eq!(stuck(&well, later).unwrap(), "its loop has not turned for 12 s");
        assert_eq!(stuck(&Shown { ended: true, ..well.clone() }, later), None, "it is over");
        assert_eq!(stuck(&Shown { turned: None, ..well }, later), None, "it has not begun");
    }

    #[test]
    fn each_hindrance_is_one_sentence() {
        let well = shown();
        let now = well.turned.unwrap();
        assert_eq!(hindrances(&well, now), Vec::<String>::new());
        let since = now - Duration::from_secs(3);
        let away = |why: &str| Some(Away { since, why: why.to_owned() });
        let lost = BrokerError::new(Kind::Lost, "lost").to_string();
        let ill = Shown { no_session: away(&lost), ledger: away("full"), handler: away("gone"), ..well };
        assert_eq!(
            hindrances(&ill, now),
            [
                "no session with the broker for 3 s: lost",
                "paused by its ledger for 3 s: full",
                "paused because its handler cannot start for 3 s: gone"
            ]
        );
        assert_eq!(hindrances(&Shown { ended: true, ..ill.clone() }, now), ["ended"]);
        let draining = Shown { draining: true, ledger: None, handler: None, ..ill };
        assert_eq!(hindrances(&draining, now), ["draining"]);
    }

    #[test]
    fn before_its_first_session_a_worker_is_not_ready() {
        let now = Instant::now();
        let reasons = hindrances(&Signs::new(|_, _| {}).shown(), now);
        assert_eq!(reasons, ["no session with the broker for 0 s: still connecting"]);
    }
}
