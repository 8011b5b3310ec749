//! A child's standard error: its lines go to our log, and the last of it is kept for errors.

use tokio::process::ChildStderr;
use tracing::info;

use super::super::output::Tail;

/// What is longer is cut.
const LINE_BYTES_MAX: usize = 1024;

pub(super) fn follow(stderr: ChildStderr, child: Option<u32>) -> Tail {
    let child = child.unwrap_or_default();
    let mut lines = Lines::default();
    Tail::follow_with(stderr, move |bytes| lines.take(bytes, |line| info!(child, "{line}")))
}

/// Cuts a stream into lines of bounded length.
#[derive(Debug, Default)]
struct Lines {
    line: Vec<u8>,
    cut: bool,
}

impl Lines {
    /// An empty piece is the end of the stream, and of its last line.
    fn take(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            let room = LINE_BYTES_MAX - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            self.cut |= text.len() > room;
            if ended {
                self.end(&mut each);
            }
        }
        if bytes.is_empty() {
            self.end(&mut each);
        }
    }

    fn end(&mut self, each: &mut impl FnMut(&str)) {
        let text = String::from_utf8_lossy(&self.line);
        let mut line: String = text.trim_end().chars().map(plain).collect();
        if self.cut {
            line.push('…');
        }
        if !line.is_empty() {
            each(&line);
        }
        self.line.clear();
        self.cut = false;
    }
}

/// A terminal must not obey what a child says.
fn plain(character: char) -> char {
    if character.is_control() && character != '\t' { '\u{FFFD}' } else { character }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_plain_and_whole_however_they_arrive() {
        let long = "x".repeat(5000);
        let said = format!("one\r\n\n \x1b[31mtwo\n{long}\nthree \u{ff}");
        let expected = ["one", " \u{FFFD}[31mtwo", &format!("{}…", &long[..1024]), "three ÿ"];
        for piece in [1, 3, 1000, 10_000] {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for piece in said.as_bytes().chunks(piece).chain([&[][..]]) {
                lines.take(piece, |line| found.push(line.to_owned()));
            }
            assert_eq!(found, expected, "{piece}");
        }
    }
}
