-- The commit of a tick: fence, row versions, effects, consumed inputs and the transition, all in one transaction.

CREATE OR REPLACE FUNCTION ocean_commit_tick(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  t ocean_ticks;
  r runs := ocean_find_unlocked(a->>'run_id');
  e jsonb := a->'effects';
  o ocean_origin;
  refused jsonb;
  stale json;
BEGIN
  SELECT * INTO t FROM ocean_ticks k WHERE k.run_id = a->>'run_id' AND k.tick = (a->>'tick')::bigint;
  IF t.outcome IS NOT NULL AND t.epoch = (a->>'epoch')::bigint THEN
    RETURN json_build_object('committed', r.status);
  END IF;
  IF NOT ocean_is_held(r, (a->>'epoch')::bigint) THEN
    PERFORM ocean_refuse('lock_lost', json_build_object('run_id', a->'run_id', 'epoch', a->'epoch'));
  ELSIF r.stop_by IS NOT NULL THEN
    PERFORM ocean_refuse('run_is_ending', json_build_object('run_id', a->'run_id', 'ending', r.ending));
  ELSIF t.run_id IS NULL THEN
    PERFORM ocean_refuse('tick_gone', json_build_object('run_id', a->'run_id', 'tick', a->'tick'));
  END IF;
  o := ROW(now, t.tick, (a->>'call')::bigint, NULL, t.caused_by)::ocean_origin;
  IF a->'outcome'->>0 = 'retry' THEN
    RETURN ocean_commit_retry(r, a, t, a->'outcome'->>1, (a->'outcome'->>2)::bigint, o);
  ELSIF e = '{}' THEN
    RETURN json_build_object('committed', (ocean_settle_tick(r, a, t, o)).status);
  ELSIF ocean_must_wait_for_turn(e->'writes', r.run_id, r.lock_epoch, now) THEN
    RETURN '{"behind": true}';
  ELSIF ocean_has_conflict(e, r.run_id, now) THEN
    RETURN ocean_restart(r, a, t, o);
  END IF;
  refused := ocean_refused_takes(e->'takes', now);
  IF refused <> '[]' THEN
    RETURN ocean_call_again(r, t, refused, o);
  END IF;
  stale := ocean_stale_writes(e->'writes');
  IF stale IS NOT NULL THEN
    RETURN json_build_object('stale', stale);
  END IF;
  r := ocean_apply_effects(r, e, o, a->>'clog_id', r.session_id);
  r := ocean_settle_tick(r, a, t, o);
  IF e ?| ARRAY['delete_ticks', 'delete_runs', 'delete_session_by'] THEN
    PERFORM ocean_apply_deletions(r.run_id, r.session_id, e, o);
    r := ocean_find(r.run_id);
  END IF;
  RETURN json_build_object('committed', r.status);
END $$;

-- Consumes the inputs, applies the outcome to the run, and logs it.
CREATE OR REPLACE FUNCTION ocean_settle_tick(r runs, a jsonb, t ocean_ticks, o ocean_origin) RETURNS runs
LANGUAGE plpgsql AS $$
DECLARE
  outcome_name text := a->'outcome'->>0;
  value text := a->'outcome'->>1;
  numbers bigint[];
  before runs;
BEGIN
  WITH consumed AS (
    UPDATE ocean_inbox i SET consumed_tick = t.tick
    WHERE i.run_id = r.run_id AND i.assigned_tick = t.tick AND i.consumed_tick IS NULL RETURNING i.number)
  SELECT coalesce(array_agg(number ORDER BY number), '{}') INTO numbers FROM consumed;
  r.pending_count := r.pending_count - cardinality(numbers);
  IF outcome_name = 'continue' THEN
    -- It precedes everything else in the inbox.
    r := ocean_append_input(r, o.now, 'continue', value, -1);
  END IF;
  before := r;
  r := ocean_settled(r, outcome_name,
    CASE WHEN outcome_name = 'wait' THEN coalesce(value::bigint, o.now + (a->'outcome'->>2)::bigint) END,
    CASE WHEN r.pending_count > 0 THEN ocean_next_input_at(r.run_id) END, o.now);
  UPDATE ocean_ticks k SET outcome = outcome_name, committed_at = o.now
  WHERE k.run_id = r.run_id AND k.tick = t.tick;
  DELETE FROM ocean_turns w WHERE w.run_id = r.run_id;
  r := ocean_event(r, o, 'tick.committed',
    ocean_commit_payload(outcome_name, r.status, t.reason, ocean_attempts(before), to_jsonb(numbers), a));
  IF before.ending IS NOT NULL THEN
    -- Whatever the outcome of a last tick, the run ends with the error that began its end.
    RETURN ocean_end_run(r, 'failed', NULL, ocean_stored_error(r.run_id), o);
  ELSIF outcome_name = 'done' THEN
    RETURN ocean_end_run(r, 'done', value, NULL, o);
  ELSIF outcome_name = 'failed' THEN
    RETURN ocean_end_run(r, 'failed', NULL, value, o);
  END IF;
  IF before.attempt > 0 THEN
    PERFORM ocean_save_error(r.run_id, NULL);
  END IF;
  IF r.status = 'waiting' THEN
    r := ocean_event(r, o, 'run.waiting', json_build_object('wake_at', r.wake_at)::text);
  END IF;
  PERFORM ocean_save(r);
  RETURN r;
END $$;

-- Returns the payload of `tick.committed`: the outcome, and which instance made the call, when, under which epoch and
-- version of the clog.
CREATE OR REPLACE FUNCTION ocean_commit_payload(outcome text, status text, reason text, attempt bigint, inputs jsonb, a jsonb)
RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  -- Concatenated as text: the kernel's own words need no quoting, and the other values are JSON already.
  RETURN '{"outcome":"' || outcome || '","status":"' || status || '","reason":"' || reason || '","attempt":' || attempt
    || ',"inputs":' || inputs::text || ',"claimed_at":' || coalesce((a->'claimed_at')::text, 'null')
    || ',"epoch":' || coalesce((a->'epoch')::text, 'null') || ',"instance":' || coalesce((a->'instance_id')::text, 'null')
    || ',"version":' || coalesce((a->'version')::text, 'null') || '}';
END $$;

CREATE OR REPLACE FUNCTION ocean_commit_retry(r runs, a jsonb, t ocean_ticks, error text, after_ms bigint, o ocean_origin)
RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  policy jsonb := ocean_retry_policy(r);
  attempt bigint := ocean_attempts(r) + 1;
  reason text;
BEGIN
  IF o.now - t.first_claimed_at >= (policy->>'max_elapsed_ms')::bigint
    OR ocean_is_spent(attempt, ocean_most_attempts(r)) THEN
    reason := coalesce(r.ending, 'exhausted');
  END IF;
  DELETE FROM ocean_turns w WHERE w.run_id = r.run_id;
  IF reason IS NOT NULL THEN
    -- As json, not jsonb, which would change numbers and the order of keys in the clog's error.
    r := ocean_event(r, o, 'tick.failed', json_build_object('error', error::json, 'attempt', attempt,
      'claimed_at', a->'claimed_at', 'epoch', a->'epoch', 'instance', a->'instance_id', 'version', a->'version')::text);
    r := ocean_request_end(ocean_with_attempts(r, attempt), reason, error, o);
    RETURN json_build_object('committed', r.status);
  END IF;
  r := ocean_retried(r, coalesce(after_ms, ocean_delay_for(policy, r.run_id, r.tick, attempt)), o.now);
  IF r.ending IS NULL THEN
    -- The error of a run that is ending is the reason for its end.
    PERFORM ocean_save_error(r.run_id, error);
  END IF;
  r := ocean_event(r, o, 'run.retrying', json_build_object('error', error::json, 'attempt', attempt,
    'wake_at', r.wake_at, 'status', r.status, 'claimed_at', a->'claimed_at', 'epoch', a->'epoch',
    'instance', a->'instance_id', 'version', a->'version')::text);
  PERFORM ocean_save(r);
  RETURN json_build_object('committed', r.status, 'next_ms', r.wake_at - o.now);
END $$;

-- Returns the retry policy of the run, or of its clog's last ticks if it is ending.
CREATE OR REPLACE FUNCTION ocean_retry_policy(r runs) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF r.ending IS NOT NULL THEN
    RETURN (SELECT c.end_retry::jsonb FROM ocean_clogs c WHERE c.clog_id = r.clog_id);
  END IF;
  RETURN (SELECT d.retry::jsonb FROM ocean_run_details d WHERE d.run_id = r.run_id);
END $$;

-- Calls the tick again after a conflict with other writers: it keeps its lock, no attempt is counted, and from the
-- second conflict on it gets a turn. If a tick that has a turn conflicts again (it named other rows than before), that
-- is a failed attempt.
CREATE OR REPLACE FUNCTION ocean_restart(r runs, a jsonb, t ocean_ticks, o ocean_origin) RETURNS json
LANGUAGE plpgsql AS $$
DECLARE
  must_take_turn boolean;
  error json;
BEGIN
  IF t.conflicts >= 3 THEN
    error := json_build_object('code', 'conflict', 'message',
      format('its rows had moved on %s times', t.conflicts + 1), 'details', NULL);
    RETURN ocean_commit_retry(r, a, t, error::text, NULL, o)::jsonb || jsonb_build_object('beaten', t.conflicts + 1);
  END IF;
  UPDATE ocean_ticks k SET calls = k.calls + 1, conflicts = k.conflicts + 1
  WHERE k.run_id = r.run_id AND k.tick = t.tick RETURNING k.* INTO t;
  o.call := t.calls;
  r := ocean_event(r, o, 'tick.restarted',
    json_build_object('because', 'conflict', 'attempt', ocean_attempts(r), 'conflicts', t.conflicts)::text);
  PERFORM ocean_save(r);
  must_take_turn := t.conflicts >= 2;
  IF must_take_turn THEN
    must_take_turn := NOT ocean_take_turn(r.run_id, r.lock_epoch, a->'contested', o.now);
  END IF;
  RETURN json_build_object('contended', json_build_array(t.calls, must_take_turn, '{}'::json));
END $$;

-- Calls the tick again after other calls took what it wanted from a counter. No conflict is counted: the next call is
-- informed, so this happens once per key.
CREATE OR REPLACE FUNCTION ocean_call_again(r runs, t ocean_ticks, refused jsonb, o ocean_origin) RETURNS json
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE ocean_ticks k SET calls = k.calls + 1 WHERE k.run_id = r.run_id AND k.tick = t.tick RETURNING k.* INTO t;
  o.call := t.calls;
  r := ocean_event(r, o, 'tick.restarted', json_build_object('because', 'counter', 'attempt', ocean_attempts(r),
    'keys', jsonb_path_query_array(refused, '$[*][0]'))::text);
  PERFORM ocean_save(r);
  RETURN json_build_object('contended', json_build_array(t.calls, false, ocean_refused_by_key(refused)));
END $$;

-- Takes back a call that its caller has stopped. The first two are free; from the third on, each counts as an attempt.
-- If counts is false, because the process stops, none does.
CREATE OR REPLACE FUNCTION ocean_give_back(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_run_under_lock(a->>'run_id', (a->>'epoch')::bigint);
  before runs := r;
  t ocean_ticks;
  counts boolean := coalesce((a->>'counts')::boolean, true);
  give_backs bigint;
  attempt bigint;
  reason text;
  o ocean_origin;
BEGIN
  UPDATE ocean_ticks k SET give_backs = k.give_backs + counts::int
  WHERE k.run_id = r.run_id AND k.tick = (a->>'tick')::bigint RETURNING k.* INTO t;
  give_backs := coalesce(t.give_backs, 1);
  o := ROW(now, t.tick, t.calls, NULL, t.caused_by)::ocean_origin;
  DELETE FROM ocean_turns w WHERE w.run_id = r.run_id;
  attempt := ocean_attempts(r) + CASE WHEN counts AND give_backs > 2 AND r.stop_by IS NULL THEN 1 ELSE 0 END;
  IF attempt > ocean_attempts(r) AND ocean_is_spent(attempt, ocean_most_attempts(r)) THEN
    reason := coalesce(r.ending, 'exhausted');
  END IF;
  IF reason IS NOT NULL THEN
    r := ocean_request_end(ocean_with_attempts(r, attempt), reason, json_build_object('code', 'given_back', 'message',
      format('its callers stopped tick %s %s times before it ended', a->>'tick', give_backs), 'details', NULL)::text, o);
    RETURN to_json(r.status);
  END IF;
  r := CASE WHEN r.stop_by IS NULL THEN ocean_given_back(r, attempt, now) ELSE ocean_stopped(r, now) END;
  r := ocean_event(r, o, 'tick.given_back', json_build_object('give_backs', give_backs, 'attempt', ocean_attempts(r),
    'status', r.status, 'epoch', before.lock_epoch, 'instance', before.locked_by)::text);
  PERFORM ocean_save(r);
  RETURN to_json(r.status);
END $$;

-- Commits a direct call: row versions only, no lock. It may not change a run that has ended.
CREATE OR REPLACE FUNCTION ocean_commit_call(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  answer json;
  stored text := ocean_stored_answer(a->'request');
BEGIN
  IF stored IS NOT NULL THEN
    RETURN json_build_object('repeated', stored);
  END IF;
  answer := ocean_commit_new_call(a, now);
  IF answer->'done' IS NOT NULL THEN
    PERFORM ocean_keep_answer(a->'request', a->>'answer', now);
  END IF;
  RETURN answer;
END $$;

CREATE OR REPLACE FUNCTION ocean_commit_new_call(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  e jsonb := a->'effects';
  r runs;
  refused jsonb;
  stale json;
  o ocean_origin := ocean_origin(now, a->>'actor');
BEGIN
  IF (a->>'is_empty')::boolean THEN
    RETURN CASE WHEN ocean_has_conflict(e, a->>'run_id', now) THEN '{"conflict": {}}' ELSE '{"done": true}' END;
  ELSIF ocean_must_wait_for_turn(e->'writes', NULL, 0, now) THEN
    RETURN '{"behind": true}';
  END IF;
  IF a->>'run_id' IS NOT NULL THEN
    r := ocean_run(a->>'run_id');
    PERFORM ocean_refuse_if_ended(r);
  END IF;
  IF ocean_has_conflict(e, a->>'run_id', now) THEN
    RETURN '{"conflict": {}}';
  END IF;
  refused := ocean_refused_takes(e->'takes', now);
  IF refused <> '[]' THEN
    RETURN json_build_object('conflict', ocean_refused_by_key(refused));
  END IF;
  stale := ocean_stale_writes(e->'writes');
  IF stale IS NOT NULL THEN
    RETURN json_build_object('stale', stale);
  END IF;
  IF a->>'session_id' IS NOT NULL THEN
    PERFORM ocean_add_session(a->>'session_id', now);
  END IF;
  r := ocean_apply_effects(r, e, o, a->>'clog_id', a->>'session_id');
  r := ocean_log(r, o, 'call.committed', json_build_object('method', a->'method', 'status', r.status)::text,
    a->>'clog_id', a->>'session_id');
  IF r.run_id IS NOT NULL THEN
    PERFORM ocean_save(r);
  END IF;
  PERFORM ocean_apply_deletions(r.run_id, a->>'session_id', e, o);
  RETURN '{"done": true}';
END $$;
