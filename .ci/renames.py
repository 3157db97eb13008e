# ruff: noqa: E501
"""Rename classes and functions, and rewrite the imports of names that moved to another module.

    python .ci/renames.py

The tables below are the whole change. A branch that was begun before it runs this script, commits, and then merges.
"""

import re
import subprocess
from pathlib import Path

STORE = {
    "runs": "Behind CallCommit CallConflict CallDone Request",
    "claims": "ClaimAsk ClaimOrder ClaimableClog Committed Contended LeaseAsk LeaseCompletion LeaseDone LeasedRun "
    "NotClaimable RowsAnswer RowsAsk TickAnswer TickCommit",
    "events": "SweepAsk",
}

HOMES = {
    **{
        ("ocean.kernel.store", name): f"ocean.kernel.store.{home}"
        for home, names in STORE.items()
        for name in names.split()
    },
    **{
        ("ocean.kernel.arguments", name): "ocean.kernel.new_runs"
        for name in ("DEFAULT_PRIORITY", "MOST_KEYS", "RunOptions", "checked_keys", "new_run", "new_signal")
    },
    ("ocean.state.json_text", "strict_json"): "ocean.state.values",
    ("ocean.state.names", "near_name"): "ocean.state.errors",
    ("ocean.state.facts", "StoreFacts"): "ocean.state.records",
    **{
        ("ocean.kernel.leasing", name): "ocean.kernel.verbs.leases"
        for name in ("LONGEST_LEASE_MS", "LONGEST_WAIT_MS", "SHORTEST_LEASE_MS", "Lease", "WorkDone")
    },
}
"""A name's old module and its new one."""

RENAMES = """
Crew = Runtime
_crew = _runtime
scene_of = context_of
is_along = piggyback
rehearsed = dry_run_tick
Outflow = StreamBuffer
Operating = AdminVerbs
Receiving = WebhookVerbs
Lending = LeaseVerbs
Keyring = ApiKeyVerbs
told_of = call_event
told_error = error_of
is_telling = is_secret_name
tells_of = explain_row
with_words = with_explanation
NOT_THE_TOOLS = STORE_ERRORS
"""
"""Identifiers that mean the same wherever they are used, in Python."""

TEXTS = {
    "guard.seen(": "guard.limited(",
    "guard.told(": "guard.visible(",
    "guard.meant(": "guard.allowed(",
    "Guard(ocean).meant(": "Guard(ocean).allowed(",
    "observed.tell(": "observed.add_listener(",
}
"""Methods whose names are too common to be renamed alone."""

ONLY: dict[tuple[str, ...], dict[str, str]] = {
    ("ocean/http/framework/clog_routes.py",): {"NOBODY": "ANONYMOUS"},
    ("ocean/", "tests/simulation/"): {"Scene": "CallContext", "_scene": "_context"},
    ("ocean/stores/shared/rows.py", "ocean/stores/postgres/access_reading.py", "ocean/stores/sqlite/access.py"): {
        "Standing": "RunOwner"
    },
}
"""Identifiers that are renamed in some files or folders only."""


FILES = {
    "tests/kernel/test_lanes.py": "tests/kernel/test_claim_order.py",
    "tests/kernel/test_read_before_write.py": "tests/kernel/test_ledger.py",
    "tests/kernel/test_json_text.py": "tests/kernel/test_strict_json.py",
    "tests/kernel/test_toolboxes.py": "tests/kernel/test_author_tools.py",
    "tests/kernel/test_redacting.py": "tests/kernel/test_redact.py",
    "tests/lifecycle/test_second_thoughts.py": "tests/lifecycle/test_regressions.py",
    "tests/lifecycle/test_dry_run_foretells.py": "tests/lifecycle/test_dry_run_predicts.py",
    "tests/lifecycle/test_finding_property.py": "tests/lifecycle/test_run_query_property.py",
    "tests/races/test_admission_stories.py": "tests/races/test_admission.py",
}
"""Test files that are renamed."""

