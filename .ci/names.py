"""Rewrite the names and texts of the clogs and of their tests that have changed.

    python .ci/names.py [PATH ...]

By default in `docs`, `examples`, `tests/examples`, `README.md` and `CONTRIBUTING.md`. Running it again changes nothing.
A branch that was begun before the change runs this script and `ruff format`, commits, and then merges.
"""

import re
import sys
from pathlib import Path

TESTS = """
test_the_request_says_everything_that_was_asked
    test_the_request_contains_every_field_of_the_ask
test_tool_calls_without_indexes_or_with_one_for_all_are_told_apart_by_their_ids
    test_tool_calls_without_distinct_indexes_are_distinguished_by_id
test_a_stream_that_ends_after_its_reason_needs_no_last_word
    test_a_stream_that_ends_after_its_reason_needs_no_done_marker
test_an_endpoint_that_falls_silent_is_given_up
    test_an_endpoint_that_sends_nothing_times_out
test_nobody_there_is_an_error_that_passes
    test_an_unreachable_endpoint_is_a_passing_error
test_a_refusal_says_whether_and_when_to_come_again
    test_a_refusal_states_whether_and_when_to_retry
test_a_date_to_come_again_counts_from_the_answers_own
    test_a_retry_date_is_relative_to_the_date_of_the_response
test_a_missing_key_names_its_variable_and_asks_nobody
    test_a_missing_key_names_its_variable_and_sends_no_request
test_a_base_url_that_is_none_is_refused
    test_an_invalid_base_url_is_refused
test_the_same_conversation_is_answered_alike_and_a_longer_one_is_remembered
    test_equal_conversations_get_equal_answers_and_earlier_messages_count
test_rules_answer_by_what_was_said_and_may_ask_for_tools
    test_rules_reply_by_the_last_message_and_may_call_tools
test_a_script_goes_by_the_answers_in_the_conversation
    test_a_script_replies_by_the_number_of_earlier_answers
test_arguments_that_are_no_object_are_an_error_to_tell_the_model
    test_arguments_that_are_not_an_object_are_an_error_for_the_model
test_models_are_found_by_name_and_a_wrong_one_is_told_the_near
    test_models_are_found_by_name_and_a_wrong_name_suggests_the_nearest
test_it_calls_tools_until_it_answers
    test_an_agent_calls_tools_until_the_model_gives_an_answer
test_several_calls_of_one_turn_are_made_in_order_and_failures_are_told_to_the_model
    test_calls_of_one_turn_are_made_in_order_and_failures_are_sent_to_the_model
test_arguments_that_are_no_json_are_told_to_the_model_and_to_no_human
    test_invalid_arguments_are_reported_to_the_model_and_need_no_approval
test_a_denied_tool_is_not_offered_and_its_refusal_is_told_and_audited
    test_a_denied_tool_is_not_offered_and_its_refusal_is_reported_and_audited
test_a_word_while_it_thinks_breaks_the_answer_off_and_is_heard
    test_a_message_during_an_answer_interrupts_it_and_is_sent_to_the_model
test_words_that_come_together_are_heard_before_it_thinks
    test_messages_that_wait_together_are_taken_before_the_model_is_called
test_stop_ends_the_run_with_what_there_is
    test_stop_ends_the_run_with_its_current_result
test_a_signal_that_is_no_word_is_refused_and_changes_nothing
    test_a_signal_that_is_not_a_message_is_refused_and_changes_nothing
test_words_while_it_waits_are_bounded
    test_messages_during_tool_calls_are_bounded
test_an_approved_call_is_made_once_in_the_name_of_who_approved_it
    test_an_approved_call_is_made_once_in_the_name_of_the_approver
test_a_rejected_call_is_not_made_and_the_model_is_told_why
    test_a_rejected_call_is_not_made_and_the_model_gets_the_reason
test_it_is_decided_at_most_once_also_by_many_at_once
    test_a_request_is_decided_at_most_once_also_by_concurrent_callers
test_who_comes_after_the_turn_is_told_who_decided
    test_a_late_decision_is_refused_with_the_name_of_the_first_caller
test_a_decision_that_is_none_is_refused
    test_an_invalid_decision_is_refused
test_nobody_decides_and_the_call_is_not_made
    test_a_call_that_is_not_decided_in_time_is_not_made
test_nobody_decides_and_the_run_fails_if_it_was_to
    test_a_call_that_is_not_decided_in_time_fails_the_run_if_set_to
test_a_decision_cancels_the_clock
    test_a_decision_cancels_the_timer
test_the_other_calls_of_a_turn_do_not_wait_and_words_are_heard_after_the_results
    test_other_calls_of_a_turn_do_not_wait_and_messages_follow_the_results
test_somebody_with_a_key_decides_over_http_in_its_name
    test_a_decision_over_http_has_the_actor_of_the_key
test_a_crash_at_any_place_changes_nothing_of_it
    test_a_crash_at_any_place_changes_no_result
test_a_message_is_heard_answered_in_a_stream_and_kept_as_a_turn
    test_a_message_gets_a_streamed_answer_and_is_stored_as_a_turn
test_words_are_seen_while_the_model_still_speaks
    test_tokens_are_visible_while_the_model_still_streams
test_the_model_is_told_the_system_prompt_and_the_window_of_the_history
    test_the_model_gets_the_system_prompt_and_the_window_of_the_history
test_a_new_message_breaks_the_answer_off_and_is_answered_with_what_was_said
    test_a_new_message_interrupts_the_answer_which_stays_in_the_history
test_a_model_that_has_not_said_a_word_is_interrupted_too
    test_a_model_that_has_sent_nothing_is_interrupted_too
test_of_messages_that_wait_together_the_last_is_answered_and_all_are_in_the_history
    test_of_messages_that_wait_together_only_the_last_gets_an_answer_and_all_are_in_the_history
test_stop_ends_the_answer_and_says_nothing_itself
    test_stop_ends_the_answer_and_is_not_a_message
test_a_message_that_comes_after_the_last_word_interrupts_nothing
    test_a_message_after_the_end_of_an_answer_interrupts_nothing
test_a_model_that_fails_is_shown_and_asked_again_when_it_says
    test_a_failing_model_is_reported_and_called_again_after_its_delay
test_a_message_is_given_up_after_all_attempts_and_the_conversation_lives_on
    test_a_message_fails_after_all_attempts_and_the_conversation_goes_on
test_a_refusal_that_does_not_pass_is_not_asked_for_again
    test_a_permanent_refusal_is_not_retried
test_how_often_a_model_is_asked_is_the_runs_own_policy
    test_the_number_of_attempts_is_the_policy_of_the_run
test_a_new_message_during_the_back_off_takes_the_place_of_the_failed_one
    test_a_new_message_during_the_backoff_replaces_the_failed_one
test_a_model_with_a_defect_fails_the_attempt_by_the_defects_own_name
    test_a_defect_in_a_model_fails_the_attempt_with_its_own_error
test_settings_that_do_not_fit_fail_the_run_and_name_the_place
    test_invalid_settings_fail_the_run_and_name_the_field
test_a_signal_that_is_no_message_is_refused_aloud_and_the_conversation_goes_on
    test_a_signal_that_is_not_a_message_is_refused_with_an_event_and_the_conversation_goes_on
test_an_empty_message_is_none
    test_an_empty_message_is_ignored
test_a_conversation_ends_when_nobody_has_spoken_for_long
    test_a_conversation_ends_after_its_idle_time
test_a_message_that_waits_when_the_time_is_up_is_answered
    test_a_message_that_waits_when_the_idle_time_is_over_gets_an_answer
test_a_model_is_asked_under_the_ticks_own_key
    test_a_model_is_called_with_the_idempotency_key_of_the_step
test_an_endpoint_that_asks_to_wait_is_waited_for
    test_the_delay_that_an_endpoint_asks_for_is_kept
test_an_interrupted_answer_hangs_up_on_the_endpoint
    test_an_interrupted_answer_closes_the_connection
test_a_message_that_another_process_takes_in_interrupts_too
    test_a_message_received_by_another_process_interrupts_too
test_a_model_is_told_who_said_what_and_what_was_broken_off
    test_messages_have_their_roles_and_mark_interrupted_answers
test_at_most_so_many_are_answered_at_a_time
    test_at_most_width_questions_are_worked_on_at_a_time
test_too_few_answers_fail_the_run_and_say_which
    test_too_few_results_fail_the_run_and_name_the_missing
test_time_is_over_and_the_report_is_of_what_there_is
    test_the_report_is_written_from_the_results_in_time
test_somebody_has_heard_enough
    test_finish_stops_waiting_and_writes_the_report
test_what_cannot_be_begun_fails_at_once
    test_an_invalid_input_fails_the_run_at_once
test_a_task_that_cannot_be_begun_fails_at_once
    test_an_invalid_task_fails_the_run_at_once
test_nothing_is_written_of_nothing_unless_it_is_asked_for
    test_an_empty_digest_is_written_only_with_when_empty
test_a_digest_told_nonsense_fails_and_says_why
    test_a_digest_with_invalid_settings_fails_with_the_reason
test_a_schedule_makes_it_write_what_came_since_the_last
    test_a_schedule_makes_a_digest_of_everything_since_the_last
test_a_page_without_an_etag_is_known_by_what_it_says
    test_a_page_without_an_etag_is_compared_by_content
test_a_failing_page_is_asked_ever_more_rarely_and_a_good_one_as_before
    test_the_interval_grows_while_a_page_fails_and_is_then_restored
test_a_server_that_is_away_is_a_failure_and_no_end
    test_an_unreachable_server_is_a_failure_and_does_not_end_the_poller
test_a_signal_makes_it_look_at_once
    test_a_signal_requests_the_page_at_once
test_what_can_never_work_fails_at_once_and_says_why
    test_a_permanent_error_fails_the_poller_at_once_with_the_reason
test_a_crash_at_any_place_tells_a_change_once
    test_a_crash_at_any_place_reports_a_change_once
test_each_target_gets_it_once_signed_anew_whatever_comes_again
    test_each_target_gets_a_webhook_once_with_a_new_signature_whatever_is_repeated
test_what_is_hopeless_is_a_dead_letter_at_once
    test_a_permanent_error_is_a_dead_letter_at_once
test_nothing_is_taken_in_unsigned_or_when_there_is_nowhere_to_send_it
    test_an_unsigned_webhook_or_one_without_targets_is_refused
test_a_schedule_fires_what_a_plain_model_says
    test_a_schedule_fires_as_a_plain_model_predicts
test_what_a_gap_does_can_be_said
    test_on_gap_decides_about_skipped_times
test_what_a_repeated_time_does_can_be_said
    test_on_repeat_decides_about_repeated_times
test_zones_are_there_where_the_system_has_none
    test_time_zones_work_without_those_of_the_system
test_what_comes_is_after_the_moment_and_never_at_it
    test_times_are_after_the_moment_and_never_at_it
test_an_expression_that_is_wrong_says_where
    test_an_invalid_expression_is_refused_with_its_field
test_it_means_what_a_look_at_every_minute_finds
    test_an_expression_matches_what_a_check_of_every_minute_finds
test_nobody_pokes_over_three_times
    test_three_times_that_no_process_poked_for_follow_the_policy
test_each_run_is_told_the_time_before_its_own
    test_each_run_gets_the_previous_time
test_a_pause_over_times_is_as_if_nobody_had_poked
    test_a_pause_over_times_is_as_if_no_process_had_poked
test_a_clock_that_jumps_ahead_is_as_if_nobody_had_poked_until_it_is_set_right
    test_a_clock_that_jumps_ahead_is_as_if_no_process_had_poked
test_the_same_words_under_a_name_are_one_schedule_and_other_words_are_refused
    test_the_same_spec_under_a_name_is_one_schedule_and_another_is_refused
test_what_is_wrong_is_said_before_anything_is_stored
    test_an_invalid_spec_is_refused_before_anything_is_stored
test_a_run_made_without_add_that_makes_no_sense_fails_and_says_why
    test_an_invalid_run_created_without_add_fails_with_the_reason
test_a_schedule_shows_what_it_was_told_and_how_far_it_is
    test_a_schedule_shows_its_spec_and_its_progress
test_a_change_that_makes_no_sense_changes_nothing
    test_an_invalid_change_changes_nothing
test_an_update_that_meets_a_time_at_work_is_not_lost
    test_an_update_during_a_firing_is_not_lost
test_skip_lets_a_time_go_while_a_run_is_at_work
    test_skip_drops_a_time_while_a_run_has_not_ended
test_a_run_that_fails_or_is_cancelled_makes_room_too
    test_a_run_that_fails_or_is_cancelled_counts_as_ended
test_what_is_created_has_the_options_that_were_told
    test_created_runs_have_the_options_of_the_target
test_a_target_that_was_deleted_and_made_anew_elsewhere_is_not_signalled
    test_a_target_deleted_and_created_again_in_another_session_is_not_signalled
test_without_a_key_it_refuses_to_listen_for_everybody
    test_without_a_key_it_refuses_to_listen_beyond_loopback
test_it_is_nobody_in_particular_and_writes_to_its_volume_only
    test_it_runs_as_an_unprivileged_user_and_writes_to_its_volume_only
test_a_schedule_pokes_and_is_told_what_was_done
    test_a_scheduled_event_pokes_and_returns_what_was_done
test_time_that_opening_the_database_took_is_no_longer_there
    test_the_time_to_open_the_database_is_deducted
test_ocean_is_told_only_what_it_knows
    test_recipes_set_only_variables_that_ocean_reads
test_an_actor_who_plays_it_well_passes_and_is_shown_the_key_every_time
    test_a_correct_server_passes_and_gets_the_key_with_every_request
test_an_actor_who_forgets_a_line_is_found_out
    test_a_server_with_one_wrong_response_fails
test_a_server_that_is_not_there_is_told_in_one_line
    test_an_unreachable_server_is_reported_in_one_line
test_a_real_server_with_another_clog_is_told_apart
    test_a_server_with_another_clog_fails
test_an_input_that_is_no_json_is_wrong_usage
    test_an_input_that_is_not_json_is_wrong_usage
test_the_service_says_when_it_is_ready_as_its_type_demands
    test_the_service_reports_that_it_is_ready
test_a_poke_that_cannot_begin_says_why_and_fails
    test_a_poke_that_cannot_start_fails_with_the_reason
test_a_blocked_click_is_paused_and_says_why_and_the_next_one_looks_again
    test_a_blocked_click_is_paused_with_its_reason_and_the_next_asks_the_gate_again
test_a_step_that_fails_for_good_is_200_failed_and_its_remedy_is_next
    test_a_step_that_fails_permanently_is_200_failed_and_its_remedy_is_next
test_a_tool_that_raises_is_asked_again_under_the_same_key_and_the_step_succeeds
    test_an_effect_that_raises_is_retried_under_the_same_key_and_the_step_succeeds
test_a_tool_that_goes_on_raising_fails_the_step_and_a_later_click_asks_under_the_same_key
    test_an_effect_that_keeps_raising_fails_the_step_and_a_later_click_uses_the_same_key
test_a_dry_run_tells_step_gate_and_blocker_and_changes_no_row_of_any_table
    test_a_dry_run_reports_step_gate_and_blocker_and_changes_no_row_of_any_table
test_a_dry_run_of_an_effect_does_not_have_it
    test_a_dry_run_does_not_call_the_effect
test_a_mode_that_there_is_not_executes_nothing_in_python_either
    test_an_unknown_mode_executes_nothing_in_python_either
test_a_click_whose_execution_takes_too_long_says_where_to_look_and_its_key_finds_the_end
    test_a_click_whose_execution_takes_too_long_names_its_run_and_its_key_finds_the_result
test_names_that_no_issue_can_have_are_refused_or_not_there
    test_ids_that_no_issue_can_have_are_refused_or_not_found
test_an_issue_that_makes_no_sense_is_refused_by_the_name_of_what_is_wrong
    test_an_invalid_issue_is_refused_with_the_wrong_field
test_facts_are_changed_by_version_and_null_forgets_one
    test_facts_are_changed_by_version_and_null_removes_one
test_a_plan_that_makes_no_sense_is_refused_where_it_is_said
    test_an_invalid_plan_is_refused_when_it_is_created
test_a_plan_of_ones_own_with_a_name_estimates_and_an_effect
    test_a_custom_plan_with_an_estimate_and_an_effect
test_a_failure_for_good_without_a_remedy_is_tried_again_under_a_new_key
    test_a_permanent_failure_without_a_remedy_is_retried_under_a_new_key
test_a_key_speaks_for_its_actor_and_for_those_that_its_roles_name
    test_a_key_acts_for_its_actor_and_for_those_that_its_roles_name
test_a_lock_that_has_run_out_is_taken_over_and_its_execution_has_ended
    test_an_expired_lock_is_taken_over_and_its_execution_has_ended
test_a_click_after_an_end_that_the_issue_has_not_heard_of_is_the_next_step
    test_a_click_before_the_issue_has_taken_the_result_is_the_next_step
test_a_key_that_is_at_work_in_the_same_server_is_told_who_holds_the_lock
    test_a_key_in_use_in_the_same_server_gets_the_holder_of_the_lock
test_issues_beside_each_other_do_not_meet
    test_concurrent_issues_do_not_affect_each_other
test_a_version_that_is_none_is_refused
    test_an_invalid_version_is_refused
test_an_answer_that_was_lost_is_found_by_its_key
    test_a_lost_response_is_found_by_its_key
test_an_answer_whose_run_was_removed_is_gone_and_the_key_is_free
    test_a_kept_result_whose_run_was_deleted_is_gone_and_the_key_is_free
test_a_request_id_is_a_uuid_and_the_senders_if_that_is_one
    test_a_request_id_is_a_uuid_and_that_of_the_request_if_valid
test_a_house_at_work_is_healthy
    test_a_busy_project_has_no_findings
test_a_word_that_no_clog_has_is_unknown_and_opens_nothing
    test_an_unknown_command_opens_no_database
test_a_typo_is_no_reason_to_speak_of_clogs
    test_a_typo_of_a_core_command_does_not_mention_clogs
test_a_command_is_registered_once_and_answers_as_agreed
    test_a_command_is_registered_once_and_returns_a_command_answer
test_a_policy_that_could_not_be_used_is_refused
    test_an_invalid_policy_is_refused
test_a_template_of_which_no_mission_can_be_made_is_refused
    test_an_invalid_template_is_refused
test_http_asks_under_the_steps_key_and_fails_by_status
    test_http_sends_the_idempotency_key_of_the_step_and_fails_by_status
test_a_worker_renews_beside_the_work_and_stops_it_when_the_lease_is_lost
    test_a_worker_renews_during_the_work_and_stops_it_when_the_lease_is_lost
test_a_killed_worker_needs_no_living_one
    test_the_step_of_a_killed_worker_is_recovered_without_another_worker
test_workers_claim_by_executor_which_is_openclaw_unless_the_step_says_so
    test_workers_claim_by_executor_which_is_openclaw_by_default
test_twenty_workers_who_claim_at_once_get_each_step_once
    test_twenty_concurrent_workers_get_each_step_once
test_params_and_results_as_large_as_they_may_be_are_kept_and_larger_ones_refused
    test_params_and_results_up_to_the_limit_are_stored_and_larger_ones_refused
test_stale_is_who_has_not_renewed_in_time_however_long_the_lease
    test_a_step_is_stale_if_not_renewed_in_time_however_long_the_lease
test_a_redriven_step_that_dies_again_has_a_second_letter_and_only_that_is_of_use
    test_a_redriven_step_that_fails_again_has_a_second_letter_and_only_that_can_be_redriven
test_ten_who_redrive_at_once_make_one_attempt
    test_ten_concurrent_redrives_make_one_attempt
test_a_claim_that_dies_before_its_answer_costs_one_lease_and_no_step
    test_a_claim_whose_response_is_lost_costs_one_lease_and_no_step
test_a_claim_that_cannot_be_recorded_is_handed_back_at_once_and_costs_the_step_nothing
    test_a_claim_that_cannot_be_recorded_is_released_at_once_and_costs_the_step_nothing
test_the_same_dedupe_key_answers_the_first_proposal_with_its_mission_whatever_the_rest_says
    test_the_same_dedupe_key_returns_the_first_proposal_with_its_mission
test_the_cap_counts_created_proposals_only_and_is_whole_again_at_midnight
    test_the_cap_counts_created_proposals_only_and_is_reset_at_midnight
test_two_who_approve_at_once_make_one_mission
    test_two_concurrent_approvals_make_one_mission
test_what_was_not_filled_in_is_known
    test_unfilled_variables_are_reported
test_heartbeat_numbers_count_the_work_since_the_last_one_whoever_did_it
    test_a_heartbeat_reports_the_work_of_all_processes_since_the_last_one
test_beats_at_the_same_time_share_the_work_between_them_and_count_none_twice
    test_concurrent_heartbeats_count_no_work_twice
test_the_heartbeats_own_thoughts_trigger_nothing_and_those_of_agents_do
    test_the_heartbeats_own_events_trigger_nothing_and_those_of_agents_do
test_probability_asks_an_injected_chance_and_starts_no_cooldown_in_vain
    test_probability_uses_the_given_chance_and_a_lost_draw_starts_no_cooldown
test_a_reaction_whose_template_cannot_be_proposed_fails_and_says_so
    test_a_reaction_with_an_invalid_template_fails_with_the_reason
"""
"""Tests: the old name, and indented the new one."""

