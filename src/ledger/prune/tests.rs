use std::time::Duration;

use super::Allowance;

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