MESSAGES = {
    "delivery 'msg_1' has come before": "delivery 'msg_1' was received before",
    "gone quiet: ticker": "stopped poking: ticker",
    "ClaimAsk.is_along": "ClaimAsk.piggyback",
    "`Scene.stop`": "`CallContext.stop`",
    "the inbox is empty; a signal makes it pending": "the inbox is empty; a signal makes the run pending",
    "is paused; resume_clog lets its runs go on": "is paused; resume it with resume_clog",
    "the run is paused; resume_run lets it go on": "the run is paused; resume it with resume_run",
    "the run ended done; nothing moves it any more": "the run has ended (done)",
    "the run ended failed; nothing moves it any more": "the run has ended (failed)",
    "it sleeps until its wake time, its next timer or a signal": "waiting for its wake time, its next timer or a signal",
    "failed; the next one waits for the back-off": "failed; waiting for the next one (back-off)",
    "; if it dies, the lock lapses by itself": "; if it dies, the lock expires",
    "it goes on when one is freed, or set_limit adds one": "wait for a free slot, or raise set_limit",
    "has a free slot, and others are in line before it": "has a free slot, but other runs are before it in line",
    "is external: a worker takes it with claim_work, from queue": "is external: a worker must take the run with claim_work, from queue",
    "nobody has poked this process: is there a ticker, cron or client that does?": "no poke has reached this process: start a ticker, a cron job or a client that pokes it",
    "Pokes come, and are too few or do too little": "Pokes arrive, but too few or too short",
    "pokes come, and are too few or do too little": "pokes arrive, but too few or too short",
    "its clog could not say what it waits for": "its clog could not explain what it waits for",
    "the environment has no PAID_SECRET": "environment variable PAID_SECRET must be set",
    "is more than 300 s from the time here": "must be within 300 s of the server's time",
    "has no access policy: say access=": "must have an access policy: access=",
    "is no JSON number": "is not a JSON number",
    "a run has each of its concurrency keys once": "concurrency_keys must not name a key twice",
    "rate_key, rate_limit and rate_per_ms go together": "rate_key, rate_limit and rate_per_ms must be given together",
    "is a Clog, a list of them, or a function that makes them, got": "must be a Clog, a list of them, or a function that returns them, got",
}
"""Messages that tests and documents quote."""

QUOTED = {
    r"its token of the rate '([^']*)' is free then": r"waiting for its token of rate '\1'",
    r"it starts when no further creation under the key '([^']*)' has come until then": r"debounced: starts unless another creation under key '\1' comes first",
}
"""Messages with a name in them, as patterns."""

