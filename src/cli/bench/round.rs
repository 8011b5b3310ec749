//! One round: the raw consumer, then the full path, each on the same number of new messages.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use indicatif::ProgressBar;
use tokio::sync::watch;

use crate::{
    broker::{Declare, Endpoint, Outlet, Publisher, Source, raw},
    cli::Failure,
    handler::{Handler, Verdict, Work},
    key::{Fingerprint, Key},
    ledger::{
        Claim, ClaimRequest, Ending, Finish, Ledger, Origin,
        sqlite::{SqliteLedger, SqliteOptions},
        unix_millis,
    },
    worker::{Handling, Policy, Stop, Worker, outcome::Counts},
};

use super::{
    BenchArgs, load,
    timed::{Calls, Timed},
};

pub(super) struct Round<'a> {
    pub(super) args: &'a BenchArgs,
    pub(super) endpoints: &'a [Endpoint],
    pub(super) publisher: &'a Publisher,
    pub(super) queue: &'a str,
    pub(super) bar: &'a ProgressBar,
}

/// What one round took.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) raw: Duration,
    pub(super) full: Duration,
    /// CPU time of this process during each of them.
    pub(super) raw_cpu: Duration,
    pub(super) full_cpu: Duration,
    pub(super) calls: Calls,
}

/// Rows that are put into the ledger in one transaction.
const SEED_BATCH: usize = 10_000;

/// A handler that does nothing, at once.
struct Nothing;

impl Handler for Nothing {
    fn handle(&self, _: Work) -> BoxFuture<'static, Verdict> {
        Box::pin(std::future::ready(Verdict::Done))
    }

    fn waits(&self) -> bool {
        false
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn guarantee(&self) -> &'static str {
        "nothing is done"
    }
}

impl Round<'_> {
    pub(super) async fn run(&self) -> Result<Measured, Failure> {
        let args = self.args;
        let body: Arc<[u8]> = vec![b'x'; args.body_size as usize].into();
        self.bar.set_message("publishing");
        load::publish(self.publisher, self.queue, &body, &self.ids()).await?;
        self.bar.set_message("raw consumer");
        let (raw, raw_cpu) = timed(self.raw()).await?;

        self.bar.set_message("filling the ledger");
        let folder = tempfile_in(&args.folder)?;
        let ids = self.ids();
        let ledger = self.ledger(&folder.path, &ids, &body).await?;
        self.bar.set_message("publishing");
        load::publish(self.publisher, self.queue, &body, &ids).await?;
        self.bar.set_message("full path");
        let (full, full_cpu) = timed(self.full(Arc::new(ledger.clone()))).await?;
        Ok(Measured { raw, full, raw_cpu, full_cpu, calls: ledger.calls() })
    }

    async fn raw(&self) -> Result<(), Failure> {
        let args = self.args;
        raw::consume(self.endpoints, self.queue, args.prefetch, args.messages).await.map_err(Failure::failed)
    }

    fn ids(&self) -> Vec<String> {
        (0..self.args.messages).map(|_| self.args.keys.make()).collect()
    }

    /// A new ledger with the rows asked for, among them the share of `ids` that are to be duplicates.
    async fn ledger(&self, folder: &Path, ids: &[String], body: &[u8]) -> Result<Timed, Failure> {
        let path = folder.join("bench.db");
        let opening = tokio::task::spawn_blocking(move || SqliteLedger::open(path, SqliteOptions::default()));
        let ledger = opening.await.map_err(Failure::failed)?.map_err(Failure::failed)?;
        let known = (ids.len() as f64 * self.args.duplicates).round() as usize;
        let others = (0..self.args.ledger_rows).map(|_| self.args.keys.make());
        let keys: Vec<String> = others.chain(ids[..known].iter().cloned()).collect();
        let owner = ledger.enroll().await.map_err(Failure::failed)?;
        for keys in keys.chunks(SEED_BATCH) {
            self.seed(&ledger, &owner, keys, Fingerprint::of(body)).await?;
        }
        Ok(Timed::new(ledger))
    }

    async fn seed(
        &self,
        ledger: &SqliteLedger,
        owner: &crate::ledger::Owner,
        keys: &[String],
        fingerprint: Fingerprint,
    ) -> Result<(), Failure> {
        let scope: Arc<str> = self.queue.into();
        let keys: Vec<Key> = keys.iter().filter_map(|key| Key::new(key)).collect();
        let request = |key: &Key| ClaimRequest {
            scope: scope.clone(),
            key: key.clone(),
            fingerprint: Some(fingerprint),
            origin: Origin::Fresh,
            copies: 1,
        };
        let now = unix_millis();
        let claims =
            ledger.claim(owner, keys.iter().map(request).collect(), now).await.map_err(Failure::failed)?;
        let finishes = keys.into_iter().zip(claims).filter_map(|(key, claim)| match claim {
            Claim::Claimed(ticket) => {
                Some(Finish { scope: scope.clone(), key, ticket, ending: Ending::Done, copies: 0, ran: None })
            }
            _ => None,
        });
        ledger.finish(owner, finishes.collect(), now).await.map_err(Failure::failed)?;
        Ok(())
    }

    /// A worker as `run` starts it, stopped when all messages are settled.
    async fn full(&self, ledger: Arc<dyn Ledger>) -> Result<(), Failure> {
        let args = self.args;
        let policy = Policy { prefetch: args.prefetch, ..Policy::new(self.queue) };
        let outlet = Outlet::new(
            Publisher::new(self.endpoints.to_vec(), "bench copies", 1),
            Declare::None,
            args.queue_type,
        );
        let (counts, mut progress) = watch::channel(Counts::default());
        let worker = Worker {
            policy: Arc::new(policy),
            handler: Handling::Claimed(Arc::new(Nothing)),
            ledger,
            source: Arc::new(Source {
                endpoints: self.endpoints.to_vec(),
                queue: self.queue.to_owned(),
                declare: Declare::None,
                queue_type: args.queue_type,
                prefetch: args.prefetch,
                rejects: None,
            }),
            outlet: Arc::new(outlet),
            drain_timeout: Duration::from_secs(25),
            counts,
            signs: None,
        };
        let (stop, asked) = watch::channel(Stop::No);
        let running = tokio::spawn(worker.run(asked));
        // An error means that the worker has ended; then its own result says why.
        let _ = progress.wait_for(|counts| counts.handled + counts.duplicates >= args.messages).await;
        stop.send_replace(Stop::Drain);
        running.await.map_err(Failure::failed)?.map_err(Failure::failed)?;
        Ok(())
    }
}

/// A folder that is deleted with its value.
struct Folder {
    path: std::path::PathBuf,
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be deleted is left where the user can see it.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn tempfile_in(parent: &Path) -> Result<Folder, Failure> {
    let path = parent.join(format!("ackonce-bench-{}", uuid::Uuid::now_v7().simple()));
    std::fs::create_dir(&path)
        .map_err(|error| Failure::usage(format!("cannot make the folder {}: {error}", path.display())))?;
    Ok(Folder { path })
}

/// How long some work takes, and how much CPU time of this process.
async fn timed(work: impl Future<Output = Result<(), Failure>>) -> Result<(Duration, Duration), Failure> {
    let (start, cpu) = (Instant::now(), cpu_time());
    work.await?;
    Ok((start.elapsed(), cpu_time().saturating_sub(cpu)))
}

/// User and system time of this process so far.
fn cpu_time() -> Duration {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = Duration::from_secs(u64::try_from(clock.tv_sec).unwrap_or_default());
    seconds + Duration::from_nanos(u64::try_from(clock.tv_nsec).unwrap_or_default())
}
