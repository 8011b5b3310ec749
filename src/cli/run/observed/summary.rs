//! A line of the log for each worker and minute: what happened in it, and how the worker is.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::info;

use super::Observed;
use crate::worker::{outcome::Counts, signs::Shown};

const MINUTE: Duration = Duration::from_secs(60);

/// Logs, for ever. A worker that has nothing to say is left out: nothing happened, nothing is here, nothing
/// is away.
pub(super) async fn every_minute(workers: &[Observed]) {
    let start = Instant::now();
    let mut before: Vec<(Counts, Instant)> = workers.iter().map(|_| (Counts::default(), start)).collect();
    let mut minutes = interval_at(start + MINUTE, MINUTE);
    minutes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        minutes.tick().await;
        for (worker, (counts, since)) in workers.iter().zip(&mut before) {
            let now = Instant::now();
            let earlier = std::mem::replace(counts, worker.counts());
            let lasted = now.duration_since(std::mem::replace(since, now));
            log(&worker.queue, &earlier, counts, lasted, &(worker.shown)(), now);
        }
    }
}

fn log(queue: &str, earlier: &Counts, counts: &Counts, lasted: Duration, shown: &Shown, now: Instant) {
    let not_ready = shown.not_working(now);
    if earlier == counts && shown.in_flight == 0 && not_ready.is_empty() {
        return;
    }
    let handled = counts.handled - earlier.handled;
    let duplicates = counts.duplicates - earlier.duplicates;
    let per_second = (handled + duplicates) as f64 / lasted.as_secs_f64();
    info!(
        queue,
        handled,
        duplicates,
        retried = counts.retried - earlier.retried,
        dead_lettered = counts.dead_lettered - earlier.dead_lettered,
        rejected = counts.rejected - earlier.rejected,
        per_second = (per_second * 10.0).round() / 10.0,
        in_flight = shown.in_flight,
        not_ready = (!not_ready.is_empty()).then(|| not_ready.join(", ")),
        "in the last minute"
    );
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use serde_json::{Value, json};
    use tokio::{
        sync::watch,
        time::{advance, sleep},
    };

    use super::*;
    use crate::worker::signs::{Away, Signs};

    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Said {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Said {
        /// The lines since it was last asked, without what each has.
        fn take(&self) -> Vec<Value> {
            let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
            let mut lines: Vec<Value> =
                text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            for line in &mut lines {
                let line = line.as_object_mut().unwrap();
                assert_eq!(line.remove("message"), Some(json!("in the last minute")));
                assert_eq!(line.remove("level"), Some(json!("INFO")));
                line.remove("timestamp");
                line.remove("target");
            }
            lines
        }
    }

    /// Each minute tells of that minute alone, and an idle worker's is not told.
    #[tokio::test(start_paused = true)]
    async fn a_minute_in_which_something_happened_is_one_line_for_each_worker() {
        let said = Said::default();
        let writer = said.clone();
        let lines = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
        let _guard = tracing::subscriber::set_default(lines.finish());
        let counts = watch::Sender::new(Counts::default());
        let shown = Arc::new(Mutex::new(Shown { no_session: None, ..Signs::untimed().shown() }));
        let seen = shown.clone();
        let busy = Observed {
            queue: "orders".into(),
            counts: counts.subscribe(),
            shown: Box::new(move || seen.lock().unwrap().clone()),
        };
        let idle = Observed {
            queue: "idle".into(),
            counts: watch::Sender::new(Counts::default()).subscribe(),
            shown: Box::new(|| Shown { no_session: None, ..Signs::untimed().shown() }),
        };
        tokio::spawn(async move { every_minute(&[busy, idle]).await });
        sleep(Duration::from_secs(1)).await;

        counts.send_modify(|counts| (counts.handled, counts.duplicates, counts.retried) = (1200, 63, 2));
        shown.lock().unwrap().in_flight = 8;
        advance(Duration::from_secs(58)).await;
        assert_eq!(said.take(), Vec::<Value>::new(), "the minute is not over");
        sleep(Duration::from_secs(2)).await;
        let first = json!({
            "queue": "orders", "handled": 1200, "duplicates": 63, "retried": 2, "dead_lettered": 0, "rejected": 0,
            "per_second": 21.1, "in_flight": 8,
        });
        assert_eq!(said.take(), [first]);

        counts.send_modify(|counts| (counts.handled, counts.dead_lettered, counts.rejected) = (1206, 1, 1));
        shown.lock().unwrap().in_flight = 0;
        sleep(MINUTE).await;
        let second = json!({
            "queue": "orders", "handled": 6, "duplicates": 0, "retried": 0, "dead_lettered": 1, "rejected": 1,
            "per_second": 0.1, "in_flight": 0,
        });
        assert_eq!(said.take(), [second]);

        sleep(MINUTE).await;
        assert_eq!(said.take(), Vec::<Value>::new(), "nothing happened");

        shown.lock().unwrap().ledger = Some(Away { since: Instant::now(), why: "full".to_owned() });
        sleep(MINUTE).await;
        let away = said.take().remove(0)["not_ready"].clone();
        assert!(away.as_str().is_some_and(|away| away.starts_with("paused by its ledger for 5")), "{away}");
    }
}