TEXTS = [
    ("I need no network, and I say back what you tell me.", "I need no network, and I repeat what you write."),
    ("You said: ", "You wrote: "),
    ("earlier message of yours", "earlier message from you"),
    ("earlier messages of yours", "earlier messages from you"),
    ("The tool answered: ", "The tool returned: "),
    ("'Not answered.'", "'No result.'"),
    ("deciding needs the role 'operator'", "the caller must have the role 'operator' to decide"),
    ("kim: already approved by kim (", "kim: request '2.1' is already approved by kim ("),
    ("the loop is completed; there is no further step", "the loop is completed; there are no more steps"),
    ("; POST /api/loop/issues makes one", "; create one with POST /api/loop/issues"),
    ("`ToolCall.parsed()`", "`ModelToolCall.parsed()`"),
    ("the `Answer` when", "the `ModelAnswer` when"),
    ("complete `Answer`", "complete `ModelAnswer`"),
    ("`by_rules(Rule(pattern, Reply(…)))`", "`by_rules(Rule(pattern, ModelReply(…)))`"),
    ("`by_script(Reply(…), …)`", "`by_script(ModelReply(…), …)`"),
]
"""Texts that programs print or documents quote: old, new."""

CLASSES = {
    "models": {"Answer": "ModelAnswer", "End": "ModelEnd", "Reply": "ModelReply", "ToolCall": "ModelToolCall"},
    "agent": {"Said": "AgentMessage", "Settings": "AgentSettings"},
    "chat": {"Said": "ChatMessage", "Settings": "ChatSettings"},
    "research": {"Settings": "ResearchSettings"},
    "loop": {"Plan": "LoopPlan", "StepFailed": "LoopStepFailed"},
    "ops": {"StepFailed": "OpsStepFailed"},
}
"""Public names of a clog: old, new. They are rewritten where they are imported."""