TESTS = """
a_peek_answers_as_a_take_of_one_would_and_takes_nothing = a_peek_returns_what_a_take_of_one_would_and_takes_nothing
the_answer_says_exactly_when_to_come_back = a_refused_take_reports_exactly_when_to_try_again
an_expired_counter_answers_as_none_does = an_expired_counter_is_equivalent_to_none
an_explanation_without_holds_says_the_run_can_be_claimed = an_explanation_without_holds_means_the_run_is_claimable
a_server_that_neither_reads_nor_answers_is_left_at_the_deadline = a_server_that_neither_reads_nor_responds_is_abandoned_at_the_deadline
a_port_where_nobody_listens_is_refused_and_the_error_hides_the_query = a_closed_port_is_refused_and_the_error_hides_the_query
a_certificate_nobody_signed_is_refused_also_for_an_allowed_host = an_unsigned_certificate_is_refused_also_for_an_allowed_host
everything_else_is_what_it_says = every_other_text_is_parsed_as_usual
nobody_starves_behind_urgent_runs_that_always_continue = no_run_starves_behind_urgent_runs_that_always_continue
an_error_is_told_as_code_message_and_details = an_error_has_code_message_and_details
a_wait_says_one_time_in_milliseconds = a_wait_needs_exactly_one_time_in_milliseconds
outcomes_cannot_be_changed_after_they_were_answered = outcomes_are_immutable
what_is_said_of_due_work_that_waits = the_reason_why_due_work_waits
a_second_read_of_rows_already_read_is_answered_from_the_ledger = a_second_read_of_the_same_rows_uses_the_ledger
a_key_is_known_to_be_free_where_the_one_read_has_said_so = a_key_is_known_to_be_free_if_the_one_read_found_it_free
a_name_tells = a_secret_is_recognised_by_its_name
a_value_is_hashed_as_what_its_text_says = a_value_is_hashed_like_its_text
what_is_not_plain_json_is_hashed_as_what_its_text_says = a_value_that_is_not_plain_json_is_hashed_like_its_text
a_missing_secret_is_told_by_its_name = the_error_for_a_missing_secret_names_its_variable
a_secret_that_is_none_is_told_without_showing_it = the_error_for_an_invalid_secret_does_not_show_it
a_webhook_that_makes_no_sense_is_refused_where_it_is_said = an_invalid_webhook_is_refused_when_it_is_registered
a_poke_tells_what_it_did_and_when_to_come_back = a_poke_reports_what_it_did_and_when_the_next_is_needed
a_run_that_keeps_continuing_starves_nobody = a_run_that_keeps_continuing_does_not_starve_others
delete_takes_children_with_their_parents_and_says_so = delete_runs_deletes_and_counts_children_too
progress_is_told_after_each_batch_to_plain_and_async_functions = progress_is_reported_after_each_batch_to_plain_and_async_functions
most_stops_it_with_the_oldest_done_and_says_that_there_is_more = most_stops_after_the_oldest_and_reports_more
the_parent_is_told_how_its_child_ended = the_parent_is_notified_how_its_child_ended
every_end_tells_the_parent = every_end_notifies_the_parent
a_run_says_once_per_wait_that_it_is_parked = a_run_logs_once_per_wait_that_it_is_parked
a_committed_direct_call_says_the_status_it_left = the_event_of_a_direct_call_has_the_status_after_it
an_exhausted_quota_answers_no_in_the_first_call_with_the_time_to_come_back = an_exhausted_quota_is_refused_in_the_first_call_with_the_time_to_retry
a_tick_that_is_beaten_is_called_again_and_told_no_without_an_attempt = a_tick_that_loses_a_counter_is_called_again_and_refused_without_an_attempt
the_next_claim_of_a_tick_asks_anew = the_next_claim_of_a_tick_takes_again
a_direct_call_takes_and_a_refused_one_answers_with_what_it_committed = a_direct_call_takes_and_a_refused_one_returns_what_it_committed
a_direct_call_that_was_beaten_is_told_no_although_the_counter_is_free_again = a_direct_call_that_lost_a_counter_is_refused_although_it_is_free_again
the_tool_answers_json = the_take_tool_returns_json
a_sweep_forgets_what_is_worth_nothing_and_answers_stay_the_same = a_sweep_deletes_expired_counters_and_results_stay_the_same
refuse_commits_and_answers_the_error = refuse_commits_and_returns_the_error
it_tells_when_to_come_back_like_any_poke = it_reports_the_next_wake_time_like_any_poke
it_answers_while_another_process_holds_the_write_lock = it_works_while_another_process_holds_the_write_lock
an_ended_run_is_held_for_good = an_ended_run_is_held_permanently
a_real_call_does_what_the_dry_run_said = a_real_call_does_what_the_dry_run_showed
a_session_that_would_be_deleted_is_said_to_be = a_session_that_would_be_deleted_is_shown
whatever_the_last_tick_answers_the_run_ends_with_the_first_error = whatever_the_last_tick_returns_the_run_ends_with_the_first_error
a_committed_tick_tells_who_did_it_under_which_claim = a_committed_tick_records_its_instance_and_claim
a_waiting_run_says_until_when = the_hold_of_a_waiting_run_has_its_end
a_run_backing_off_says_so_also_with_signals_queued = a_run_backing_off_is_explained_also_with_signals_queued
a_run_of_a_clog_that_is_elsewhere_says_where_to_poke = a_run_of_a_clog_on_another_instance_is_explained
a_clog_says_it_in_one_way = a_clog_has_at_most_one_explains_function
a_tool_used_wrongly_says_what_is_wrong = a_tool_used_wrongly_raises_a_precise_error
a_dedupe_key_answers_the_first_run_for_the_same_body = a_dedupe_key_returns_the_first_run_for_the_same_body
an_external_child_tells_its_parent_how_it_ended = an_external_child_notifies_its_parent_how_it_ended
a_completion_that_says_nothing_of_the_row_leaves_it_whoever_changed_it = a_completion_without_a_row_leaves_the_row_as_it_is
a_row_that_a_direct_call_changed_is_a_conflict_that_says_how_to_go_on = a_row_that_a_direct_call_changed_is_a_conflict_with_the_current_version
a_retry_discards_the_row_so_nobody_can_be_in_its_way = a_retry_discards_the_row_so_it_cannot_conflict
whoever_is_late_is_told_so_and_changes_no_row_of_any_table = a_late_worker_gets_lease_lost_and_changes_no_row_of_any_table
a_lapsed_lease_that_nobody_took_back_is_still_its_workers = an_expired_lease_that_was_not_taken_back_still_belongs_to_its_worker
a_lease_says_everything_that_a_tick_would = a_lease_has_all_the_facts_of_a_tick
what_a_renewal_says_is_in_the_log_at_once_and_survives_the_attempt = events_of_a_renewal_are_in_the_log_at_once_and_survive_the_attempt
a_count_says_when_it_stopped_counting = a_count_reports_that_it_was_capped
two_pokes_of_one_instance_are_told_apart_by_the_epoch = the_epoch_distinguishes_two_pokes_of_one_instance
a_wrong_name_is_told_with_the_near_one = the_error_for_a_wrong_name_suggests_the_near_one
a_poke_by_nobody_known_is_refused_and_a_dry_run_is_none = a_poke_of_an_unknown_source_is_refused_and_a_dry_run_is_no_poke
a_lost_lock_is_counted_and_told = a_lost_lock_is_counted_and_logged
a_listener_that_fails_disturbs_nobody = a_listener_that_fails_has_no_effect
a_closed_ocean_says_so = a_closed_ocean_raises_a_clear_error
what_is_said_is_stored_as_it_was_then_whatever_becomes_of_the_object = a_value_is_stored_as_it_was_when_passed_even_if_it_changes_later
a_failure_is_structured_and_told = a_failure_is_structured_and_logged
a_method_may_use_what_has_no_effect_and_tells_with_its_commit = a_method_may_use_tools_without_effect_and_logs_them_with_its_commit
a_fetch_by_name_is_told_without_its_secrets = a_fetch_by_name_is_logged_without_its_secrets
the_tool_by_its_name_answers_json = a_tool_by_its_name_returns_json
the_log_says_that_a_run_is_delayed = the_log_records_that_a_run_is_delayed
the_hash_of_a_body_that_says_nothing_new_is_the_one_stored_before = the_hash_of_a_body_without_the_new_options_is_unchanged
the_last_creation_says_everything = the_last_creation_replaces_all_options
a_refusal_calls_nothing_and_is_told = a_refused_tool_is_not_called_and_is_logged
a_denied_tool_is_refused_to_everybody_and_named_with_its_pattern = a_denied_tool_is_refused_to_every_clog_and_named_with_its_pattern
an_approval_is_of_one_call_and_its_giver_is_told = an_approval_is_of_one_call_and_its_approver_is_logged
a_dry_run_says_that_a_lapsed_lease_will_be_taken_back_and_takes_nothing = a_dry_run_shows_that_an_expired_lease_will_be_taken_back_and_takes_nothing
result_pokes_the_run_and_answers_its_output = result_pokes_the_run_and_returns_its_output
whoever_waits_for_a_run_at_work_pokes_nobody = waiting_for_an_active_run_does_not_poke
result_of_a_run_that_does_not_end_in_time_says_so_and_leaves_it_alone = result_of_a_run_that_does_not_end_in_time_raises_and_leaves_it_alone
a_run_deleted_at_work_has_told_the_key_of_its_open_tick = a_run_deleted_during_a_tick_does_not_reuse_the_key_of_that_tick
a_unit_that_breaks_fails_alone_and_everybody_is_answered = a_unit_that_breaks_fails_alone_and_all_callers_get_a_result
a_thread_that_waits_for_a_broken_unit_is_answered = a_thread_that_waits_for_a_broken_unit_gets_its_error
a_handler_that_has_answered_makes_room_before_its_commit_is_through = a_handler_that_has_returned_frees_its_place_before_its_commit_is_done
a_second_read_of_other_rows_is_refused_and_of_the_same_rows_answered = a_second_read_of_other_rows_is_refused_and_of_the_same_rows_allowed
all_that_was_said_is_stored_in_order_before_the_commit = all_streamed_events_are_stored_in_order_before_the_commit
what_was_said_stays_however_the_call_ends = streamed_events_stay_however_the_call_ends
what_is_said_during_a_write_shares_the_next_one = events_streamed_during_a_write_share_the_next_one
what_was_said_is_stored_before_a_later_step = streamed_events_are_stored_before_a_later_step
a_sweep_works_in_batches_and_says_if_there_is_more = a_sweep_works_in_batches_and_reports_if_there_is_more
answers_of_request_keys_go_after_a_day = request_keys_are_deleted_after_a_day
the_sum_so_far_is_told_after_each_batch = the_sum_so_far_is_reported_after_each_batch
what_is_handed_out_live_is_what_the_database_would_have_said = live_events_equal_those_in_the_database
the_tail_runs_only_while_somebody_follows = the_tail_runs_only_while_there_are_followers
a_narrow_follower_that_falls_behind_is_not_told_of_a_cut_in_what_was_none_of_its = a_narrow_follower_that_falls_behind_is_not_reset_for_events_of_other_feeds
retention_that_is_faster_than_the_tail_is_told_by_a_reset = retention_that_is_faster_than_the_tail_causes_a_reset
followers_are_told_of_an_error_that_stays_and_the_next_one_begins_anew = followers_get_a_lasting_error_and_the_next_one_starts_again
who_cannot_take_events_at_once_is_handed_them_and_harms_nobody = a_follower_that_cannot_take_events_at_once_gets_them_later_and_harms_no_other
after_a_poke_that_worked_the_rests_begin_anew = after_a_poke_that_worked_the_pauses_start_again
an_error_that_nobody_expected_is_logged_and_ends_no_ticker = an_unexpected_error_is_logged_and_does_not_end_the_ticker
whoever_cannot_wait_for_the_grace_has_the_handler_given_back = a_cancelled_grace_period_gives_the_run_back
a_run_that_nobody_watches_any_more_is_left_alone = a_run_that_is_no_longer_watched_is_left_alone
a_crash_is_a_failed_attempt_told_in_the_log = a_crash_is_a_failed_attempt_in_the_log
who_made_a_call_is_told_as_it_calls_itself = the_instance_and_version_of_a_call_are_logged_as_given
a_counter_that_is_reset_begins_anew_in_any_way = a_counter_that_is_reset_may_be_of_another_kind
a_direct_call_takes_with_its_commit_or_is_told_what_is_refused = a_direct_call_takes_with_its_commit_or_gets_the_refused_counters
counters_belong_to_nobody_who_could_be_deleted = counters_survive_the_deletion_of_runs_and_sessions
the_same_id_with_the_same_body_answers_the_first_run = the_same_id_with_the_same_body_returns_the_first_run
a_dedupe_key_answers_its_holder_for_the_same_body = a_dedupe_key_returns_its_holder_for_the_same_body
a_request_key_answers_the_first_answer_and_creates_nothing = a_request_key_returns_the_first_result_and_creates_nothing
a_further_creation_before_the_first_claim_is_the_same_run_said_anew = a_further_creation_before_the_first_claim_replaces_the_run
the_parent_of_a_deleted_child_is_told = the_parent_of_a_deleted_child_is_notified
a_request_key_answers_a_deletion_again = a_request_key_returns_the_result_of_a_deletion_again
an_id_made_anew_goes_on_with_its_numbers_and_starts_from_nothing_else = an_id_used_again_continues_its_numbers_and_nothing_else
a_lock_that_lapsed_but_that_nobody_took_still_commits = an_expired_lock_that_was_not_taken_over_still_commits
a_run_that_has_nothing_to_do_any_more_leaves_the_line_for_good = a_run_that_has_nothing_to_do_leaves_the_line_permanently
a_further_debounced_creation_says_the_keys_anew = a_further_debounced_creation_replaces_the_keys
every_eighth_slot_goes_to_whoever_is_parked_longest = every_eighth_slot_goes_to_the_run_parked_longest
a_limit_can_be_raised_and_lowered_and_nobody_is_interrupted = a_limit_can_be_raised_and_lowered_without_interrupting_runs
a_key_of_which_nobody_speaks_any_more_leaves_no_row = a_key_that_is_no_longer_used_leaves_no_row
a_clock_that_is_set_back_takes_nobody_out_of_line = a_clock_that_is_set_back_takes_no_run_out_of_line
a_leased_run_is_nobody_elses = a_leased_run_cannot_be_claimed
a_completion_is_answered_once_and_for_all = a_completion_has_one_result
a_preview_of_a_held_run_says_what_holds_it = a_preview_of_a_held_run_has_its_holds
a_preview_for_an_instance_without_the_clog_says_so = a_preview_for_an_instance_without_the_clog_has_that_hold
a_preview_of_nobody_is_refused = a_preview_of_an_unknown_run_is_refused
asked_again_it_answers_the_same_run_whatever_became_of_it = a_repeated_retry_returns_the_same_run_whatever_its_status
a_run_created_without_input_cannot_begin_anew = a_run_created_without_input_cannot_be_retried_as_new
null_is_an_input_to_begin_anew_with = a_run_with_null_as_input_can_be_retried_as_new
a_request_key_answers_what_it_answered = a_request_key_returns_the_first_result
a_version_is_not_used_again_after_run_and_session_were_deleted_and_made_anew = a_version_is_not_used_again_after_run_and_session_were_deleted_and_created_again
the_answer_of_a_pause_says_all_that_is_known_of_the_clog = pausing_a_clog_returns_its_whole_record
a_queue_that_nobody_serves_keeps_no_other_from_a_free_slot = a_queue_without_workers_does_not_block_a_free_slot
a_claim_of_work_that_is_refused_says_so_plainly = a_refused_claim_of_work_raises_a_plain_error
a_follower_is_told_when_its_ocean_is_closed = a_follower_ends_when_its_ocean_is_closed
a_direct_call_that_always_loses_answers_conflict_and_writes_nothing = a_direct_call_that_always_loses_raises_conflict_and_writes_nothing
a_guard_holds_also_for_rows_answered_from_the_ledger = a_guard_holds_also_for_rows_from_the_ledger
conflicts_are_counted_anew_with_each_attempt_so_that_the_tick_still_gets_its_turn = each_attempt_counts_its_own_conflicts_so_that_the_tick_still_gets_its_turn
a_tick_that_always_loses_other_rows_is_told_as_the_retry_that_it_became = a_tick_that_always_loses_other_rows_is_reported_as_retry
who_waits_for_a_held_run_is_told_plainly_that_its_ocean_was_closed = waiting_for_a_held_run_raises_when_its_ocean_is_closed
a_clock_that_is_set_back_loses_nobody_who_is_woken_or_parked = a_clock_that_is_set_back_loses_no_woken_or_parked_run
a_signal_during_a_tick_is_never_lost_whatever_it_answers = a_signal_during_a_tick_is_never_lost_whatever_its_outcome
nobody_starves_behind_a_run_that_always_continues = no_run_starves_behind_a_run_that_always_continues
a_commit_at_any_step_of_the_hand_over_is_told_once = a_commit_at_any_step_of_the_hand_over_is_delivered_once
many_lost_answers_are_judged_too = a_history_with_many_lost_responses_is_judged
whatever_clients_were_answered_some_order_explains = some_order_explains_every_response
"""
"""Names of tests, without `test_`."""


