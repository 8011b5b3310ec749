//! The contract of [`ackonce::ledger`], checked on every ledger.
//!
//! A new ledger joins with one line in `every_ledger!`, which names the function in `bench` that makes a fresh one.
//! A new check joins with one line in the list below; its name is the sentence that it checks.

mod bench;
mod changes;
mod claims;
mod copies;
mod failures;
mod finishes;
mod inspects;
mod keys;
mod openings;
mod owners;
mod prunes;

macro_rules! every_ledger {
    ($checks:tt) => {
        on_ledger!(memory, $checks);
        on_ledger!(sqlite, $checks);
    };
}

macro_rules! on_ledger {
    ($ledger:ident, [$($part:ident::$check:ident),* $(,)?]) => {
        mod $ledger {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    crate::$part::$check(&crate::bench::$ledger()).await;
                }
            )*
        }
    };
}

every_ledger!([
    claims::a_new_key_is_claimed,
    claims::a_done_key_is_a_duplicate_and_its_copies_are_counted,
    claims::a_duplicate_changes_nothing_but_its_count,
    claims::a_failed_key_is_claimed_as_the_next_attempt,
    claims::a_dead_key_is_claimed_from_attempt_one,
    claims::a_claim_whose_reply_was_lost_is_given_again,
    claims::a_lost_claim_is_given_to_another_body_of_its_owner,
    claims::one_of_32_concurrent_claims_wins,
    claims::results_come_in_request_order,
    claims::a_large_batch_is_one_call,
    claims::an_empty_batch_is_answered,
    claims::another_body_under_a_done_key_is_a_mismatch,
    claims::an_unknown_body_matches_any,
    claims::a_corrected_body_is_taken_where_nothing_has_succeeded,
    claims::a_key_in_flight_is_in_flight_whatever_its_body,
    copies::a_copy_that_waited_is_claimed_as_the_next_attempt,
    copies::the_original_of_a_waiting_copy_is_superseded_when_it_comes_back,
    copies::a_fresh_delivery_is_never_swallowed,
    copies::a_copy_of_an_earlier_attempt_than_the_waiting_one_is_superseded,
    copies::a_copy_that_crashed_before_its_successor_is_claimed_again,
    copies::what_a_dead_row_left_behind_is_superseded,
    copies::what_was_dead_without_a_copy_is_never_superseded,
    copies::a_new_life_forgets_the_copies_of_the_last_one,
    copies::another_body_is_never_superseded,
    copies::a_copy_of_another_body_supersedes_nothing,
    failures::each_failed_attempt_is_kept_with_its_time_and_error,
    failures::only_a_failure_adds_to_the_history,
    failures::a_repeated_finish_is_one_failure,
    failures::the_history_is_bounded,
    failures::a_message_that_was_dead_keeps_its_history,
    failures::a_history_goes_with_its_message,
    failures::a_failed_row_says_when_its_next_attempt_is_due,
    finishes::each_ending_leaves_its_state,
    finishes::a_finish_that_is_repeated_is_recorded_again,
    finishes::a_finish_whose_reply_was_lost_is_recorded_again,
    finishes::a_repeated_finish_counts_its_copies_once,
    finishes::a_finish_with_another_ending_is_lost,
    finishes::a_finish_needs_the_right_ticket,
    finishes::a_late_finisher_changes_nothing,
    finishes::a_released_attempt_is_not_counted,
    finishes::copies_that_shared_a_run_are_duplicates,
    finishes::an_error_text_keeps_its_tail,
    finishes::a_finish_after_pruning_is_lost,
    keys::keys_are_compared_bytewise,
    keys::scopes_are_apart,
    keys::a_key_may_hold_anything_but_nothing,
    openings::a_claim_made_elsewhere_is_in_flight,
    openings::an_owner_that_died_elsewhere_is_taken_over,
    openings::a_late_finisher_elsewhere_changes_nothing,
    openings::one_of_32_concurrent_claims_over_two_openings_wins,
    openings::a_ledger_that_is_opened_again_remembers_everything,
    owners::owners_have_different_names,
    owners::a_dead_owners_claim_is_taken_over,
    owners::a_live_owner_is_never_robbed,
    owners::an_owner_lives_as_long_as_any_clone_of_it,
    owners::interrupted_is_about_the_attempt_directly_before,
    owners::a_released_takeover_is_still_interrupted,
    owners::an_attempt_released_after_it_began_is_interrupted,
    owners::a_takeover_takes_the_new_body,
    prunes::finished_rows_go_by_their_last_change,
    prunes::unfinished_rows_go_only_when_long_overdue,
    prunes::a_live_claim_is_never_removed,
    prunes::a_step_is_bounded_and_the_next_goes_on,
    prunes::a_look_removes_nothing,
    prunes::rows_from_the_future_stop_nothing,
    prunes::extreme_times_do_no_harm,
    prunes::a_pruned_key_is_new_again,
    prunes::a_clock_jump_does_not_empty_the_ledger,
    prunes::a_clock_jump_spares_a_single_row,
    prunes::steady_pruning_keeps_up,
    inspects::stats_count_each_scope,
    inspects::a_list_has_the_newest_change_first,
    inspects::a_list_is_filtered_and_limited,
    inspects::show_finds_a_key_in_every_scope,
    inspects::a_long_key_is_found_by_its_own_text,
    inspects::a_forgotten_key_is_new_again,
    inspects::a_key_in_flight_is_not_forgotten,
    inspects::a_claim_of_a_dead_owner_can_be_forgotten,
    changes::a_row_that_is_to_be_retried_is_claimed_from_attempt_one,
    changes::what_is_retried_takes_any_delivery,
    changes::a_done_row_stays_done_unless_it_is_meant_as_well,
    changes::a_row_marked_done_makes_duplicates,
    changes::a_live_claim_is_not_changed,
    changes::a_dead_owners_claim_can_be_changed,
    changes::a_late_finish_of_a_changed_row_is_lost,
    changes::a_change_is_bounded_to_its_keys_and_scope,
]);
