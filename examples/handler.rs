//! A worker with an async closure as its handler.
//!
//!     cargo run --example handler -- amqp://127.0.0.1:5672 orders ackonce.db
//!
//! The closure runs to success once for each message id. Its effect (here a line printed) is outside the
//! ledger, so a crash between the effect and the ledger's commit repeats it; `attempt` and `interrupted` tell.

use std::{env::args, sync::Arc};

use ackonce::{
    Stop, Verdict, Worker, handler,
    ledger::sqlite::{SqliteLedger, SqliteOptions},
};
use tokio::sync::watch;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [_, url, queue, path] = args().collect::<Vec<_>>().try_into().map_err(|_| "give URL QUEUE LEDGER")?;
    let ledger = Arc::new(SqliteLedger::open(path, SqliteOptions::default())?);

    let print = handler::function(|work| async move {
        match std::str::from_utf8(&work.message.body) {
            Ok(text) => {
                println!("{} {text} (attempt {})", work.key.as_str(), work.attempt);
                Verdict::Done
            }
            // Trying again cannot help: to the dead-letter queue.
            Err(error) => Verdict::GiveUp { error: error.to_string() },
        }
    });

    let (stop, stopped) = watch::channel(Stop::No);
    tokio::spawn(async move {
        // Ctrl-C drains: what runs is seen to its end, the rest goes back to the queue.
        let _ = tokio::signal::ctrl_c().await;
        stop.send_replace(Stop::Drain);
        std::future::pending::<()>().await;
    });
    let counts = Worker::new(&url, &queue, print, ledger)?.run(stopped).await?;
    println!("handled {}, duplicates {}", counts.handled, counts.duplicates);
    Ok(())
}
