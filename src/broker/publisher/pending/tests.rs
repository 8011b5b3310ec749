use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

fn drain(pending: &mut Pending<u64>) -> Vec<(u64, Answer)> {
    std::iter::from_fn(|| pending.pop_final()).collect()
}

#[test]
fn a_confirm_is_final_at_once_when_nothing_was_returned() {
    let mut pending = Pending::default();
    for message in 0..3 {
        pending.add(message);
    }
    pending.confirmed(2, Answer::Acked);
    assert_eq!(drain(&mut pending), [(2, Answer::Acked)]);
    pending.confirmed(0, Answer::Nacked);
    assert_eq!(drain(&mut pending), [(0, Answer::Nacked)]);
    assert_eq!(pending.take_all(), [1]);
    assert_eq!(pending.len(), 0);
}

#[test]
fn a_return_that_came_with_anothers_confirm_finds_its_message() {
    let mut pending = Pending::default();
    for message in 0..2 {
        pending.add(message);
    }
    pending.confirmed(0, Answer::Acked);
    pending.returned("312 NO_ROUTE".into(), |message| *message == 1);
    assert_eq!(drain(&mut pending), [(0, Answer::Acked)], "1 is younger: it casts no doubt on 0");
    pending.confirmed(1, Answer::Acked);
    assert_eq!(drain(&mut pending), [(1, Answer::Unroutable("312 NO_ROUTE".into()))]);
}

/// The broker and lapin, as far as returns and confirms go.
struct Model {
    waiting: VecDeque<u64>,
}

impl Model {
    /// lapin: a confirm takes along the oldest return that waits.
    fn confirm(&mut self, pending: &mut Pending<u64>, number: u64) {
        pending.confirmed(number, Answer::Acked);
        if let Some(returned) = self.waiting.pop_front() {
            pending.returned("no".into(), |message| *message == returned);
        }
    }
}

proptest! {
    /// Whatever the order of confirms: each message is told exactly whether it was returned.
    #[test]
    fn every_message_learns_its_own_fate(
        routable in prop::collection::vec(any::<bool>(), 1..40),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 200),
    ) {
        let mut pending = Pending::default();
        let mut model = Model { waiting: VecDeque::new() };
        let mut told = Vec::new();
        // The broker handles them in order, returning the unroutable ones; confirms come in any
        // order, but each after its own return.
        let mut handled = VecDeque::new();
        let mut rest: VecDeque<u64> = (0..routable.len() as u64).collect();
        for message in &rest {
            prop_assert_eq!(pending.add(*message), *message);
        }
        let mut picks = picks.into_iter().cycle();
        while !rest.is_empty() || !handled.is_empty() {
            let pick = picks.next().expect("endless");
            if !rest.is_empty() && (handled.is_empty() || pick.index(2) == 0) {
                let message = rest.pop_front().expect("not empty");
                if !routable[message as usize] {
                    model.waiting.push_back(message);
                }
                handled.push_back(message);
            } else {
                let message = handled.remove(pick.index(handled.len())).expect("in range");
                model.confirm(&mut pending, message);
            }
            told.extend(drain(&mut pending));
        }
        prop_assert_eq!(told.len(), routable.len(), "all are told in the end");
        for (message, answer) in told {
            let expected = if routable[message as usize] { Answer::Acked } else { Answer::Unroutable("no".into()) };
            prop_assert_eq!(answer, expected, "message {}", message);
        }
    }
}
