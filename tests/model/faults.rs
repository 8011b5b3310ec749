//! What goes wrong, and when: at random until everything heals, or at exactly the n-th chance.

use std::time::Duration;

use fastrand::Rng;

/// A place at which something can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// A ledger operation fails, and nothing of it is recorded.
    LedgerBefore,
    /// A ledger operation is recorded, and reported as failed.
    LedgerAfter,
    /// The ledger refuses one row of a batch.
    RowRefused,
    /// The ledger fails for good: the process ends.
    LedgerFatal,
    /// A copy is not taken.
    CopyRefused,
    /// A copy is taken, and reported as failed.
    CopyReplyLost,
    /// A copy is reported as failed, and arrives later.
    CopyLate,
    /// The session ends just before an ack arrives.
    SettleLost,
    /// The session ends just before deliveries arrive.
    DeliveryLost,
    /// Anything that happens to a process: it is killed just before.
    Crash,
    /// Just before, its session ends.
    SessionLost,
    /// Just before, it is asked to stop.
    Drain,
    /// Just before, it loses its lock without noticing.
    LockLost,
}

/// What can be counted out one by one, and whether it needs what only a handler outside the ledger has.
pub const POINTS: [Point; 13] = [
    Point::LedgerBefore,
    Point::LedgerAfter,
    Point::RowRefused,
    Point::LedgerFatal,
    Point::CopyRefused,
    Point::CopyReplyLost,
    Point::CopyLate,
    Point::SettleLost,
    Point::DeliveryLost,
    Point::Crash,
    Point::SessionLost,
    Point::Drain,
    Point::LockLost,
];

#[derive(Debug)]
pub struct Faults {
    rng: Rng,
    rates: Rates,
    targets: Vec<Target>,
}

/// One chance to be hit: the n-th of its point.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub point: Point,
    pub n: u64,
    seen: u64,
}

impl Target {
    pub fn new(point: Point, n: u64) -> Self {
        Self { point, n, seen: 0 }
    }

    pub fn was_hit(&self) -> bool {
        self.seen >= self.n
    }
}

/// How likely each chance is taken.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    ledger: f64,
    copy: f64,
    link: f64,
    /// How many faults come by time, such as crashes.
    strikes: u32,
}

impl Faults {
    pub fn none() -> Self {
        Self { rng: Rng::with_seed(0), rates: Rates::default(), targets: Vec::new() }
    }

    pub fn at(targets: Vec<Target>) -> Self {
        Self { targets, ..Self::none() }
    }

    /// Some seeds have few faults, some have many, one in eight has none.
    pub fn random(rng: &mut Rng) -> Self {
        let mut rng = rng.fork();
        if rng.u32(..8) == 0 {
            return Self { rng, ..Self::none() };
        }
        let mut rate = |most: f64| [0.0, most / 10.0, most][rng.usize(..3)];
        let rates = Rates { ledger: rate(0.3), copy: rate(0.5), link: rate(0.1), strikes: 0 };
        let rates = Rates { strikes: [0, 2, 6, 20][rng.usize(..4)], ..rates };
        Self { rng, rates, targets: Vec::new() }
    }

    pub fn is_calm(&self) -> bool {
        let Rates { ledger, copy, link, strikes } = self.rates;
        ledger + copy + link == 0.0 && strikes == 0 && self.targets.is_empty()
    }

    /// Nothing goes wrong any more.
    pub fn end(&mut self) {
        self.rates = Rates::default();
    }

    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// When something happens by itself, before everything heals.
    pub fn strikes(&mut self, heals_at: Duration) -> Vec<(Duration, Strike)> {
        let mut strikes = Vec::new();
        for _ in 0..self.rates.strikes {
            strikes.push((heals_at.mul_f64(self.rng.f64()), self.strike()));
        }
        strikes
    }

    fn strike(&mut self) -> Strike {
        let rng = &mut self.rng;
        let a_while = Duration::from_millis(rng.u64(1..20_000));
        match rng.u32(..16) {
            0..4 => Strike::Crash,
            4..7 => Strike::SessionDrop,
            7..9 => Strike::Drain,
            9 => Strike::LockLoss,
            10..12 => Strike::LedgerAway(a_while),
            12 => Strike::BrokerAway(a_while),
            13..15 => {
                let most = [5_000, 3_600_000, 400 * 86_400_000][rng.usize(..3)];
                Strike::ClockJump(rng.i64(-most..most))
            }
            _ => Strike::Prune,
        }
    }

    /// Whether the chance at this point is taken.
    pub fn hits(&mut self, point: Point) -> bool {
        let mut hit = false;
        for target in self.targets.iter_mut().filter(|target| target.point == point) {
            target.seen += 1;
            hit |= target.seen == target.n;
        }
        let rate = match point {
            Point::LedgerBefore | Point::LedgerAfter => self.rates.ledger,
            Point::RowRefused => self.rates.ledger / 4.0,
            Point::LedgerFatal => self.rates.ledger / 50.0,
            Point::CopyRefused | Point::CopyReplyLost | Point::CopyLate => self.rates.copy,
            Point::SettleLost | Point::DeliveryLost => self.rates.link,
            Point::Crash | Point::SessionLost | Point::Drain | Point::LockLost => 0.0,
        };
        hit || (rate > 0.0 && self.rng.f64() < rate)
    }
}

/// What comes by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    Crash,
    SessionDrop,
    Drain,
    LockLoss,
    LedgerAway(Duration),
    BrokerAway(Duration),
    /// Of the wall clock, in milliseconds; the monotonic one goes on.
    ClockJump(i64),
    Prune,
}
