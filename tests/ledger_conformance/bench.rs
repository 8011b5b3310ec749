//! The workbench of each check: a fresh ledger, a clock, and short ways to say things.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::SeqCst},
};

use ackonce::{
    key::{Fingerprint, Key},
    ledger::{
        Claim, ClaimRequest, Ending, Filter, Finish, Finished, Inspect, Ledger, Millis, Origin, Owner, Prune,
        Pruned, Row, Ticket,
        memory::MemoryLedger,
        sqlite::{SqliteLedger, SqliteOptions},
    },
};
use tempfile::TempDir;

pub trait Whole: Ledger + Inspect {}

impl<L: Ledger + Inspect> Whole for L {}

pub struct Bench {
    pub ledger: Arc<dyn Whole>,
    again: Box<dyn Fn() -> Arc<dyn Whole> + Send + Sync>,
    now: AtomicI64,
    /// Where it is, if it is anywhere.
    dir: Option<TempDir>,
}

pub fn memory() -> Bench {
    let ledger = MemoryLedger::new();
    Bench::new(move || ledger.clone(), None)
}

pub fn sqlite() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ackonce.db");
    Bench::new(move || SqliteLedger::open(&path, SqliteOptions::default()).unwrap(), Some(dir))
}

/// The scope of all that does not care.
pub const SCOPE: &str = "orders";

/// When each check begins.
pub const START: Millis = 1_800_000_000_000;

pub fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

pub fn request(text: &str) -> ClaimRequest {
    ClaimRequest { scope: SCOPE.into(), key: key(text), fingerprint: None, origin: Origin::Fresh, copies: 1 }
}

pub fn with_body(text: &str, body: &str) -> ClaimRequest {
    ClaimRequest { fingerprint: Some(Fingerprint::of(body.as_bytes())), ..request(text) }
}

pub fn in_scope(scope: &str, text: &str) -> ClaimRequest {
    ClaimRequest { scope: scope.into(), ..request(text) }
}

pub fn failed(error: &str) -> Ending {
    Ending::Failed { error: error.to_owned(), parked: false, next_after: None }
}

/// Failed, and a confirmed copy waits in a delay queue.
pub fn parked(error: &str) -> Ending {
    Ending::Failed { error: error.to_owned(), parked: true, next_after: None }
}

pub fn dead(error: &str) -> Ending {
    Ending::Dead { error: error.to_owned(), copied: true }
}

/// The ticket of a claim that must have been granted.
pub fn granted(claim: Claim) -> Ticket {
    match claim {
        Claim::Claimed(ticket) => ticket,
        other => panic!("not claimed: {other:?}"),
    }
}

impl Bench {
    /// `open` opens the same ledger each time it is called, as another process would.
    fn new<L: Whole + 'static>(open: impl Fn() -> L + Send + Sync + 'static, dir: Option<TempDir>) -> Self {
        Self { ledger: Arc::new(open()), again: Box::new(move || Arc::new(open())), now: START.into(), dir }
    }

    /// The same ledger, opened once more: what is done here, another process might do.
    pub fn open_again(&self) -> Self {
        Self {
            ledger: (self.again)(),
            again: Box::new(|| panic!("ask the first one")),
            now: self.now().into(),
            dir: None,
        }
    }

    pub fn is_model(&self) -> bool {
        self.dir.is_none()
    }

    pub fn now(&self) -> Millis {
        self.now.load(SeqCst)
    }

    pub fn set_now(&self, now: Millis) {
        self.now.store(now, SeqCst);
    }

    pub fn pass(&self, ms: i64) {
        self.now.fetch_add(ms, SeqCst);
    }

    pub async fn owner(&self) -> Owner {
        self.ledger.enroll().await.unwrap()
    }

    pub async fn claim_all(&self, owner: &Owner, requests: Vec<ClaimRequest>) -> Vec<Claim> {
        let asked = requests.len();
        let claims = self.ledger.claim(owner, requests, self.now()).await.unwrap();
        assert_eq!(claims.len(), asked, "one answer for each request");
        claims
    }

    pub async fn claim_request(&self, owner: &Owner, request: ClaimRequest) -> Claim {
        self.claim_all(owner, vec![request]).await.remove(0)
    }

    pub async fn claim(&self, owner: &Owner, key: &str) -> Claim {
        self.claim_request(owner, request(key)).await
    }

    pub async fn finish_as(&self, owner: &Owner, finish: Finish) -> Finished {
        let mut finished = self.ledger.finish(owner, vec![finish], self.now()).await.unwrap();
        assert_eq!(finished.len(), 1);
        finished.remove(0)
    }

    pub async fn finish(&self, owner: &Owner, text: &str, ticket: &Ticket, ending: Ending) -> Finished {
        let (key, ticket) = (key(text), ticket.clone());
        self.finish_as(owner, Finish { scope: SCOPE.into(), key, ticket, ending, copies: 0, ran: None }).await
    }

    /// The same ending for all.
    pub fn finishes(&self, requests: &[ClaimRequest], tickets: &[Ticket], ending: Ending) -> Vec<Finish> {
        let finish = |(request, ticket): (&ClaimRequest, &Ticket)| Finish {
            scope: request.scope.clone(),
            key: request.key.clone(),
            ticket: ticket.clone(),
            ending: ending.clone(),
            copies: 0,
            ran: None,
        };
        requests.iter().zip(tickets).map(finish).collect()
    }

    /// Claims a key and ends that attempt.
    pub async fn run(&self, owner: &Owner, key: &str, ending: Ending) -> Ticket {
        self.run_request(owner, request(key), ending).await
    }

    pub async fn run_request(&self, owner: &Owner, request: ClaimRequest, ending: Ending) -> Ticket {
        let (scope, key) = (request.scope.clone(), request.key.clone());
        let ticket = granted(self.claim_request(owner, request).await);
        let finish = Finish { scope, key, ticket: ticket.clone(), ending, copies: 0, ran: None };
        assert_eq!(self.finish_as(owner, finish).await, Finished::Recorded);
        ticket
    }

    pub async fn prune(&self, retention_ms: i64, rows_max: u32, after_row: i64) -> Pruned {
        self.ledger.prune(Prune { retention_ms, rows_max, after_row }, self.now()).await.unwrap()
    }

    /// The one row with that key.
    pub async fn row(&self, key: &str) -> Row {
        let mut rows = self.ledger.show(key, None).await.unwrap();
        assert_eq!(rows.len(), 1, "rows of '{key}': {rows:?}");
        rows.remove(0)
    }

    pub async fn rows(&self) -> Vec<Row> {
        self.ledger.list(Filter { scope: None, state: None, limit: 100_000 }).await.unwrap()
    }

    pub async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.rows().await.into_iter().map(|row| row.message_id).collect();
        keys.sort();
        keys
    }
}
