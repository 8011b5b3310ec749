//! A child's output: read to its end however long it is, kept only as a short tail.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::watch,
    task::JoinHandle,
};

use crate::ledger::ERROR_BYTES_MAX;

/// The last bytes of a stream that a task is reading.
#[derive(Debug)]
pub(super) struct Tail {
    bytes: Arc<Mutex<Vec<u8>>>,
    closed: watch::Receiver<bool>,
    reader: JoinHandle<()>,
}

impl Tail {
    /// Reads `stream` to its end in a task of its own, and hands over each piece; an empty one is the
    /// end. The task ends when this is dropped.
    pub(super) fn follow_with(
        stream: impl AsyncRead + Unpin + Send + 'static,
        each: impl FnMut(&[u8]) + Send + 'static,
    ) -> Self {
        Self::follow_from(Vec::new(), stream, each)
    }

    /// The same for a stream whose beginning was read already.
    pub(super) fn follow_from(
        beginning: Vec<u8>,
        mut stream: impl AsyncRead + Unpin + Send + 'static,
        mut each: impl FnMut(&[u8]) + Send + 'static,
    ) -> Self {
        let bytes = Arc::new(Mutex::new(beginning));
        let (close, closed) = watch::channel(false);
        let kept = bytes.clone();
        let reader = tokio::spawn(async move {
            let mut buffer = vec![0; 8 * 1024];
            while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                keep(&mut kept.lock().unwrap_or_else(PoisonError::into_inner), &buffer[..length]);
                each(&buffer[..length]);
            }
            each(&[]);
            // Nobody listens any more if the run was dropped.
            let _ = close.send(true);
        });
        Self { bytes, closed, reader }
    }

    /// Returns when the stream has ended.
    pub(super) async fn closed(&self) {
        // An error means that the reader is gone, and the stream with it.
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }

    /// What is kept so far, as text.
    pub(super) fn text(&self) -> String {
        text(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Appends, and forgets all but the tail now and then.
pub(super) fn keep(kept: &mut Vec<u8>, more: &[u8]) {
    kept.extend_from_slice(more);
    if kept.len() > 2 * ERROR_BYTES_MAX {
        kept.drain(..kept.len() - ERROR_BYTES_MAX);
    }
}

/// What was kept, as text.
pub(super) fn text(kept: &[u8]) -> String {
    String::from_utf8_lossy(kept).trim().to_owned()
}

/// `what: words`, or `what` alone if nothing was said.
pub(super) fn with_words(what: &str, words: &str) -> String {
    if words.is_empty() { what.to_owned() } else { format!("{what}: {words}") }
}
