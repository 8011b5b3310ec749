//! The progress bar of the commands that may take long.

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Short runs show no bar.
const BAR_AFTER: Duration = Duration::from_secs(1);

/// A progress bar on a terminal, once the work has taken a while.
pub(super) struct Bar {
    started: Instant,
    total: Option<u64>,
    shown: Option<ProgressBar>,
    wanted: bool,
    /// What has happened to so many: one word.
    word: &'static str,
}

impl Bar {
    pub(super) fn new(total: Option<u64>, word: &'static str) -> Self {
        Self { started: Instant::now(), total, shown: None, wanted: io::stderr().is_terminal(), word }
    }

    pub(super) fn step(&mut self, done: u64) {
        if self.wanted && self.shown.is_none() && self.started.elapsed() > BAR_AFTER {
            let (bar, template) = match self.total {
                Some(total) => (
                    ProgressBar::new(total),
                    format!("{{wide_bar}} {{human_pos}}/{{human_len}} {} {{per_sec}} {{eta}}", self.word),
                ),
                None => {
                    (ProgressBar::no_length(), format!("{{spinner}} {{human_pos}} {} {{per_sec}}", self.word))
                }
            };
            bar.set_draw_target(ProgressDrawTarget::stderr());
            // The templates above are well-formed; without one the bar has its default looks.
            if let Ok(style) = ProgressStyle::with_template(&template) {
                bar.set_style(style);
            }
            self.shown = Some(bar.with_elapsed(self.started.elapsed()));
        }
        if let Some(bar) = &self.shown {
            bar.set_position(done);
        }
    }

    /// Writes something else without tearing the bar.
    pub(super) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.shown {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}
