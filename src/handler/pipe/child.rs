//! One running child: what it was given, what it has answered, and how it ends.

use std::{
    io,
    pin::{Pin, pin},
    process::ExitStatus,
    time::Duration,
};

use futures::future::{Either, select};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{ChildStdin, ChildStdout, Command},
    sync::watch,
    time::{Instant, Sleep, sleep, timeout},
};

use super::{
    super::{
        Verdict,
        output::Tail,
        process_group::{ProcessGroup, STOP_GRACE_MAX},
        program,
    },
    PipeOptions,
    answers::{Answers, Held, Request},
    codec,
    pool::Pool,
    stderr,
};

/// How long the streams of a child that has exited are read on, and how long one that has closed
/// them may take to exit.
const LINGER: Duration = Duration::from_millis(200);
/// From SIGTERM to SIGKILL for one that did not end at the end of its input.
const AFTER_CLOSING_GRACE: Duration = Duration::from_secs(1);
/// After a large message the buffer is given back.
const OUTPUT_BYTES_KEPT: usize = 1024 * 1024;

#[derive(Debug)]
pub(super) struct Child {
    group: ProcessGroup,
    /// `None` once closed.
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: Tail,
    pid: Option<u32>,
    answers: Answers,
    /// Encoded messages, written up to here.
    output: Vec<u8>,
    written: usize,
    next_id: u64,
    /// Fires no later than the first deadline.
    alarm: Pin<Box<Sleep>>,
    stop: Option<watch::Receiver<bool>>,
    started: Instant,
}

/// Why a child is not used any more.
#[derive(Debug)]
pub(super) enum Why {
    Exited(ExitStatus),
    /// It lives, and one of its pipes does not.
    ClosedPipe,
    Late,
    /// What it wrote instead of a reply.
    Nonsense(String),
    Stopped,
    Closing,
}

/// What is left of a child: it has ended, with all of its group.
#[derive(Debug)]
pub(super) struct Ended {
    pub why: Why,
    pub pid: Option<u32>,
    /// What it has left unanswered.
    pub held: Vec<Held>,
    /// When it was found to be of no more use.
    pub at: Instant,
    /// It has answered something: the program works in principle.
    pub proven: bool,
    pub lived: Duration,
    /// The tail of its standard error.
    pub words: String,
}

impl Child {
    pub(super) fn start(options: &PipeOptions) -> io::Result<Self> {
        let mut command = Command::new(&options.program);
        command.args(&options.args);
        program::remove_our_settings(&mut command);
        let (group, pipes) = ProcessGroup::spawn_piped(&mut command)?;
        let pid = group.pid();
        Ok(Self {
            group,
            stdin: Some(pipes.stdin),
            stdout: pipes.stdout,
            stderr: stderr::follow(pipes.stderr, pid),
            pid,
            answers: Answers::new(options.framing),
            output: Vec::new(),
            written: 0,
            next_id: 0,
            alarm: Box::pin(sleep(Duration::ZERO)),
            stop: None,
            started: Instant::now(),
        })
    }

    pub(super) fn hand_over(&mut self, request: Request, options: &PipeOptions) {
        self.next_id += 1;
        let id = self.next_id;
        if let Err(error) = codec::encode(options.framing, id, &request.work, &mut self.output) {
            request.answer(Verdict::GiveUp { error });
            return;
        }
        if self.stop.is_none() {
            self.stop = Some(request.work.stop.clone());
        }
        let deadline = Instant::now() + options.timeout;
        if self.answers.held.is_empty() && self.alarm.is_elapsed() {
            self.alarm.as_mut().reset(deadline);
        }
        self.answers.held.push_back(Held { id, request, deadline });
    }

    /// Gives it work and takes its answers until it ends or has to, then ends it.
    ///
    /// # Cancellation
    ///
    /// Dropping the future kills the child's group.
    pub(super) async fn serve(mut self, pool: &Pool) -> Ended {
        let why = self.work(pool).await;
        self.end(why, pool.options()).await
    }

    /// Waits so long for it to exit by itself, without any work.
    pub(super) async fn idle(&mut self, time: Duration) -> Option<ExitStatus> {
        timeout(time, self.group.wait()).await.ok()?.ok()
    }

    /// The tail of its standard error, once it has ended.
    pub(super) async fn words(&self) -> String {
        let _ = timeout(LINGER, self.stderr.closed()).await;
        self.stderr.text()
    }

