//! A file's lines as messages: all bytes up to the line's end, which is LF or CR LF.

use std::io::{self, BufRead, BufReader, Read};

use tokio::sync::mpsc;

/// Lines read ahead of what is sent.
const READ_AHEAD_LINES: usize = 256;

/// On a thread of its own: a terminal or pipe may stay silent for ever, and a signal must still be heard.
pub(super) fn read_lines(input: Box<dyn Read + Send>) -> Result<mpsc::Receiver<io::Result<Vec<u8>>>, String> {
    let (sender, lines) = mpsc::channel(READ_AHEAD_LINES);
    let thread = std::thread::Builder::new().name("lines".into()).spawn(move || {
        let mut input = BufReader::new(input);
        loop {
            let mut line = Vec::new();
            let result = match input.read_until(b'\n', &mut line) {
                Ok(0) => return,
                Ok(_) => {
                    if line.last() == Some(&b'\n') {
                        line.pop();
                        if line.last() == Some(&b'\r') {
                            line.pop();
                        }
                    }
                    Ok(line)
                }
                Err(error) => Err(error),
            };
            let failed = result.is_err();
            if sender.blocking_send(result).is_err() || failed {
                return;
            }
        }
    });
    thread.map(|_| lines).map_err(|error| format!("no thread to read lines: {error}"))
}

/// The lines of a file that holds just these bytes, to their end; for the fuzz target.
///
/// # Errors
///
/// As reading a file.
#[cfg(fuzzing)]
pub fn lines_of(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut lines = read_lines(Box::new(io::Cursor::new(bytes.to_vec())))?;
    std::iter::from_fn(|| lines.blocking_recv()).map(|line| line.map_err(|error| error.to_string())).collect()
}
