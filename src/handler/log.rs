//! Prints each message as one line on standard output: its key, a tab, and its body.

use std::{
    io::{ErrorKind, Write},
    sync::mpsc,
    thread,
};

use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::{Handler, Verdict, Work};

/// Writes lines through one thread, which takes all that have piled up at once.
#[derive(Clone, Debug)]
pub struct Log {
    lines: mpsc::Sender<Line>,
}

struct Line {
    text: String,
    written: oneshot::Sender<Result<(), String>>,
}

impl Log {
    /// Lines go to `output`; the thread ends with the last handle.
    pub fn new(output: impl Write + Send + 'static) -> Self {
        let (lines, queue) = mpsc::channel();
        thread::spawn(move || write_lines(output, &queue));
        Self { lines }
    }
}

impl Handler for Log {
    fn handle(&self, work: Work) -> BoxFuture<'static, Verdict> {
        let (written, answer) = oneshot::channel();
        let text = line(work.key.as_str(), &work.message.body);
        let sent = self.lines.send(Line { text, written }).is_ok();
        Box::pin(async move {
            match answer.await {
                Ok(Ok(())) => Verdict::Done,
                Ok(Err(error)) => Verdict::CannotStart { error },
                Err(_) if sent => Verdict::CannotStart { error: "standard output is closed".into() },
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

/// One line: tabs, line breaks and other control characters of the body are escaped.
fn line(key: &str, body: &[u8]) -> String {
    let mut line = String::with_capacity(key.len() + body.len() + 2);
    escape(key, &mut line);
    line.push('\t');
    escape(&String::from_utf8_lossy(body), &mut line);
    line.push('\n');
    line
}

fn escape(text: &str, line: &mut String) {
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
}

fn write_lines(mut output: impl Write, queue: &mpsc::Receiver<Line>) {
    while let Ok(first) = queue.recv() {
        let lines: Vec<Line> = std::iter::once(first).chain(queue.try_iter().take(1000)).collect();
        let text: String = lines.iter().map(|line| line.text.as_str()).collect();
        let result = output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|error| {
            match error.kind() {
                ErrorKind::BrokenPipe => "cannot print: whoever read standard output is gone".to_owned(),
                _ => format!("cannot print: {error}"),
            }
        });
        for line in lines {
            // The run may have been dropped; its line is printed all the same.
            let _ = line.written.send(result.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_whatever_it_contains() {
        assert_eq!(line("k\n1", b"a\tb\r\nc \xff \xc3\xa9"), "k\\n1\ta\\tb\\r\\nc \u{FFFD} é\n");
        assert_eq!(line("k", b""), "k\t\n");
    }
}