def rewrite_imports(text: str) -> str:
    """Split `from module import a, b` where some names have a new home."""

    def split(found: re.Match[str]) -> str:
        indent, module, listed = found.group(1), found.group(2), found.group(3) or found.group(4)
        names = [name.strip() for name in listed.split(",") if name.strip()]
        if not any((module, name.split(" as ")[0]) in HOMES for name in names):
            return found.group()
        homes: dict[str, list[str]] = {}
        for name in names:
            homes.setdefault(HOMES.get((module, name.split(" as ")[0]), module), []).append(name)
        return "\n".join(f"{indent}from {home} import {', '.join(names)}" for home, names in homes.items())

    return re.sub(r"(?m)^( *)from (ocean[\w.]+) import (?:\(([\w\s,]+)\)|([\w ,]+))$", split, text)


def main() -> None:
    """Rewrite the Python files that git tracks, and what tests and documents quote."""
    for old, new in FILES.items():
        if Path(old).exists():
            subprocess.run(["git", "mv", old, new], check=True)
    renames = dict(line.split(" = ") for line in RENAMES.splitlines() if line)
    pattern = re.compile(r"(?<!\w)(" + "|".join(map(re.escape, renames)) + r")(?!\w)")
    tracked = subprocess.run(
        ["git", "ls-files", "*.py"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    for name in tracked:
        file = Path(name)
        if not file.is_file() or name.startswith((".ci/", "clogs/")):
            continue
        before = file.read_text()
        after = rewrite_imports(pattern.sub(lambda found: renames[found.group(1)], before))
        for old, new in TEXTS.items():
            after = after.replace(old, new)
        for places, table in ONLY.items():
            if name.startswith(places):
                for old, new in table.items():
                    after = re.sub(rf"\b{old}\b", new, after)
        if after != before:
            file.write_text(after)
    quote(dict(line.split(" = ") for line in TESTS.splitlines() if line))


def quote(tests: dict[str, str]) -> None:
    """Rewrite messages and names of tests where they are quoted."""
    paths = ["tests", "docs", "examples", "README.md", "CONTRIBUTING.md"]
    listed = subprocess.run(["git", "ls-files", *paths], check=True, capture_output=True, text=True).stdout
    named = re.compile(r"\btest_(" + "|".join(tests) + r")\b")
    for name in listed.splitlines():
        file = Path(name)
        if file.suffix not in {".py", ".md", ".json"} or not file.is_file():
            continue
        before = file.read_text()
        after = named.sub(lambda found: f"test_{tests[found.group(1)]}", before)
        for old, new in (*FILES.items(), *MESSAGES.items()):
            after = after.replace(old, new)
        for old, new in QUOTED.items():
            after = re.sub(old, new, after)
        if after != before:
            file.write_text(after)


if __name__ == "__main__":
    main()
