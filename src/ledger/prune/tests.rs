use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time};

use super::{Allowance, Pruner};
use crate::{
    key::Key,
    ledger::{Claim, ClaimRequest, Ending, Finish, Ledger, Origin, memory::MemoryLedger},
};

const DAY: Duration = Duration::from_secs(86_400);

/// The steady state brings `interval / retention` of the rows in each interval.
#[test]
fn a_pass_may_remove_four_times_what_steadily_grows_old() {
    let grant = |rows, interval| Allowance::default().grant(rows, interval, DAY);
    assert_eq!(grant(1000, DAY / 100), 40);
    assert_eq!(grant(1_000_000, DAY / 1000), 4000);
    assert_eq!(grant(0, DAY / 100), 0);
    assert_eq!(grant(1000, DAY), 1000, "never more than there is");
    assert_eq!(Allowance::default().grant(1000, DAY, Duration::ZERO), 1000);
}

#[test]
fn what_is_less_than_a_row_is_carried_over() {
    let mut allowance = Allowance::default();
    let grants: Vec<_> = (0..8).map(|_| allowance.grant(10, DAY / 160, DAY)).collect();
    assert_eq!(grants, [0, 0, 0, 1, 0, 0, 0, 1], "a quarter of a row in each pass");
    allowance.grant(1, DAY / 10, DAY);
    allowance.settle();
    assert_eq!(allowance.carry, 0.0, "nothing is owed when nothing is left");
}

/// Whatever the numbers, it takes a quarter of the retention to remove all rows.
#[test]
fn a_quarter_of_the_retention_passes_before_all_is_gone() {
    for rows in [1_u64, 2, 7, 100, 12_345, 10_000_000] {
        for parts in [10, 100, 1000, 12_345] {
            let (mut allowance, mut left, mut passes) = (Allowance::default(), rows, 0);
            while left > 0 && passes <= parts {
                left -= allowance.grant(left, DAY / parts, DAY);
                passes += 1;
            }
            // In the last pass it may be over.
            assert!((passes + 1) * 4 >= parts, "{rows} rows gone after {passes} of {parts} passes");
        }
    }
}

/// As many rows as asked for, all done in 1970.
async fn old_ledger(rows: usize) -> Arc<MemoryLedger> {
    let ledger = Arc::new(MemoryLedger::new());
    let owner = ledger.enroll().await.unwrap();
    for n in 0..rows {
        let (scope, key): (Arc<str>, _) = ("orders".into(), Key::new(&format!("key {n}")).unwrap());
        let request = ClaimRequest {
            scope: scope.clone(),
            key: key.clone(),
            fingerprint: None,
            origin: Origin::Fresh,
            copies: 1,
        };
        let claim = ledger.claim(&owner, vec![request], 0).await.unwrap().remove(0);
        let Claim::Claimed(ticket) = claim else { panic!("{claim:?}") };
        let finish = Finish { scope, key, ticket, ending: Ending::Done, copies: 0, ran: None };
        ledger.finish(&owner, vec![finish], 0).await.unwrap();
    }
    ledger
}

/// A worker that restarts all the time must not remove a share each time.
#[tokio::test(start_paused = true)]
async fn the_first_pass_comes_after_an_interval_and_a_signal_ends_them() {
    let ledger = old_ledger(500).await;
    let pruner = Pruner::new(ledger.clone(), Duration::from_secs(1000));
    let interval = pruner.interval();
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(pruner.run(stopped));
    time::sleep(interval / 2).await;
    assert_eq!(ledger.rows().await.unwrap(), 500);
    time::sleep(interval).await;
    assert_eq!(ledger.rows().await.unwrap(), 498, "0.4 % of them");
    time::sleep(interval).await;
    assert_eq!(ledger.rows().await.unwrap(), 497, "0.4 % of the rest, and no part of a row");
    stop.send(true).unwrap();
    running.await.unwrap();
    assert_eq!(ledger.rows().await.unwrap(), 497);
}

#[tokio::test(start_paused = true)]
async fn a_pruner_whose_caller_is_gone_ends() {
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(Pruner::new(old_ledger(1).await, Duration::from_secs(1000)).run(stopped));
    drop(stop);
    running.await.unwrap();
}
