//! Bare spawn-and-wait: what running a program costs by itself.

use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use serde_json::{Value, json};
use tokio::{process::Command, task::JoinSet};

use crate::Failure;

/// Seconds for all runs, so many at the same time.
pub(crate) async fn run(runs: u64, concurrency: usize, program: &str) -> Result<Value, Failure> {
    let begun = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let mut loops = JoinSet::new();
    for _ in 0..concurrency {
        let (begun, program) = (begun.clone(), program.to_owned());
        loops.spawn(async move {
            while begun.fetch_add(1, Ordering::Relaxed) < runs {
                let mut command = Command::new(&program);
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                let status = command.status().await?;
                if !status.success() {
                    return Err(Failure::from(format!("{program}: {status}")));
                }
            }
            Ok(())
        });
    }
    while let Some(ended) = loops.join_next().await {
        ended??;
    }
    Ok(json!({ "seconds": start.elapsed().as_secs_f64() }))
}
