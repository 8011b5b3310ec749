//! The socket and its bounds: whoever comes, however many, costs a little of one thread and no more.

use std::{convert::Infallible, net::TcpListener, sync::Arc, time::Duration};

use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener as AsyncListener, TcpStream},
    runtime,
    sync::{Semaphore, oneshot},
    time::{sleep, timeout},
};
use tracing::error;

use super::{Watched, answer::answer, history};

/// Connections at the same time; further ones are closed at once.
const CONNECTIONS_MAX: usize = 64;
/// A request is one line and a few headers.
const HEAD_BYTES_MAX: usize = 8192;
const HEAD_LIMIT: Duration = Duration::from_secs(5);
/// From accepting a connection to the end of its one answer.
const CONNECTION_LIMIT: Duration = Duration::from_secs(15);
/// When no connection can be accepted, mostly for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stopped` is told, or its sender is gone.
pub(super) fn run(listener: TcpListener, watched: Arc<Watched>, stopped: oneshot::Receiver<()>) {
    let runtime = match runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build() {
        Ok(runtime) => runtime,
        Err(cause) => return error!("nothing is served, because no runtime can be had: {cause}"),
    };
    runtime.block_on(async {
        tokio::select! {
            _ = stopped => {}
            () = history::record(&watched) => {}
            () = accept(listener, watched.clone()) => {}
        }
    });
    // A read of the ledger may still be under way; nobody waits for it.
    runtime.shutdown_background();
}

async fn accept(listener: TcpListener, watched: Arc<Watched>) {
    let listener = match AsyncListener::from_std(listener) {
        Ok(listener) => listener,
        Err(cause) => return error!("nothing is served, because the socket cannot be used: {cause}"),
    };
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(place) = room.clone().try_acquire_owned() else { continue };
        let watched = watched.clone();
        tokio::spawn(async move {
            // What goes wrong with a connection is its client's business.
            let _ = timeout(CONNECTION_LIMIT, serve(stream, watched)).await;
            drop(place);
        });
    }
}

/// One request, one answer.
async fn serve(stream: TcpStream, watched: Arc<Watched>) -> hyper::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let watched = watched.clone();
        async move { Ok::<_, Infallible>(answer(&watched, request).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}
