//! What happens between processes and the broker: sessions, deliveries, acks and copies.

use std::time::Duration;

use ackonce::{
    message::{Delivery, Message, Properties, Receipt, SessionId, Settlement, Table, Value},
    worker::{
        core::{Event, GroupId, Letter, Purpose},
        letter,
    },
};

use super::{Checked, Happening, Pid, Point, World};
use crate::{broker::Class, plan::QUEUE};

impl World {
    pub(super) fn sent(&mut self, place: usize) {
        let sent = self.plan.messages[place].clone();
        self.note(|| format!("sent: {} {:?}", sent.body, sent.key));
        let properties = Properties {
            message_id: sent.key,
            correlation_id: Some(format!("m{place}")),
            headers: Some(Table::from([("sender".to_owned(), Value::text("s"))])),
            ..Properties::default()
        };
        let message = Message {
            routing_key: QUEUE.into(),
            properties,
            body: sent.body.into_bytes(),
            ..Message::default()
        };
        self.broker.enqueue(message, self.now);
        self.deliver_soon();
    }

    pub(super) fn deliver_soon(&mut self) {
        if !self.delivers {
            self.delivers = true;
            let soon = self.soon(2);
            self.schedule(soon, Happening::Deliver);
        }
    }

    pub(super) fn deliver(&mut self) {
        self.delivers = false;
        let mut hungry = self.broker.hungry();
        self.rng.shuffle(&mut hungry);
        for (session, holder) in hungry {
            let burst = self.rng.usize(1..12);
            let deliveries = self.broker.deliver(session, burst, self.now);
            if !deliveries.is_empty() {
                let soon = self.soon(5);
                self.schedule(soon, Happening::Arrives(holder, session, deliveries));
            }
        }
        if !self.broker.hungry().is_empty() {
            self.deliver_soon();
        }
    }

    pub(super) fn arrives(&mut self, pid: Pid, session: SessionId, deliveries: Vec<Delivery>) -> Checked {
        if self.process(pid).is_none_or(|process| process.session != Some(session)) {
            return Ok(());
        }
        if self.faults.hits(Point::DeliveryLost) {
            self.drop_session(pid);
            return Ok(());
        }
        self.note(|| {
            let what = deliveries.iter().map(|delivery| {
                let again = if delivery.message.redelivered { " again" } else { "" };
                format!("{}{again} #{}", Class::of(&delivery.message).body, delivery.receipt.tag())
            });
            format!("{pid} gets {:?}", what.collect::<Vec<_>>())
        });
        self.feed(pid, Event::Delivered(deliveries))
    }

    pub(super) fn opens(&mut self, pid: Pid) -> Checked {
        let (is_up, soon) = (self.broker.is_up, self.soon(2000));
        let Some(process) = self.process(pid) else { return Ok(()) };
        if process.is_draining || process.session.is_some() {
            return Ok(());
        }
        if !is_up {
            self.schedule(soon, Happening::Opens(pid));
            return Ok(());
        }
        let session = self.broker.open(pid);
        if let Some(process) = self.process(pid) {
            process.session = Some(session);
        }
        self.note(|| format!("{pid} opens session {session}"));
        self.deliver_soon();
        self.feed(pid, Event::SessionOpened(session))
    }

    /// Ends a process's session: the broker and the process notice it in either order.
    pub(super) fn drop_session(&mut self, pid: Pid) {
        let Some(session) = self.process(pid).and_then(|process| process.session) else { return };
        self.note(|| format!("{pid} loses session {session}"));
        let (here, there) = (self.soon(3000), self.soon(300));
        let (here, there) = if self.rng.bool() { (here, Duration::ZERO) } else { (Duration::ZERO, there) };
        self.schedule(there, Happening::Closes(session));
        self.schedule(here, Happening::Notices(pid, session));
    }

    pub(super) fn closes(&mut self, session: SessionId) {
        if self.broker.close(session) {
            self.note(|| format!("session {session} is closed"));
            self.deliver_soon();
        }
    }

