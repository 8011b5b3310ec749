//! A worker whose handler writes through the ledger's own transaction: exactly once.
//!
//!     cargo run --example transaction -- amqp://127.0.0.1:5672 payments ackonce.db
//!
//! Each message's body is a number of cents. The balance and the ledger's row `done` are one commit: no crash
//! comes between them. An overdraft fails its CHECK, which undoes that message alone.

use std::{env::args, sync::Arc, time::Duration};

use ackonce::{
    Stop, Worker,
    ledger::sqlite::{Attempt, Connection, HandlerError, SqliteLedger, SqliteOptions},
};
use tokio::sync::watch;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL CHECK (cents >= 0)) STRICT;
    INSERT INTO account VALUES (1, 0) ON CONFLICT DO NOTHING;";

fn pay(transaction: &Connection, attempt: &Attempt<'_>) -> Result<(), HandlerError> {
    let text = String::from_utf8_lossy(&attempt.message.body);
    let cents: i64 =
        text.trim().parse().map_err(|_| HandlerError::GiveUp(format!("'{text}' is no amount")))?;
    // An error of SQLite is this message's failure: tried again by policy, then dead-lettered.
    transaction.execute("UPDATE account SET cents = cents + ?1 WHERE id = 1", [cents])?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [_, url, queue, path] = args().collect::<Vec<_>>().try_into().map_err(|_| "give URL QUEUE LEDGER")?;
    let ledger = Arc::new(SqliteLedger::open(path, SqliteOptions::default())?);
    ledger.set_up(SCHEMA)?;
    // SQL of one message that takes longer than this is interrupted.
    let effects = ledger.effects(pay, Duration::from_secs(30));

    let (stop, stopped) = watch::channel(Stop::No);
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        stop.send_replace(Stop::Drain);
        std::future::pending::<()>().await;
    });
    let counts = Worker::transactional(&url, &queue, effects)?.run(stopped).await?;
    println!("handled {}, duplicates {}", counts.handled, counts.duplicates);
    Ok(())
}
