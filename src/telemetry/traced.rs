//! A handler whose runs are spans.

use std::{sync::Arc, time::SystemTime};

use futures::{FutureExt, future::BoxFuture};

use super::span::QueueSpans;
use crate::{
    handler::{Handler, Verdict, Work},
    ledger::{Applied, Apply, Effects, Failure, Ledger, LedgerError, Millis, Owner},
    worker::Handling,
};

pub(super) fn traced(spans: QueueSpans, handling: Handling) -> Handling {
    match handling {
        Handling::Claimed(inner) => Handling::Claimed(Arc::new(TracedHandler { spans, inner })),
        Handling::Transactional(inner) => Handling::Transactional(Arc::new(TracedEffects { spans, inner })),
    }
}

struct TracedHandler {
    spans: QueueSpans,
    inner: Arc<dyn Handler>,
}

impl Handler for TracedHandler {
    fn handle(&self, mut work: Work) -> BoxFuture<'static, Verdict> {
        let span = self.spans.start(&work.message, &work.key, work.attempt, SystemTime::now());
        work.span = span.context();
        let run = self.inner.handle(work);
        Box::pin(async move {
            let verdict = run.await;
            span.end(&verdict);
            verdict
        })
    }

    fn waits(&self) -> bool {
        self.inner.waits()
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        self.inner.check()
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        self.inner.probe()
    }

    fn close(&self, at_once: bool) -> BoxFuture<'_, ()> {
        self.inner.close(at_once)
    }

    fn guarantee(&self) -> &'static str {
        self.inner.guarantee()
    }
}

struct TracedEffects {
    spans: QueueSpans,
    inner: Arc<dyn Effects>,
}

impl Effects for TracedEffects {
    /// The messages of one transaction all have its time. What did not run is no span.
    fn apply(
        &self,
        owner: &Owner,
        requests: Vec<Apply>,
        now: Millis,
    ) -> BoxFuture<'static, Result<Vec<Applied>, LedgerError>> {
        let since = SystemTime::now();
        let messages: Vec<_> =
            requests.iter().map(|request| (request.message.clone(), request.claim.key.clone())).collect();
        let spans = self.spans.clone();
        let applied = self.inner.apply(owner, requests, now);
        applied
            .inspect(move |answers| {
                for ((message, key), answer) in messages.iter().zip(answers.iter().flatten()) {
                    if let Some((attempt, verdict)) = ran(answer) {
                        spans.start(message, key, attempt, since).end(&verdict);
                    }
                }
            })
            .boxed()
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        self.inner.probe()
    }

    fn stop(&self) {
        self.inner.stop();
    }

    fn ledger(&self) -> Arc<dyn Ledger> {
        self.inner.ledger()
    }

    fn guarantee(&self) -> &'static str {
        self.inner.guarantee()
    }
}

fn ran(answer: &Applied) -> Option<(u32, Verdict)> {
    let (ticket, verdict) = match answer {
        Applied::Done(ticket) => (ticket, Verdict::Done),
        Applied::Failed { ticket, failure } => {
            let verdict = match failure.clone() {
                Failure::Retry { error } => Verdict::Retry { error, after: None },
                Failure::GiveUp { error } => Verdict::GiveUp { error },
                Failure::CannotStart { error } => Verdict::CannotStart { error },
                Failure::Stopped => Verdict::Stopped,
            };
            (ticket, verdict)
        }
        Applied::Unrun(_) | Applied::Postponed => return None,
    };
    Some((ticket.attempt, verdict))
}
