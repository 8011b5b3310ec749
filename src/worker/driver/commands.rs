//! What each command of the state machine comes to.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt;

use super::{
    super::{
        core::{Command, Event, GroupId, Run},
        handling::Handling,
        run::WorkerError,
        signs::Step,
    },
    Driver, copies,
};
use crate::{
    crash_point::{CrashPoint, reach},
    handler::{Verdict, Work},
    ledger::unix_millis,
};

impl Driver {
    /// Until nothing is left: a run that ends at once is an event by itself, which nobody would wait for.
    /// What goes to the ledger goes last, so that the finishes of such runs share a transaction with the
    /// claims of the next ones.
    pub(super) fn carry_out_all(&mut self) -> Result<(), WorkerError> {
        let mut batches = Vec::new();
        loop {
            let commands = self.core.submit();
            if commands.is_empty() {
                break;
            }
            for command in commands {
                match command {
                    Command::Claim(..) | Command::Finish(..) | Command::Apply(..) => batches.push(command),
                    at_once => self.carry_out(at_once)?,
                }
            }
            self.poll_brief();
        }
        batches.into_iter().try_for_each(|batch| self.carry_out(batch))
    }

    fn carry_out(&mut self, command: Command) -> Result<(), WorkerError> {
        let ledger = &self.worker.ledger;
        match command {
            Command::Claim(groups, requests) => {
                reach(CrashPoint::ClaimAsked);
                let claims = ledger.claim(&self.owner, requests, unix_millis());
                let claims = self.stopwatch(Step::Claim).around(claims);
                self.work.push(claims.map(|result| Event::Claimed(groups, result)).boxed());
            }
            Command::Finish(groups, finishes) => {
                reach(CrashPoint::FinishAsked);
                let finished = ledger.finish(&self.owner, finishes, unix_millis());
                let finished = self.stopwatch(Step::Finish).around(finished);
                self.work.push(finished.map(|result| Event::Finished(groups, result)).boxed());
            }
            Command::Apply(groups, requests) => {
                reach(CrashPoint::EffectAsked);
                if let Handling::Transactional(effects) = &self.worker.handler {
                    let applied = effects.apply(&self.owner, requests, unix_millis());
                    let applied = self.stopwatch(Step::Apply).around(applied);
                    self.work.push(applied.map(|result| Event::Applied(groups, result)).boxed());
                }
            }
            Command::Run(group, run) => self.start(group, run),
            Command::Settle(settlements) => {
                reach(CrashPoint::AckAsked);
                if let Some(session) = &mut self.session {
                    session.settle(settlements);
                }
            }
            Command::Publish(group, letter) => {
                let (outlet, queue) = (self.worker.outlet.clone(), self.worker.policy.queue.clone());
                let publish = async move {
                    let result = copies::publish(&outlet, &letter, &queue).await;
                    Event::Published(group, result.map_err(|error| error.to_string()))
                };
                self.work.push(publish.boxed());
            }
            Command::Probe => {
                let handler = self.worker.handler.clone();
                self.work.push(async move { Event::Probed(handler.probe().await) }.boxed());
            }
            Command::Fail(error) => return Err(WorkerError::Ledger(error)),
        }
        Ok(())
    }

    fn start(&mut self, group: GroupId, run: Run) {
        let Handling::Claimed(handler) = &self.worker.handler else { return };
        let work = Work {
            message: run.message,
            key: run.key,
            scope: self.worker.policy.scope.clone(),
            queue: self.worker.policy.queue.clone(),
            attempt: run.attempt,
            interrupted: run.interrupted,
            stop: self.stop_runs.subscribe(),
            span: None,
        };
        reach(CrashPoint::HandlerStarting);
        let stopwatch = self.stopwatch(Step::Handler);
        // Called here, not in the task, so that handlers see messages in the order of their claims.
        let run = catch_unwind(AssertUnwindSafe(|| AssertUnwindSafe(handler.handle(work)).catch_unwind()));
        let run = match run {
            Ok(run) => run,
            Err(panic) => return self.take(Event::Ran(group, verdict(Err(panic)))),
        };
        if handler.waits() {
            self.runs.spawn(stopwatch.around(async move { (group, verdict(run.await)) }));
        } else {
            let run = stopwatch.around(run).map(move |result| returned(group, verdict(result)));
            self.brief.push(run.boxed());
        }
    }

    /// Runs that do no waiting are worth no task, and often have their verdicts at once.
    fn poll_brief(&mut self) {
        for mut run in std::mem::take(&mut self.brief) {
            match (&mut run).now_or_never() {
                Some(event) => self.take(event),
                None => self.work.push(run),
            }
        }
    }
}

pub(super) fn returned(group: GroupId, verdict: Verdict) -> Event {
    reach(CrashPoint::HandlerReturned);
    Event::Ran(group, verdict)
}

/// A panic is the handler's failure, and nobody else's.
fn verdict(result: Result<Verdict, Box<dyn std::any::Any + Send>>) -> Verdict {
    result.unwrap_or_else(|_| Verdict::Retry { error: "the handler panicked".to_owned(), after: None })
}
