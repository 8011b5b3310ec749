//! A terminal (a pseudo-terminal's other end) that a child's standard error is, and what is to be seen on it.

use std::{
    fs::File,
    io::Write,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tokio::{io::AsyncReadExt, net::unix::pipe::Receiver, task::JoinHandle};

use super::{Process, World};

/// So high that nothing scrolls out of it.
const ROWS: u16 = 1000;
const COLUMNS: u16 = 200;

/// Dropping it hangs up.
pub struct Terminal {
    reading: JoinHandle<()>,
}

impl Terminal {
    /// With the end that is a child's. What is written there is recorded in the file.
    pub fn new(record: &Path) -> (Self, OwnedFd) {
        let ours =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&ours).expect("granted");
        unlockpt(&ours).expect("unlocked");
        let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).expect("its size");
        let name = ptsname(&ours, Vec::new()).expect("its name").into_string().expect("text");
        let device = File::options().read(true).write(true).open(name).expect("its device").into();
        rustix::io::ioctl_fionbio(&ours, true).expect("a terminal that does not block");
        let record = File::create(record).expect("a file");
        (Self { reading: tokio::spawn(read(ours, record)) }, device)
    }

    /// As closing its window does.
    pub async fn hang_up(mut self) {
        self.reading.abort();
        let _ = (&mut self.reading).await;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl World {
    /// A worker as [`World::worker_with`] starts it, with a terminal as standard error.
    pub fn worker_on_terminal(
        &self,
        change: impl FnOnce(&mut Command),
        arguments: &[&str],
    ) -> (Process, Terminal) {
        let printed = self.path("printed");
        let output = File::create(&printed).expect("a file").into();
        self.start_on_terminal(change, arguments, |_| (output, printed))
    }

    /// The same with a terminal as standard output and standard error.
    pub fn worker_on_terminal_alone(&self, arguments: &[&str]) -> (Process, Terminal) {
        self.start_on_terminal(
            |_| {},
            arguments,
            |device| (device.try_clone().expect("a second handle").into(), self.path("terminal")),
        )
    }

    fn start_on_terminal(
        &self,
        change: impl FnOnce(&mut Command),
        arguments: &[&str],
        output: impl FnOnce(&OwnedFd) -> (Stdio, PathBuf),
    ) -> (Process, Terminal) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let record = self.path(&format!("terminal-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        let (terminal, device) = Terminal::new(&record);
        let mut command = self.command(
            |command| {
                command.env("TERM", "xterm");
            },
            arguments,
        );
        change(&mut command);
        (Process::start_with(command, output(&device), (device.into(), record)), terminal)
    }
}

/// Until the last of the other ends is closed.
async fn read(terminal: OwnedFd, mut record: File) {
    // It is no pipe, but read in the same way.
    let mut terminal = Receiver::from_owned_fd_unchecked(terminal).expect("a terminal");
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = terminal.read(&mut buffer).await {
        record.write_all(&buffer[..length]).expect("recorded");
    }
}

/// The lines that a person would see after all that was recorded, without empty ones.
pub fn seen(record: &str) -> Vec<String> {
    let mut parser = vt100::Parser::new(ROWS, COLUMNS, 0);
    parser.process(record.as_bytes());
    let lines = parser.screen().contents();
    lines.lines().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// Whether anything of it is a colour, bold type or the like.
pub fn has_colours(record: &str) -> bool {
    record.split("\u{1b}[").skip(1).any(|rest| {
        let end = rest.find(|character: char| !(character.is_ascii_digit() || character == ';'));
        end.is_some_and(|end| rest[end..].starts_with('m'))
    })
}

#[test]
fn colours_are_told_from_movements() {
    assert!(has_colours("a\u{1b}[2J\u{1b}[1;31mb") && !has_colours("m\u{1b}[2Km\u{1b}[1Am"));
    assert_eq!(seen("one\r\ntwo\r\u{1b}[2Kthree\r\n\u{1b}[1Afour\u{1b}[K"), ["one", "four"]);
}
