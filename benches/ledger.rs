//! What the SQLite ledger does, by itself, on a real file system with real fsyncs.
//!
//!     cargo bench --bench ledger                 measures (in target/tmp, or $ACKONCE_BENCH_DIR)
//!     cargo bench --bench ledger -- --test       runs each once, as CI does
//!
//! Throughput is in messages; each call is one transaction, and returns when it is on disk.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ackonce::{
    key::{Fingerprint, Key},
    ledger::{
        Claim, ClaimRequest, Ending, Finish, Finished, Ledger, Millis, Origin, Owner, Prune,
        prune::STEP_ROWS_MAX,
        sqlite::{SqliteLedger, SqliteOptions},
    },
};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const SIZES: [u64; 3] = [1, 100, 1000];
const NOW: Millis = 1_800_000_000_000;
const DAY_MS: Millis = 86_400_000;

/// A ledger of its own with one owner; deleted with its value.
struct Desk {
    ledger: SqliteLedger,
    owner: Owner,
    scope: Arc<str>,
    next: AtomicU64,
    _dir: TempDir,
}

impl Desk {
    fn new(runtime: &Runtime) -> Arc<Self> {
        let parent = std::env::var_os("ACKONCE_BENCH_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
        let dir = tempfile::tempdir_in(parent).unwrap();
        let ledger = SqliteLedger::open(dir.path().join("bench.db"), SqliteOptions::default()).unwrap();
        let owner = runtime.block_on(ledger.enroll()).unwrap();
        Arc::new(Self { ledger, owner, scope: "bench".into(), next: AtomicU64::new(0), _dir: dir })
    }

    /// Requests for keys that were never claimed, in the form and order of UUIDv7.
    fn requests(&self, count: u64) -> Vec<ClaimRequest> {
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        let key = |number: u64| {
            let (high, low) = (number >> 16, number & 0xffff);
            Key::new(&format!("{high:08x}-{low:04x}-7000-8000-000000000000")).unwrap()
        };
        let request = |number| ClaimRequest {
            scope: self.scope.clone(),
            key: key(number),
            fingerprint: Some(Fingerprint([7; 16])),
            origin: Origin::Fresh,
            copies: 1,
        };
        (first..first + count).map(request).collect()
    }

    async fn claim(&self, requests: Vec<ClaimRequest>) -> Vec<Claim> {
        self.ledger.claim(&self.owner, requests, NOW).await.unwrap()
    }

    async fn claimed(&self, requests: Vec<ClaimRequest>) -> Vec<Finish> {
        let keys: Vec<Key> = requests.iter().map(|request| request.key.clone()).collect();
        let claims = self.claim(requests).await;
        let finish = |(key, claim)| {
            let Claim::Claimed(ticket) = claim else { panic!("not claimed: {claim:?}") };
            Finish { scope: self.scope.clone(), key, ticket, ending: Ending::Done, copies: 0, ran: None }
        };
        keys.into_iter().zip(claims).map(finish).collect()
    }

    async fn finish(&self, finishes: Vec<Finish>) {
        let finished = self.ledger.finish(&self.owner, finishes, NOW).await.unwrap();
        assert!(finished.iter().all(|finished| *finished == Finished::Recorded));
    }

    /// New rows that are done; returns what claims them again.
    async fn done(&self, count: u64) -> Vec<ClaimRequest> {
        let requests = self.requests(count);
        let finishes = self.claimed(requests.clone()).await;
        self.finish(finishes).await;
        requests
    }
}

fn claim(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let mut group = criterion.benchmark_group("claim");
    for size in SIZES {
        let desk = Desk::new(&runtime);
        group.throughput(Throughput::Elements(size));
        group.bench_with_input(BenchmarkId::from_parameter(size), &size, |bencher, &size| {
            bencher.to_async(&runtime).iter_batched(
                || desk.requests(size),
                |requests| desk.claim(requests),
                BatchSize::SmallInput,
            );
        });
    }
}

fn finish(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let mut group = criterion.benchmark_group("finish");
    for size in SIZES {
        let desk = Desk::new(&runtime);
        group.throughput(Throughput::Elements(size));
        group.bench_with_input(BenchmarkId::from_parameter(size), &size, |bencher, &size| {
            bencher.iter_custom(|rounds| {
                runtime.block_on(async {
                    let mut took = Duration::ZERO;
                    for _ in 0..rounds {
                        let finishes = desk.claimed(desk.requests(size)).await;
                        let start = std::time::Instant::now();
                        desk.finish(finishes).await;
                        took += start.elapsed();
                    }
                    took
                })
            });
        });
    }
}

/// As a busy worker does it: the finishes of one batch beside the claims of the next.
fn claim_and_finish(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let mut group = criterion.benchmark_group("claim and finish");
    for size in SIZES {
        let desk = Desk::new(&runtime);
        group.throughput(Throughput::Elements(size));
        group.bench_with_input(BenchmarkId::from_parameter(size), &size, |bencher, &size| {
            bencher.iter_custom(|rounds| {
                runtime.block_on(async {
                    let mut finishes = desk.claimed(desk.requests(size)).await;
                    let start = std::time::Instant::now();
                    for _ in 0..rounds {
                        let (next, ()) =
                            tokio::join!(desk.claimed(desk.requests(size)), desk.finish(finishes));
                        finishes = next;
                    }
                    start.elapsed()
                })
            });
        });
    }
}

fn duplicates(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let mut group = criterion.benchmark_group("duplicates");
    for size in SIZES {
        let desk = Desk::new(&runtime);
        let done = runtime.block_on(desk.done(size));
        group.throughput(Throughput::Elements(size));
        group.bench_with_input(BenchmarkId::from_parameter(size), &done, |bencher, done| {
            bencher.to_async(&runtime).iter(|| async {
                let claims = desk.claim(done.clone()).await;
                assert!(claims.iter().all(|claim| *claim == Claim::Duplicate));
            });
        });
    }
}

/// One step, as a pruning pass makes many.
fn prune(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let rows = u64::from(STEP_ROWS_MAX);
    let mut group = criterion.benchmark_group("prune");
    let desk = Desk::new(&runtime);
    let step = Prune { retention_ms: DAY_MS, rows_max: STEP_ROWS_MAX, after_row: 0 };
    group.throughput(Throughput::Elements(rows));
    group.bench_function(BenchmarkId::from_parameter(rows), |bencher| {
        bencher.iter_custom(|rounds| {
            runtime.block_on(async {
                desk.done(rounds * rows).await;
                let start = std::time::Instant::now();
                for _ in 0..rounds {
                    let pruned = desk.ledger.prune(step, NOW + 2 * DAY_MS).await.unwrap();
                    assert_eq!(pruned.removed, rows);
                }
                start.elapsed()
            })
        });
    });
}

/// An fsync takes milliseconds: few samples say enough.
fn few_samples() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
}

criterion_group! {
    name = ledger;
    config = few_samples();
    targets = claim, finish, claim_and_finish, duplicates, prune
}
criterion_main!(ledger);
