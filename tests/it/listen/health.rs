//! Health: whether the loop turns, seen from a thread that a stuck loop does not hold up.

use std::sync::{Arc, Mutex, mpsc};

use ackonce::{
    Stop, Verdict, Worker, handler,
    ledger::sqlite::{SqliteLedger, SqliteOptions},
    listen::{Access, Listener, Watched},
};
use tokio::sync::watch;

use crate::harness::{LIMIT, World, until};

use super::{client::get, until_ready};

/// A loop that a handler holds up is named; when it turns again, all is well.
#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_is_stuck_is_not_healthy() {
    let world = World::new("stuck").await;
    let ledger = Arc::new(SqliteLedger::open(world.path("ackonce.db"), SqliteOptions::default()).unwrap());
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let handler = handler::function(move |_| {
        // Not in the future: here it holds the loop itself up.
        let _ = gate.lock().unwrap().recv();
        async { Verdict::Done }
    });
    let mut worker = Worker::new(&world.url, &world.queue, handler, ledger.clone()).unwrap();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = listener.address().unwrap().port();
    let mut watched = Watched::new(Arc::new(ledger.reader()), Vec::new(), Access::default());
    worker.signs = Some(watched.worker(&worker.policy, worker.counts.subscribe(), worker.outlet.clone()));
    let listening = listener.start(watched).unwrap();
    let (stop, stopped) = watch::channel(Stop::No);
    let running = tokio::spawn(worker.run(stopped));
    until_ready(port).await;
    assert_eq!(get(port, "/healthz").await.0, 200);

    world.publish("a", b"x").await;
    let mut said = String::new();
    until("it is not healthy", LIMIT, async || {
        let (status, text) = get(port, "/healthz").await;
        said = text;
        status == 503
    })
    .await;
    assert!(said.starts_with(&format!("{}: its loop has not turned for 1", world.queue)), "{said}");
    assert_eq!(get(port, "/readyz").await.0, 503);
    go.send(()).unwrap();
    until("it is well again", LIMIT, async || get(port, "/healthz").await.0 == 200).await;
    until_ready(port).await;
    stop.send_replace(Stop::Drain);
    assert_eq!(running.await.unwrap().unwrap().handled, 1);
    drop(listening);
}
