//! Prints each message as one line on standard output: its key, a tab, and its body.

use std::{
    io::{ErrorKind, Write},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tokio::sync::oneshot;

use super::{Handler, Verdict, Work};

/// Writes lines through one thread, which takes all that have piled up at once.
#[derive(Clone, Debug)]
pub struct Log {
    pile: Arc<Mutex<Pile>>,
    /// Wakes the thread: there is something in the pile. Its end ends the thread.
    wake: mpsc::SyncSender<()>,
}

/// Lines that are written together, and share the result.
#[derive(Debug)]
struct Pile {
    text: String,
    written: oneshot::Sender<Written>,
    answer: Shared<oneshot::Receiver<Written>>,
}

type Written = Result<(), String>;

impl Default for Pile {
    fn default() -> Self {
        let (written, answer) = oneshot::channel();
        Self { text: String::new(), written, answer: answer.shared() }
    }
}

impl Log {
    /// Lines go to `output`; the thread ends with the last handle.
    pub fn new(output: impl Write + Send + 'static) -> Self {
        let (wake, woken) = mpsc::sync_channel(1);
        let pile = Arc::new(Mutex::new(Pile::default()));
        let taken = Taken(pile.clone());
        thread::spawn(move || {
            let mut output = output;
            // Dropped in reverse: what comes after the wake's end finds nobody, what came before is taken.
            let taken = taken;
            let woken = woken;
            while let Ok(()) = woken.recv() {
                let Pile { text, written, .. } = taken.take();
                // Whoever ran may have been dropped; its lines are printed all the same.
                let _ = written.send(write(&mut output, &text));
            }
        });
        Self { pile, wake }
    }
}

/// The thread's end of the pile. Should the thread end before its time, nobody waits for it in vain.
struct Taken(Arc<Mutex<Pile>>);

impl Taken {
    fn take(&self) -> Pile {
        mem::take(&mut *lock(&self.0))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        drop(self.take());
    }
}

fn lock(pile: &Mutex<Pile>) -> MutexGuard<'_, Pile> {
    pile.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the thread when it is dropped.
struct Waker(Log);

impl Drop for Waker {
    fn drop(&mut self) {
        // A full channel: the thread is about to look anyway.
        if let Err(mpsc::TrySendError::Disconnected(())) = self.0.wake.try_send(()) {
            *lock(&self.0.pile) = Pile::default();
        }
    }
}

impl Handler for Log {
    fn handle(&self, work: Work) -> BoxFuture<'static, Verdict> {
        let mut pile = lock(&self.pile);
        // Not yet: other lines follow at once, and the runs of all of them are polled afterwards.
        let waker = pile.text.is_empty().then(|| Waker(self.clone()));
        line(work.key.as_str(), &work.message.body, &mut pile.text);
        let answer = pile.answer.clone();
        Box::pin(async move {
            drop(waker);
            match answer.await {
                Ok(Ok(())) => Verdict::Done,
                Ok(Err(error)) => Verdict::CannotStart { error },
                Err(_) => Verdict::CannotStart { error: "the printing thread has ended".into() },
            }
        })
    }

    fn waits(&self) -> bool {
        false
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn guarantee(&self) -> &'static str {
        "each message is printed once; a crash between printing and the ledger's commit prints it again"
    }
}

/// Appends one line: tabs, line breaks and other control characters of the body are escaped.
fn line(key: &str, body: &[u8], text: &mut String) {
    text.reserve(key.len() + body.len() + 2);
    escape(key, text);
    text.push('\t');
    escape(&String::from_utf8_lossy(body), text);
    text.push('\n');
}

fn escape(mut rest: &str, text: &mut String) {
    while let Some(at) = rest.find(char::is_control) {
        let (plain, from) = rest.split_at(at);
        let mut characters = from.chars();
        text.push_str(plain);
        text.extend(characters.next().into_iter().flat_map(char::escape_default));
        rest = characters.as_str();
    }
    text.push_str(rest);
}

fn write(output: &mut impl Write, text: &str) -> Written {
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => "cannot print: whoever read standard output is gone".to_owned(),
        _ => format!("cannot print: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::key::Key;

    #[test]
    fn a_message_is_one_line_whatever_it_contains() {
        let mut text = String::new();
        line("k\n1", b"a\tb\r\nc \xff \xc3\xa9", &mut text);
        line("k", b"", &mut text);
        assert_eq!(text, "k\\n1\ta\\tb\\r\\nc \u{FFFD} é\nk\t\n");
    }

    fn work(key: &str) -> Work {
        Work {
            message: Arc::default(),
            key: Key::new(key).unwrap(),
            scope: "s".into(),
            queue: "q".into(),
            attempt: 1,
            interrupted: false,
            stop: tokio::sync::watch::channel(false).1,
            span: None,
        }
    }

    /// Takes lines until one holds what makes it fail, or panic.
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8_lossy(bytes);
            assert!(!text.contains("panic"));
            if text.contains("fail") {
                return Err(ErrorKind::BrokenPipe.into());
            }
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn lines_of_a_moment_are_written_together_and_share_their_fate() {
        let written = Arc::default();
        let log = Log::new(Output(Arc::clone(&written)));
        let runs: Vec<_> = ["a", "b", "c"].iter().map(|key| log.handle(work(key))).collect();
        // None of them was polled; the one that would wake the thread is even dropped.
        let others = runs.into_iter().skip(1);
        assert_eq!(futures::future::join_all(others).await, [Verdict::Done, Verdict::Done]);
        assert_eq!(*written.lock().unwrap(), b"a\t\nb\t\nc\t\n");
        let Verdict::CannotStart { error } = log.handle(work("fail")).await else { panic!("it failed") };
        assert!(error.contains("standard output is gone"), "{error}");
        assert_eq!(log.handle(work("d")).await, Verdict::Done);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_thread_that_has_ended() {
        let log = Log::new(Output(Arc::default()));
        for _ in 0..3 {
            let runs = ["panic", "x"].map(|key| log.handle(work(key)));
            for verdict in futures::future::join_all(runs).await {
                let Verdict::CannotStart { error } = verdict else { panic!("{verdict:?}") };
                assert_eq!(error, "the printing thread has ended");
            }
        }
    }
}
