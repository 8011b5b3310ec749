//! A command's three streams. One that ends soon, and most do, costs no task and no wake-up for them:
//! a body that fits into the pipe lies there before the command starts, and what it says is read when
//! it has ended. Only one that takes longer is attended to while it runs.

use std::{
    io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write},
    os::fd::{AsFd, OwnedFd},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use rustix::fs::{OFlags, fcntl_setfl};
use tokio::{io::AsyncWriteExt, net::unix::pipe, process::Command, task::JoinHandle, time::timeout};

use super::super::output::{Tail, keep, text};
use crate::message::Message;

/// For so long nobody reads what a command says: one that says more than its pipes hold waits until then.
pub(super) const UNATTENDED: Duration = Duration::from_millis(5);

/// How long a child's output is read on after the child has exited: something it left running may
/// hold the pipe open for ever.
const OUTPUT_LINGER: Duration = Duration::from_millis(100);

/// A pipe holds less than this; more at once means that somebody is still writing.
const DRAIN_BYTES_MAX: usize = 1 << 20;

/// Our ends of the three pipes. What attends to them ends when this is dropped.
pub(super) struct Streams {
    message: Arc<Message>,
    /// What of the body does not lie in the pipe yet, and its end; `None` once all does.
    input: Option<(usize, PipeWriter)>,
    stdout: Output,
    stderr: Output,
    writer: Option<JoinHandle<()>>,
}

/// One of the two that a command writes to.
enum Output {
    Unattended(PipeReader, Vec<u8>),
    Attended(Tail),
    /// Read to its end, or beyond use.
    Over(Vec<u8>),
}

impl Streams {
    /// Gives the command its ends of three new pipes, the first one with as much of the body as it takes.
    pub(super) fn prepare(command: &mut Command, message: Arc<Message>) -> io::Result<Self> {
        let (stdin, mut ours) = io::pipe()?;
        let (stdout, their_stdout) = io::pipe()?;
        let (stderr, their_stderr) = io::pipe()?;
        // Of our ends only: each end has flags of its own, and the command's reads and writes wait.
        nonblocking(&ours)?;
        nonblocking(&stdout)?;
        nonblocking(&stderr)?;
        let written = write_some(&mut ours, &message.body)?;
        command.stdin(Stdio::from(stdin)).stdout(Stdio::from(their_stdout)).stderr(Stdio::from(their_stderr));
        Ok(Self {
            input: (written < message.body.len()).then_some((written, ours)),
            message,
            stdout: Output::Unattended(stdout, Vec::new()),
            stderr: Output::Unattended(stderr, Vec::new()),
            writer: None,
        })
    }

    /// Whether there is more of the body than the pipe took: then somebody must attend at once.
    pub(super) fn has_more_input(&self) -> bool {
        self.input.is_some()
    }

    /// Serves each stream by a task from now on: a child may fill one pipe before emptying the other.
    pub(super) fn attend(&mut self) {
        if let Some((written, stdin)) = self.input.take() {
            let message = self.message.clone();
            self.writer = Some(tokio::spawn(write_rest(stdin, message, written)));
        }
        self.stdout.attend();
        self.stderr.attend();
    }

    /// The tail of what an ended command said: of its standard error, or else of its standard output.
    ///
    /// The pipes' other ends must be closed here, which those in a [`Command`] are when it is dropped.
    pub(super) async fn last_words(mut self) -> String {
        if !(self.stderr.drain() & self.stdout.drain()) {
            self.attend();
            let closed = async { tokio::join!(self.stderr.closed(), self.stdout.closed()) };
            let _ = timeout(OUTPUT_LINGER, closed).await;
        }
        let words = self.stderr.text();
        if words.is_empty() { self.stdout.text() } else { words }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        if let Some(writer) = &self.writer {
            writer.abort();
        }
    }
}

impl Output {
    fn attend(&mut self) {
        *self = match std::mem::replace(self, Output::Over(Vec::new())) {
            Output::Unattended(stream, read) => match pipe::Receiver::from_owned_fd(OwnedFd::from(stream)) {
                Ok(stream) => Output::Attended(Tail::follow_from(read, stream, |_| {})),
                // No more than the runtime's having no room for it: what is read so far has to do.
                Err(_) => Output::Over(read),
            },
            other => other,
        };
    }

    /// Reads what is there without waiting. Returns whether that was all there will be.
    fn drain(&mut self) -> bool {
        let Output::Unattended(stream, read) = self else { return matches!(self, Output::Over(_)) };
        let mut buffer = [0; 8 * 1024];
        let mut total = 0;
        while total < DRAIN_BYTES_MAX {
            match stream.read(&mut buffer) {
                Ok(0) => {
                    *self = Output::Over(std::mem::take(read));
                    return true;
                }
                Ok(length) => {
                    keep(read, &buffer[..length]);
                    total += length;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        false
    }

    async fn closed(&self) {
        if let Output::Attended(tail) = self {
            tail.closed().await;
        }
    }

    fn text(&self) -> String {
        match self {
            Output::Unattended(_, read) | Output::Over(read) => text(read),
            Output::Attended(tail) => tail.text(),
        }
    }
}

fn nonblocking(end: &impl AsFd) -> io::Result<()> {
    // A pipe's end has no other flag that could be lost.
    Ok(fcntl_setfl(end, OFlags::NONBLOCK)?)
}

/// As much as the pipe takes at once.
fn write_some(stdin: &mut PipeWriter, body: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    while written < body.len() {
        match stdin.write(&body[written..]) {
            Ok(0) => break,
            Ok(length) => written += length,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

/// A child need not read its input: how it exits counts, not the broken pipe.
async fn write_rest(stdin: PipeWriter, message: Arc<Message>, written: usize) {
    if let Ok(mut stdin) = pipe::Sender::from_owned_fd(OwnedFd::from(stdin)) {
        let _ = stdin.write_all(&message.body[written..]).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was read before somebody attends is the beginning of what is read later.
    #[tokio::test]
    async fn an_output_that_somebody_still_holds_is_read_on() {
        let (ours, mut theirs) = io::pipe().unwrap();
        nonblocking(&ours).unwrap();
        let mut output = Output::Unattended(ours, Vec::new());
        theirs.write_all(b"one, ").unwrap();
        assert!(!output.drain());
        assert_eq!(output.text(), "one,");
        output.attend();
        theirs.write_all(b"two").unwrap();
        drop(theirs);
        output.closed().await;
        assert_eq!(output.text(), "one, two");
    }

    #[test]
    fn an_output_that_has_ended_is_read_whole_at_once() {
        let (ours, mut theirs) = io::pipe().unwrap();
        nonblocking(&ours).unwrap();
        let mut output = Output::Unattended(ours, Vec::new());
        theirs.write_all(b"words\n").unwrap();
        drop(theirs);
        assert!(output.drain());
        assert_eq!(output.text(), "words");
        assert!(output.drain());
    }

    /// The rest of a body is not lost, wherever the pipe's capacity cuts it.
    #[tokio::test]
    async fn a_body_beyond_the_pipe_is_written_on() {
        let body: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
        let (mut theirs, mut ours) = io::pipe().unwrap();
        nonblocking(&ours).unwrap();
        let written = write_some(&mut ours, &body).unwrap();
        assert!(0 < written && written < body.len());
        let message = Arc::new(Message { body: body.clone(), ..Message::default() });
        let rest = tokio::spawn(write_rest(ours, message, written));
        let read = tokio::task::spawn_blocking(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).map(|_| all)
        });
        assert_eq!(read.await.unwrap().unwrap(), body);
        rest.await.unwrap();
    }
}
