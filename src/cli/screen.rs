//! The terminal that lines scroll on, and the status lines that stay below them.
//!
//! Whoever writes to the terminal while status lines are shown writes through here: the lines are taken
//! away, the text is written, the lines come back. A terminal that is gone is no reason to fail: nothing
//! here panics or reports it.

use std::{
    cell::Cell,
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is shown below; `None` while nothing is.
static BELOW: Mutex<Option<Below>> = Mutex::new(None);

thread_local! {
    /// This thread holds the lock: what it says meanwhile, which can only be a panic's text, goes straight out.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

struct Below {
    screen: MultiProgress,
    lines: Vec<ProgressBar>,
}

impl Below {
    fn new() -> Self {
        let screen = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        Self { screen, lines: Vec::new() }
    }

    /// Redraws at most some twenty times a second.
    fn show(&mut self, lines: &[String]) {
        while self.lines.len() < lines.len() {
            let line = self.screen.add(ProgressBar::no_length());
            // The template is well-formed; without it the line has its default looks.
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                line.set_style(style);
            }
            self.lines.push(line);
        }
        for (shown, line) in self.lines.iter().zip(lines) {
            shown.set_message(line.clone());
        }
    }

    fn aside(&self, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        // Not `suspend`, which panics when the terminal is gone.
        let _ = self.screen.clear();
        let written = write();
        if let Some(line) = self.lines.first() {
            line.tick();
        }
        written
    }
}

/// Shows these lines, in place of the ones before.
pub(super) fn show(lines: &[String]) {
    with(|below| below.get_or_insert_with(Below::new).show(lines));
}

/// Takes the lines away.
pub(super) fn clear() {
    with(|below| {
        if let Some(below) = below.take() {
            let _ = below.screen.clear();
            below.screen.set_draw_target(ProgressDrawTarget::hidden());
        }
    });
}

fn with<T>(use_it: impl FnOnce(&mut Option<Below>) -> T) -> T {
    struct Held(MutexGuard<'static, Option<Below>>);
    impl Drop for Held {
        fn drop(&mut self) {
            HOLDS.set(false);
        }
    }
    let mut below = Held(BELOW.lock().unwrap_or_else(PoisonError::into_inner));
    HOLDS.set(true);
    use_it(&mut below.0)
}

fn write_through(mut output: impl Write, text: &[u8]) -> io::Result<usize> {
    let mut write = || {
        output.write_all(text)?;
        output.flush()
    };
    if HOLDS.get() {
        write()?;
    } else {
        with(|below| match below {
            Some(below) => below.aside(write),
            None => write(),
        })?;
    }
    Ok(text.len())
}

/// Standard error; each write is a text that stays whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stderr;

/// The same for standard output, where it is the same terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stdout;

impl Write for Stderr {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        write_through(io::stderr().lock(), text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Stdout {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        write_through(io::stdout().lock(), text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