PAGES = {
    "docs/loop-api.md": (r"(?<!\w)StepFailed\b", "LoopStepFailed"),
    "docs/ops-loop.md": (r"(?<!\w)StepFailed\b", "OpsStepFailed"),
}
"""Pages whose prose and fragments name a class without importing it."""

FENCE = re.compile(r"^```python[^\n]*\n.*?^```$", re.MULTILINE | re.DOTALL)
IMPORT = re.compile(r"^from clogs\.(\w+)[\w.]* import (?:\(([^)]*)\)|([^\n]*))", re.MULTILINE)


def rewrite_program(program: str) -> str:
    """Return a program with the public names that it imports from the clogs in their new form."""
    for found in list(IMPORT.finditer(program)):
        for item in filter(None, (part.strip() for part in (found[2] or found[3]).split(","))):
            name, _, alias = item.partition(" as ")
            new = CLASSES.get(found[1], {}).get(name)
            if new is None:
                continue
            if alias:
                plain = new if alias == new else f"{new} as {alias}"
                program = program.replace(item, plain)
            else:
                program = re.sub(rf"(?<![\w.]){name}\b", new, program)
    return IMPORT.sub(sorted_import, program)


def sorted_import(found: re.Match[str]) -> str:
    """Return an import of one line with its names in order: classes, then functions."""
    if found[3] is None:
        return found.group()
    items = sorted((part.strip() for part in found[3].split(",")), key=lambda item: (item[0].islower(), item))
    return found.group().removesuffix(found[3]) + ", ".join(items)


def rewrite(name: str, text: str) -> str:
    """Return the text of a file with all names and texts in their new form."""
    words = TESTS.split()
    for old, new in zip(words[::2], words[1::2], strict=True):
        text = re.sub(rf"\b{old}\b", new, text)
    for old, new in TEXTS:
        text = text.replace(old, new)
    for page, (old, new) in PAGES.items():
        if name.endswith(page):
            text = re.sub(old, new, text)
    if name.endswith(".md"):
        return FENCE.sub(lambda block: rewrite_program(block.group()), text)
    return rewrite_program(text) if name.endswith(".py") else text


def main() -> None:
    """Rewrite the files at and below the paths."""
    for root in [
        Path(name) for name in sys.argv[1:] or ("docs", "examples", "tests/examples", "README.md", "CONTRIBUTING.md")
    ]:
        for file in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if file.suffix not in {".md", ".py", ".html"} or not file.is_file():
                continue
            before = file.read_text()
            after = rewrite(str(file), before)
            if after != before:
                file.write_text(after)
                sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    main()
