//! Ledgers with many rows: filled, and claimed from while they are pruned.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use ackonce::{
    key::{Fingerprint, Key},
    ledger::{
        Claim, ClaimRequest, Ending, Finish, Ledger, Millis, Origin, Owner, Prune,
        prune::STEP_ROWS_MAX,
        sqlite::{SqliteLedger, SqliteOptions},
        unix_millis,
    },
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{Failure, keys::Keys, percentiles};

/// Rows that are written in one transaction.
const SEED_BATCH: u64 = 10_000;
/// Claims in one call while rows are pruned.
const CLAIM_BATCH: u64 = 100;
/// How long claims are timed before there is anything to prune.
const QUIET: Duration = Duration::from_secs(5);
/// Between two calls: a worker that is busy, and leaves the disk to the other one now and then.
const PAUSE: Duration = Duration::from_millis(2);
const DAY_MS: Millis = 86_400_000;

/// Seconds that it took.
pub(crate) async fn seed(path: &Path, rows: u64, keys: Keys) -> Result<Value, Failure> {
    let start = Instant::now();
    let ledger = SqliteLedger::open(path, SqliteOptions::default())?;
    fill(&ledger, rows, keys, unix_millis()).await?;
    Ok(json!({ "seconds": start.elapsed().as_secs_f64() }))
}

async fn fill(ledger: &SqliteLedger, rows: u64, keys: Keys, now: Millis) -> Result<(), Failure> {
    let owner = ledger.enroll().await?;
    for from in (0..rows).step_by(SEED_BATCH as usize) {
        handle(ledger, &owner, SEED_BATCH.min(rows - from), keys, now).await?;
    }
    Ok(())
}

/// Claims new keys and finishes them. Returns how long the claim took.
async fn handle(
    ledger: &SqliteLedger,
    owner: &Owner,
    messages: u64,
    keys: Keys,
    now: Millis,
) -> Result<Duration, Failure> {
    let scope: Arc<str> = "bench".into();
    let keys: Vec<Key> = (0..messages).filter_map(|_| Key::new(&keys.make())).collect();
    let request = |key: &Key| ClaimRequest {
        scope: scope.clone(),
        key: key.clone(),
        fingerprint: Some(Fingerprint::of(key.as_str().as_bytes())),
        origin: Origin::Fresh,
        copies: 1,
    };
    let start = Instant::now();
    let claims = ledger.claim(owner, keys.iter().map(request).collect(), now).await?;
    let took = start.elapsed();
    let mut finishes = Vec::new();
    for (key, claim) in keys.into_iter().zip(claims) {
        let Claim::Claimed(ticket) = claim else { return Err("a new key was not claimed".into()) };
        let scope = scope.clone();
        finishes.push(Finish { scope, key, ticket, ending: Ending::Done, copies: 0, ran: None });
    }
    ledger.finish(owner, finishes, now).await?;
    Ok(took)
}

/// Claims in a steady stream, first alone, then while old rows are removed in the steps that a worker and
/// `ackonce ledger prune` make, one right after the other.
pub(crate) async fn prune(folder: &Path, rows: u64) -> Result<Value, Failure> {
    let path = folder.join(format!("prune-{}.db", Uuid::now_v7().simple()));
    let ledger = Arc::new(SqliteLedger::open(path, SqliteOptions::default())?);
    fill(&ledger, rows, Keys::Uuid7, unix_millis() - 30 * DAY_MS).await?;

    let quiet = tokio::time::sleep(QUIET);
    let alone = claim_until(&ledger, quiet).await?;

    let pruner = ledger.clone();
    let start = Instant::now();
    let pruning = tokio::spawn(async move { prune_all(&pruner).await });
    let mut removed = Ok(0);
    let during =
        claim_until(&ledger, async { removed = pruning.await.map_err(Failure::from).flatten() }).await?;
    let seconds = start.elapsed().as_secs_f64();
    let removed = removed?;
    if removed != rows {
        return Err(format!("{removed} rows were pruned instead of {rows}").into());
    }
    Ok(json!({
        "removed": removed,
        "seconds": seconds,
        "alone": percentiles::of(alone),
        "during": percentiles::of(during),
    }))
}

async fn prune_all(ledger: &SqliteLedger) -> Result<u64, Failure> {
    let (mut removed, mut after_row) = (0, 0);
    loop {
        let prune = Prune { retention_ms: DAY_MS, rows_max: STEP_ROWS_MAX, after_row };
        let step = ledger.prune(prune, unix_millis()).await?;
        removed += step.removed;
        if step.complete {
            return Ok(removed);
        }
        after_row = step.last_row;
    }
}

async fn claim_until(ledger: &SqliteLedger, end: impl Future<Output = ()>) -> Result<Vec<Duration>, Failure> {
    let owner = ledger.enroll().await?;
    let mut times = Vec::new();
    let claims = async {
        loop {
            times.push(handle(ledger, &owner, CLAIM_BATCH, Keys::Uuid7, unix_millis()).await?);
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::select! {
        result = claims => result,
        () = end => Ok(()),
    }
    .map(|()| times)
}
