//! The process dies at each named point between delivery and ack, and is started again.
//!
//! A scenario is one way of a message. It is walked again and again: the first time the worker dies at
//! the first point that it reaches, then at the second, and so on, until a walk ends untouched. After
//! each death a new worker goes on, and effects, row, queue and dead letters are what is promised.

mod scenario;
mod walk;

use std::collections::HashSet;

use ackonce::crash_point::CrashPoint;

use scenario::{
    DELAYED, GIVEN_UP, HANDLED, LOGGED, RETRIED, SCENARIOS, SQL_DONE, SQL_EXHAUSTED, SQL_RETRIED,
};
use walk::walk;

/// A point that no scenario names would never be died at. (That each scenario dies at exactly those
/// that it names is what its own test checks.)
#[test]
fn each_crash_point_belongs_to_a_scenario() {
    let named: HashSet<CrashPoint> = SCENARIOS.iter().flat_map(|scenario| scenario.points).copied().collect();
    let missing: Vec<_> = CrashPoint::ALL.into_iter().filter(|point| !named.contains(point)).collect();
    assert!(missing.is_empty(), "no scenario meets {missing:?}");
    assert_eq!(CrashPoint::ALL.into_iter().collect::<HashSet<_>>().len(), CrashPoint::ALL.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_of_a_command_that_succeeds() {
    walk(&HANDLED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_of_a_command_that_succeeds_at_its_second_attempt() {
    walk(&RETRIED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_of_a_command_whose_message_waits_in_a_delay_queue() {
    walk(&DELAYED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_of_a_command_that_gives_up() {
    walk(&GIVEN_UP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_of_a_handler_inside_the_process() {
    walk(&LOGGED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_of_sql_that_succeeds() {
    walk(&SQL_DONE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_of_sql_that_succeeds_at_its_second_attempt() {
    walk(&SQL_RETRIED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_of_sql_that_fails_as_often_as_it_may() {
    walk(&SQL_EXHAUSTED).await;
}