    pub(super) fn notices(&mut self, pid: Pid, session: SessionId) -> Checked {
        let soon = self.soon(2000);
        let Some(process) = self.process(pid).filter(|process| process.session == Some(session)) else {
            return Ok(());
        };
        process.session = None;
        let draining = process.is_draining;
        self.note(|| format!("{pid} notices that session {session} has ended"));
        if !draining {
            self.schedule(soon, Happening::Opens(pid));
        }
        self.feed(pid, Event::SessionEnded)?;
        if let Some(process) = self.process(pid) {
            process.carried = process.core.in_flight();
        }
        Ok(())
    }

    pub(super) fn settles(
        &mut self,
        pid: Pid,
        settlements: Vec<(Receipt, Settlement)>,
        draining: bool,
    ) -> Checked {
        if self.faults.hits(Point::SettleLost) {
            self.drop_session(pid);
            if let Some((receipt, _)) = settlements.first() {
                self.closes(receipt.session());
            }
        }
        for (receipt, settlement) in settlements {
            if let Some(unacked) = self.broker.settle(&receipt, settlement, self.now) {
                self.note(|| {
                    format!("{pid} {settlement:?} #{} {}", receipt.tag(), unacked.stored.class().body)
                });
                self.checks.settled(&self.broker, &unacked, settlement, draining, self.now)?;
            }
        }
        self.deliver_soon();
        Ok(())
    }

    /// A copy goes out. It may be refused, or be taken without a word, now or later.
    pub(super) fn publish(&mut self, pid: Pid, group: GroupId, letter: Box<Letter>) {
        let soon = self.soon(20);
        let refused = self.faults.hits(Point::CopyRefused) || !self.broker.is_up;
        let lost = self.faults.hits(Point::CopyReplyLost);
        let late = self.faults.hits(Point::CopyLate);
        let failed = || Err("the broker takes nothing".to_owned());
        if refused || late {
            self.schedule(soon, Happening::Answers(pid, Event::Published(group, failed())));
        }
        if late && !refused {
            let later = self.soon(20_000);
            self.schedule(later, Happening::Copied(pid, group, letter, false));
        } else if !refused {
            self.schedule(soon, Happening::Copied(pid, group, letter, !lost));
            if lost {
                let soon = self.soon(15_000) + soon;
                self.schedule(soon, Happening::Answers(pid, Event::Published(group, failed())));
            }
        }
    }

    /// The broker has it. Its process may be gone by now.
    pub(super) fn copied(&mut self, pid: Pid, group: GroupId, letter: Letter, told: bool) -> Checked {
        if self.process(pid).is_none() && self.rng.bool() {
            // It had not left yet.
            return Ok(());
        }
        let (_, outgoing) = letter::compose(&letter, QUEUE);
        let message = Message {
            exchange: outgoing.exchange,
            routing_key: outgoing.routing_key,
            redelivered: false,
            properties: outgoing.properties,
            body: outgoing.body.to_vec(),
        };
        if Class::of(&message) != Class::of(&letter.message) {
            return Err(format!("{:?} was copied as {:?}", Class::of(&letter.message), Class::of(&message)));
        }
        self.note(|| format!("{pid} copy of {}: {:?}", Class::of(&message).body, letter.purpose));
        match letter.purpose {
            Purpose::Dead(_) => self.broker.bury(message, self.now),
            Purpose::Delay(delay) => {
                self.broker.park(message, self.now, self.now + delay);
                self.schedule(delay, Happening::Released);
            }
        }
        // One that comes late, or unknown to its process, may be overtaken by what happened meanwhile.
        let process = self.processes[pid.worker].as_ref().filter(|process| told && process.pid == pid);
        self.checks.copied(&letter, process)?;
        if told {
            let soon = self.soon(5);
            self.schedule(soon, Happening::Answers(pid, Event::Published(group, Ok(()))));
        }
        Ok(())
    }
}