    async fn work(&mut self, pool: &Pool) -> Why {
        let in_flight = pool.options().in_flight;
        loop {
            // Made before looking, so that nothing that comes from now on is missed.
            let arrival = pool.arrival();
            while self.answers.held.len() < in_flight
                && let Some(request) = pool.take()
            {
                self.hand_over(request, pool.options());
            }
            let holds = !self.answers.held.is_empty();
            if !holds && pool.is_closing() {
                return Why::Closing;
            }
            tokio::select! {
                // What it has answered counts before anything else does.
                biased;
                read = self.stdout.read_buf(self.answers.replies.space()) => match read {
                    Ok(1..) => if let Err(nonsense) = self.answers.take() {
                        return Why::Nonsense(nonsense);
                    },
                    Ok(0) | Err(_) => return Why::ClosedPipe,
                },
                wrote = write(&mut self.stdin, &self.output[self.written..]) => match wrote {
                    Ok(length) => self.wrote(length),
                    Err(_) => return Why::ClosedPipe,
                },
                status = self.group.wait() => return status.map_or(Why::ClosedPipe, Why::Exited),
                () = stopped(&mut self.stop), if holds => return Why::Stopped,
                () = &mut self.alarm, if holds => {
                    // The message that it was set for may have been answered long ago.
                    match self.answers.held.front() {
                        Some(first) if !first.is_late(Instant::now()) => {
                            self.alarm.as_mut().reset(first.deadline);
                        }
                        _ => return Why::Late,
                    }
                }
                () = arrival, if self.answers.held.len() < in_flight => {}
            }
        }
    }

    fn wrote(&mut self, length: usize) {
        self.written += length;
        if self.written == self.output.len() {
            self.written = 0;
            self.output.clear();
            self.output.shrink_to(OUTPUT_BYTES_KEPT);
        }
    }

    /// Ends it with all of its group: end of input, TERM, grace, KILL. What it answers meanwhile
    /// counts, unless it cannot be understood.
    async fn end(mut self, mut why: Why, options: &PipeOptions) -> Ended {
        let at = Instant::now();
        self.stdin = None;
        if let Why::ClosedPipe = why {
            // Its exit, which tells more, may be a moment behind.
            why = self.idle(LINGER).await.map_or(Why::ClosedPipe, Why::Exited);
        }
        self.end_process(&why, options.kill_grace).await;
        let words = self.words().await;
        Ended {
            why,
            pid: self.pid,
            held: self.answers.held.into(),
            at,
            proven: self.answers.proven,
            lived: at.duration_since(self.started),
            words,
        }
    }

    async fn end_process(&mut self, why: &Why, kill_grace: Duration) {
        let Self { group, stdout, answers, .. } = self;
        let ending = pin!(end_group(group, why, kill_grace));
        let understood = !matches!(why, Why::Nonsense(_));
        let reading = pin!(async {
            while understood
                && matches!(stdout.read_buf(answers.replies.space()).await, Ok(1..))
                && answers.take().is_ok()
            {}
        });
        match select(ending, reading).await {
            Either::Left(((), reading)) => drop(timeout(LINGER, reading).await),
            Either::Right(((), ending)) => ending.await,
        }
    }
}

async fn end_group(group: &mut ProcessGroup, why: &Why, kill_grace: Duration) {
    match why {
        // The end of its input asks it to end; most need no more.
        Why::Closing => {
            let _ = timeout(kill_grace.min(STOP_GRACE_MAX), group.wait()).await;
            group.end(kill_grace.min(AFTER_CLOSING_GRACE)).await;
        }
        Why::Stopped => drop(group.end(kill_grace.min(STOP_GRACE_MAX)).await),
        Why::Exited(_) | Why::ClosedPipe | Why::Late | Why::Nonsense(_) => drop(group.end(kill_grace).await),
    }
}

/// Pends while there is nothing to write, or nowhere.
async fn write(stdin: &mut Option<ChildStdin>, output: &[u8]) -> io::Result<usize> {
    match stdin {
        Some(stdin) if !output.is_empty() => stdin.write(output).await,
        _ => std::future::pending().await,
    }
}

/// Pends without a signal to listen to. One whose sender is gone is a stop.
async fn stopped(stop: &mut Option<watch::Receiver<bool>>) {
    match stop {
        Some(stop) => {
            let _ = stop.wait_for(|stop| *stop).await;
        }
        None => std::future::pending().await,
    }
}
