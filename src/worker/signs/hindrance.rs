//! From what a worker shows to what keeps it from its work: for probes, supervisors and people alike.

use std::time::Duration;

use tokio::time::Instant;

use super::{Away, Shown};

/// A loop turns at least every second; one that has not for so long is stuck.
pub const STUCK: Duration = Duration::from_secs(10);

/// One thing that keeps a worker from its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hindrance {
    /// In words that a time may follow: "no session with the broker".
    pub what: &'static str,
    /// `None` where nobody asks for how long.
    pub since: Option<Instant>,
    /// One sentence; empty if there is nothing to say.
    pub why: String,
}

impl Shown {
    /// Its loop, if that is stuck.
    pub fn stuck(&self, now: Instant) -> Option<Hindrance> {
        let turned = self.turned?;
        let idle = now.saturating_duration_since(turned);
        let what = "its loop has not turned";
        (!self.ended && idle >= STUCK).then(|| Hindrance { what, since: Some(turned), why: String::new() })
    }

    /// Everything that keeps it from its work; nothing if it works.
    pub fn hindrances(&self, now: Instant) -> Vec<Hindrance> {
        let plain = |what| Hindrance { what, since: None, why: String::new() };
        if self.ended {
            return vec![plain("ended")];
        }
        let away = |away: &Option<Away>, what| {
            let Away { since, why } = away.clone()?;
            let why = if why.is_empty() { "still connecting".to_owned() } else { why };
            Some(Hindrance { what, since: Some(since), why })
        };
        // A drain gives its session up.
        let no_session = if self.draining { &None } else { &self.no_session };
        [
            self.draining.then(|| plain("draining")),
            self.stuck(now),
            away(no_session, "no session with the broker"),
            away(&self.ledger, "paused by its ledger"),
            away(&self.handler, "paused because its handler cannot start"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The same as sentences of this moment.
    pub fn not_working(&self, now: Instant) -> Vec<String> {
        self.hindrances(now).iter().map(|hindrance| hindrance.said_at(now)).collect()
    }
}

impl Hindrance {
    /// As a sentence of this moment: "no session with the broker for 3 s: why".
    pub fn said_at(&self, now: Instant) -> String {
        let lasted = |since: Instant| format!(" for {} s", now.saturating_duration_since(since).as_secs());
        self.said(&self.since.map_or_else(String::new, lasted))
    }

    /// As a sentence, with those words after what it is.
    pub fn said(&self, time: &str) -> String {
        let why = if self.why.is_empty() { String::new() } else { format!(": {}", self.why) };
        format!("{}{time}{why}", self.what)
    }
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
        assert_eq!(well.stuck(turned + STUCK - Duration::from_millis(1)), None);
        let later = turned + Duration::from_secs(12);
        assert_eq!(well.stuck(later).unwrap().said_at(later), "its loop has not turned for 12 s");
        assert_eq!(Shown { ended: true, ..well.clone() }.stuck(later), None, "it is over");
        assert_eq!(Shown { turned: None, ..well }.stuck(later), None, "it has not begun");
    }

    #[test]
    fn each_hindrance_is_one_sentence() {
        let well = shown();
        let now = well.turned.unwrap();
        assert_eq!(well.not_working(now), Vec::<String>::new());
        let since = now - Duration::from_secs(3);
        let away = |why: &str| Some(Away { since, why: why.to_owned() });
        let lost = BrokerError::new(Kind::Lost, "lost").to_string();
        let ill = Shown { no_session: away(&lost), ledger: away("full"), handler: away("gone"), ..well };
        assert_eq!(
            ill.not_working(now),
            [
                "no session with the broker for 3 s: lost",
                "paused by its ledger for 3 s: full",
                "paused because its handler cannot start for 3 s: gone"
            ]
        );
        assert_eq!((Shown { ended: true, ..ill.clone() }).not_working(now), ["ended"]);
        let draining = Shown { draining: true, ledger: None, handler: None, ..ill };
        assert_eq!(draining.not_working(now), ["draining"]);
    }

    #[test]
    fn before_its_first_session_a_worker_is_not_ready() {
        let reasons = Signs::new(|_, _| {}).shown().not_working(Instant::now());
        assert_eq!(reasons, ["no session with the broker for 0 s: still connecting"]);
    }
}
