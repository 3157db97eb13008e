-- name: get_run
-- The narrow row.
SELECT {run} FROM runs WHERE run_id = :run_id;

-- name: get_runs
-- A page of them, in no order.
SELECT {run} FROM runs WHERE run_id IN (SELECT value FROM json_each(:run_ids));

-- name: insert_run
-- A new run.
INSERT INTO runs (run_id, session_id, clog_id, parent_run_id, correlation_id, priority, status, attempt, max_attempts,
  due_at, last_call, ready_at, wake_at, wait_until, deadline_at, locked_by, lock_expires_at, lock_epoch, life, tick, tick_open, paused, ending,
  event_count, inbox_count, pending_count, created_at, updated_at, ended_at,
  key_count, parked_on, parked_at, queue, leased, delayed_by, delay_key)
VALUES (:run_id, :session_id, :clog_id, :parent_run_id, :correlation_id, :priority, :status, :attempt, :max_attempts,
  :due_at, :last_call, :ready_at, :wake_at, :wait_until, :deadline_at, :locked_by, :lock_expires_at, :lock_epoch, :life, :tick, :tick_open,
  :paused, :ending, :event_count, :inbox_count, :pending_count, :created_at, :updated_at, :ended_at,
  :key_count, :parked_on, :parked_at, :queue, :leased, :delayed_by, :delay_key);

-- name: save_run
-- Everything about a run that can change.
UPDATE runs SET status = :status, attempt = :attempt, due_at = :due_at, last_call = :last_call, ready_at = :ready_at,
  wake_at = :wake_at, wait_until = :wait_until, locked_by = :locked_by, lock_expires_at = :lock_expires_at, lock_epoch = :lock_epoch, tick = :tick,
  tick_open = :tick_open, paused = :paused, ending = :ending, event_count = :event_count, inbox_count = :inbox_count,
  pending_count = :pending_count, updated_at = :updated_at, ended_at = :ended_at, parked_on = :parked_on,
  parked_at = :parked_at, leased = :leased, delayed_by = :delayed_by, delay_key = :delay_key
WHERE run_id = :run_id;

-- name: redefine_run
-- What only a further creation of a debounced run can change.
UPDATE runs SET priority = :priority, max_attempts = :max_attempts, deadline_at = :deadline_at, queue = :queue,
  key_count = :key_count
WHERE run_id = :run_id;

-- name: redefine_details
UPDATE ocean_run_details SET body_hash = :body_hash, retry = :retry WHERE run_id = :run_id;

-- name: replace_created_input
UPDATE ocean_inbox SET body = :body, actor = :actor, caused_by = :caused_by, event_seq = :event_seq
WHERE run_id = :run_id AND number = 1 AND kind = 'created' AND assigned_tick IS NULL;

-- name: delete_run
DELETE FROM runs WHERE run_id = :run_id;

-- name: insert_session
-- Sessions are made on first use.
INSERT INTO ocean_sessions (session_id, created_at) VALUES (:session_id, :now) ON CONFLICT DO NOTHING;

-- name: delete_session
DELETE FROM ocean_sessions WHERE session_id = :session_id RETURNING session_id;

-- name: session_runs
SELECT run_id FROM runs WHERE session_id = :session_id ORDER BY clog_id, status, created_at, run_id;

-- name: session_foreign_run
-- A run in the session that another clog owns.
SELECT run_id, clog_id FROM runs WHERE session_id = :session_id AND clog_id <> :clog_id LIMIT 1;

-- name: insert_details
INSERT INTO ocean_run_details (run_id, body_hash, retry, notify_parent, on_parent_end, dedupe_key, retry_of, rate)
VALUES (:run_id, :body_hash, :retry, :notify_parent, :on_parent_end, :dedupe_key, :retry_of, :rate);

-- name: get_details
SELECT * FROM ocean_run_details WHERE run_id = :run_id;

-- name: get_details_of
SELECT run_id, output, error, dedupe_key, retry_of FROM ocean_run_details
WHERE run_id IN (SELECT value FROM json_each(:run_ids));

-- name: save_end
UPDATE ocean_run_details SET output = :output, error = :error WHERE run_id = :run_id;

-- name: save_error
UPDATE ocean_run_details SET error = :error WHERE run_id = :run_id;

-- name: get_dedupe
SELECT d.run_id, d.expires_at, d.debounced, w.body_hash FROM ocean_dedupe d JOIN ocean_run_details w ON w.run_id = d.run_id
WHERE d.clog_id = :clog_id AND d.session_id = :session_id AND d.dedupe_key = :dedupe_key;

-- name: insert_dedupe
INSERT INTO ocean_dedupe (clog_id, session_id, dedupe_key, run_id, expires_at, debounced)
VALUES (:clog_id, :session_id, :dedupe_key, :run_id, :expires_at, :debounced);

-- name: release_dedupe
-- Frees whatever key the run holds.
DELETE FROM ocean_dedupe WHERE run_id = :run_id;

-- name: clear_dedupe_key
-- The run no longer shows a key it does not hold.
UPDATE ocean_run_details SET dedupe_key = NULL WHERE run_id = :run_id;

-- name: descendants
-- A run and all below it, parents before children.
WITH RECURSIVE below(run_id, depth) AS (
  SELECT :run_id, 0
  UNION ALL
  SELECT r.run_id, below.depth + 1 FROM runs r JOIN below ON r.parent_run_id = below.run_id)
SELECT run_id FROM below ORDER BY depth, run_id;

-- name: children_to_cancel
-- Unended children that are to end with their parent.
SELECT r.run_id FROM runs r JOIN ocean_run_details d ON d.run_id = r.run_id
WHERE r.parent_run_id = :run_id AND r.status IN ('active', 'idle', 'pending', 'waiting') AND r.ending IS NULL
  AND d.on_parent_end = 'cancel'
ORDER BY r.status, r.created_at, r.run_id;

-- name: next_clog
-- The clogs that have runs, one after another.
SELECT clog_id FROM runs INDEXED BY runs_clog WHERE clog_id > :clog_id ORDER BY clog_id LIMIT 1;

-- name: next_clog_of_session
SELECT clog_id FROM runs INDEXED BY runs_session WHERE session_id = :session_id AND clog_id > :clog_id
ORDER BY clog_id LIMIT 1;

-- name: lanes
-- The lanes (clog, priority) that have anything at all in the due index, with the first due time of each.
WITH RECURSIVE lanes(clog_id, priority) AS (
  SELECT clog_id, priority FROM (
    SELECT clog_id, priority FROM runs WHERE due_at IS NOT NULL ORDER BY clog_id, priority LIMIT 1)
  UNION ALL
  SELECT
    coalesce(
      (SELECT clog_id FROM runs WHERE clog_id = lanes.clog_id AND priority > lanes.priority AND due_at IS NOT NULL
       ORDER BY clog_id, priority LIMIT 1),
      (SELECT clog_id FROM runs WHERE clog_id > lanes.clog_id AND due_at IS NOT NULL
       ORDER BY clog_id, priority LIMIT 1)),
    coalesce(
      (SELECT priority FROM runs WHERE clog_id = lanes.clog_id AND priority > lanes.priority AND due_at IS NOT NULL
       ORDER BY clog_id, priority LIMIT 1),
      (SELECT priority FROM runs WHERE clog_id > lanes.clog_id AND due_at IS NOT NULL
       ORDER BY clog_id, priority LIMIT 1))
  FROM lanes WHERE lanes.clog_id IS NOT NULL)
SELECT clog_id, priority,
  (SELECT min(due_at) FROM runs r
   WHERE r.clog_id = lanes.clog_id AND r.priority = lanes.priority AND r.due_at IS NOT NULL) AS first_due_at
FROM lanes WHERE clog_id IS NOT NULL;

-- name: lane_due
-- The due runs of one lane, longest due first, the less often claimed first among equals.
SELECT {run} FROM runs WHERE clog_id = :clog_id AND priority = :priority AND due_at <= :now AND due_at IS NOT NULL
ORDER BY due_at, lock_epoch, run_id LIMIT :limit;

-- name: lane_due_count
SELECT count(*) AS n FROM (
  SELECT 1 FROM runs WHERE clog_id = :clog_id AND priority = :priority AND due_at <= :now AND due_at IS NOT NULL
  LIMIT :limit);

-- name: queue_due
-- The due runs of one lane of a queue, longest due first.
SELECT {run} FROM runs WHERE clog_id = :clog_id AND queue = :queue AND queue IS NOT NULL AND priority = :priority
  AND due_at <= :now AND due_at IS NOT NULL
ORDER BY due_at, lock_epoch, run_id LIMIT :limit;

-- name: endings_due
-- Last ticks of a paused clog that are due.
SELECT {run} FROM runs WHERE clog_id = :clog_id AND ending IS NOT NULL AND due_at IS NOT NULL AND due_at <= :now
ORDER BY due_at LIMIT :limit;

-- name: first_ending
-- When the first last tick of a paused clog is due.
SELECT min(due_at) AS due_at FROM runs WHERE clog_id = :clog_id AND ending IS NOT NULL AND due_at IS NOT NULL;

-- name: overdue
-- Runs whose deadline has passed.
SELECT {run} FROM runs WHERE deadline_at IS NOT NULL AND ended_at IS NULL AND ending IS NULL AND deadline_at <= :now
ORDER BY deadline_at LIMIT :limit;

-- name: lost_on_last_call
-- Runs whose last call has lost its lock.
SELECT {run} FROM runs WHERE last_call = 1 AND lock_expires_at <= :now ORDER BY lock_expires_at LIMIT :limit;

-- name: lapsed_leases
-- Runs whose worker outside has stopped renewing.
SELECT {run} FROM runs WHERE leased = 1 AND paused = 0 AND lock_expires_at <= :now ORDER BY lock_expires_at LIMIT :limit;

-- name: next_owed
-- The next time that any advance has an end to make or a lease to take back.
SELECT min(at) AS at FROM (
  SELECT (SELECT min(deadline_at) FROM runs WHERE deadline_at IS NOT NULL AND ended_at IS NULL AND ending IS NULL) AS at
  UNION ALL
  SELECT (SELECT min(lock_expires_at) FROM runs WHERE last_call = 1)
  UNION ALL
  SELECT (SELECT min(lock_expires_at) FROM runs WHERE leased = 1 AND paused = 0));

-- name: insert_run_key
INSERT INTO ocean_run_keys (run_id, key, place, hold, is_held) VALUES (:run_id, :key, :place, :hold, 0);

-- name: forget_run_keys
DELETE FROM ocean_run_keys WHERE run_id = :run_id;

-- name: run_keys
-- A run's concurrency keys in the order they were named.
SELECT key, hold, is_held FROM ocean_run_keys WHERE run_id = :run_id ORDER BY place;

-- name: hold_key
UPDATE ocean_run_keys SET is_held = :is_held WHERE run_id = :run_id AND key = :key;

-- name: key_holder
-- One of the runs that hold a slot.
SELECT run_id FROM ocean_run_keys WHERE key = :key AND is_held = 1 ORDER BY run_id LIMIT 1;

-- name: get_key
SELECT slots, in_use FROM ocean_keys WHERE key = :key;

-- name: put_key
INSERT INTO ocean_keys (key, slots, in_use, wakes) VALUES (:key, :slots, :in_use, 0)
ON CONFLICT DO UPDATE SET slots = excluded.slots, in_use = excluded.in_use;

-- name: delete_key
DELETE FROM ocean_keys WHERE key = :key;

-- name: list_keys
SELECT key FROM ocean_keys WHERE key > :after ORDER BY key LIMIT :limit;

-- name: count_wake
-- Each eighth wake of a key goes to whoever is parked longest.
UPDATE ocean_keys SET wakes = wakes + 1 WHERE key = :key RETURNING wakes;

-- name: next_parked_lane
-- The first lane (clog, queue, priority) after this one that has runs parked on a key. A probe for each part: one for all
-- three would walk through all runs of this lane to its end.
SELECT * FROM (
  SELECT clog_id, line, priority FROM runs INDEXED BY runs_parked
  WHERE parked_on = :key AND parked_on IS NOT NULL AND clog_id = :clog_id AND line = :line AND priority > :priority
  ORDER BY clog_id, line, priority LIMIT 1)
UNION ALL
SELECT * FROM (
  SELECT clog_id, line, priority FROM runs INDEXED BY runs_parked
  WHERE parked_on = :key AND parked_on IS NOT NULL AND clog_id = :clog_id AND line > :line
  ORDER BY clog_id, line, priority LIMIT 1)
UNION ALL
SELECT * FROM (
  SELECT clog_id, line, priority FROM runs INDEXED BY runs_parked
  WHERE parked_on = :key AND parked_on IS NOT NULL AND clog_id > :clog_id
  ORDER BY clog_id, line, priority LIMIT 1)
LIMIT 1;

-- name: parked_lane
-- The runs of one lane that are parked on a key, longest parked first.
SELECT {run} FROM runs WHERE parked_on = :key AND parked_on IS NOT NULL AND clog_id = :clog_id AND line = :line
  AND priority = :priority
ORDER BY parked_at, run_id LIMIT :limit;

-- name: count_parked
SELECT count(*) AS n FROM (SELECT 1 FROM runs WHERE parked_on = :key AND parked_on IS NOT NULL LIMIT :limit);

-- name: insert_input
INSERT INTO ocean_inbox (run_id, number, kind, body, body_hash, signal_id, timer, actor, caused_by, available_at,
  created_at, event_seq, status_then, assigned_tick)
VALUES (:run_id, :number, :kind, :body, :body_hash, :signal_id, :timer, :actor, :caused_by, :available_at, :created_at,
  :event_seq, :status_then, :assigned_tick);

-- name: created_input
-- What a run was created with: it comes before anything else.
SELECT body FROM ocean_inbox WHERE run_id = :run_id AND number = 1 AND kind = 'created';

-- name: get_signal
-- The inbox entry that a signal id made.
SELECT number, body_hash, event_seq, status_then FROM ocean_inbox WHERE run_id = :run_id AND signal_id = :signal_id;

-- name: next_input_at
-- When the first input is available that no tick has.
SELECT available_at FROM ocean_inbox WHERE run_id = :run_id AND assigned_tick IS NULL
ORDER BY available_at, number LIMIT 1;

-- name: due_inputs
-- What the next tick gets.
SELECT * FROM ocean_inbox WHERE run_id = :run_id AND assigned_tick IS NULL AND available_at <= :now
ORDER BY available_at, number LIMIT :limit;

-- name: assign_input
UPDATE ocean_inbox SET assigned_tick = :tick WHERE run_id = :run_id AND number = :number;

-- name: tick_inputs
-- The inputs fixed for a tick.
SELECT * FROM ocean_inbox INDEXED BY ocean_inbox_open
WHERE run_id = :run_id AND assigned_tick = :tick AND consumed_tick IS NULL
ORDER BY available_at, number;

-- name: unconsumed
-- The numbers of the inputs fixed for a tick.
SELECT number FROM ocean_inbox INDEXED BY ocean_inbox_open
WHERE run_id = :run_id AND assigned_tick = :tick AND consumed_tick IS NULL ORDER BY number;

-- name: consume_input
UPDATE ocean_inbox SET consumed_tick = :tick WHERE run_id = :run_id AND number = :number;

-- name: cancel_timer
-- An unfired timer goes; one whose tick has begun stays.
DELETE FROM ocean_inbox WHERE run_id = :run_id AND timer = :timer AND assigned_tick IS NULL RETURNING number;

-- name: drop_timers
DELETE FROM ocean_inbox INDEXED BY ocean_inbox_open
WHERE run_id = :run_id AND timer IS NOT NULL AND consumed_tick IS NULL RETURNING number;

-- name: undelivered
SELECT number, kind, signal_id FROM ocean_inbox INDEXED BY ocean_inbox_open
WHERE run_id = :run_id AND consumed_tick IS NULL ORDER BY number;

-- name: list_inputs
SELECT * FROM ocean_inbox WHERE run_id = :run_id AND number > :after ORDER BY number LIMIT :limit;

-- name: insert_tick
INSERT INTO ocean_ticks (run_id, tick, reason, caused_by, calls, epoch, instance_id, version, first_claimed_at, claimed_at)
VALUES (:run_id, :tick, :reason, :caused_by, 1, :epoch, :instance_id, :version, :now, :now);

-- name: get_tick
SELECT * FROM ocean_ticks WHERE run_id = :run_id AND tick = :tick;

-- name: reclaim_tick
-- The same tick again, by a new holder.
UPDATE ocean_ticks SET calls = :call, conflicts = 0, epoch = :epoch, instance_id = :instance_id, version = :version, claimed_at = :now
WHERE run_id = :run_id AND tick = :tick;

-- name: restart_tick
-- The same tick again after a conflict, by the same holder.
UPDATE ocean_ticks SET calls = calls + 1, conflicts = conflicts + 1 WHERE run_id = :run_id AND tick = :tick RETURNING *;

-- name: call_tick_again
-- The same tick again by the same holder, without a conflict of rows.
UPDATE ocean_ticks SET calls = calls + 1 WHERE run_id = :run_id AND tick = :tick RETURNING *;

-- name: count_give_back
UPDATE ocean_ticks SET give_backs = give_backs + 1 WHERE run_id = :run_id AND tick = :tick
RETURNING give_backs, calls, caused_by;

-- name: commit_tick
UPDATE ocean_ticks SET outcome = :outcome, committed_at = :now WHERE run_id = :run_id AND tick = :tick;

-- name: delete_tick
DELETE FROM ocean_ticks WHERE run_id = :run_id AND tick = :tick;

-- name: list_ticks
SELECT * FROM ocean_ticks WHERE run_id = :run_id AND tick > :after ORDER BY tick LIMIT :limit;

-- name: insert_lease
INSERT INTO ocean_leases (lease_hash, run_id, epoch, tick, call, worker_id, version, lease_ms, row_version, claimed_at)
VALUES (:lease_hash, :run_id, :epoch, :tick, :call, :worker_id, :version, :lease_ms, :row_version, :now);

-- name: get_lease
SELECT * FROM ocean_leases WHERE lease_hash = :lease_hash;

-- name: complete_lease
-- The answer is kept for a worker that asks again.
UPDATE ocean_leases SET body_hash = :body_hash, answer = :answer WHERE lease_hash = :lease_hash;

-- name: get_step
SELECT result FROM ocean_steps WHERE run_id = :run_id AND tick = :tick AND name = :name;

-- name: insert_step
INSERT INTO ocean_steps (run_id, tick, name, result, created_at) VALUES (:run_id, :tick, :name, :result, :now);

-- name: get_global_row
SELECT version, value FROM ocean_storage_global WHERE clog_id = :clog_id;

-- name: get_session_row
SELECT version, value FROM ocean_storage_session WHERE clog_id = :clog_id AND session_id = :session_id;

-- name: get_run_row
SELECT version, value FROM ocean_storage_run WHERE run_id = :run_id AND clog_id = :clog_id;

-- name: get_tick_row
SELECT version, value FROM ocean_storage_tick
WHERE run_id = :run_id AND clog_id = :clog_id AND tick = :tick AND row_id = :row_id;

-- name: put_global_row
INSERT INTO ocean_storage_global (clog_id, value, version) VALUES (:clog_id, :value, :version)
ON CONFLICT DO UPDATE SET value = excluded.value, version = excluded.version;

-- name: put_session_row
INSERT INTO ocean_storage_session (clog_id, session_id, value, version) VALUES (:clog_id, :session_id, :value, :version)
ON CONFLICT DO UPDATE SET value = excluded.value, version = excluded.version;

-- name: put_run_row
INSERT INTO ocean_storage_run (run_id, clog_id, value, version) VALUES (:run_id, :clog_id, :value, :version)
ON CONFLICT DO UPDATE SET value = excluded.value, version = excluded.version;

-- name: put_tick_row
INSERT INTO ocean_storage_tick (run_id, clog_id, tick, row_id, value, version)
VALUES (:run_id, :clog_id, :tick, :row_id, :value, :version)
ON CONFLICT DO UPDATE SET value = excluded.value, version = excluded.version;

-- name: clear_global_row
DELETE FROM ocean_storage_global WHERE clog_id = :clog_id;

-- name: clear_session_row
DELETE FROM ocean_storage_session WHERE clog_id = :clog_id AND session_id = :session_id;

-- name: clear_run_row
DELETE FROM ocean_storage_run WHERE run_id = :run_id AND clog_id = :clog_id;

-- name: clear_tick_row
DELETE FROM ocean_storage_tick WHERE run_id = :run_id AND clog_id = :clog_id AND tick = :tick AND row_id = :row_id;

-- name: tick_rows
-- All rows a clog has in one tick.
SELECT row_id, version, value FROM ocean_storage_tick
WHERE run_id = :run_id AND clog_id = :clog_id AND tick = :tick ORDER BY row_id;

-- name: history_ticks
-- The newest ticks in which a clog has rows, by walking its own stretch of the index backwards.
SELECT DISTINCT tick FROM ocean_storage_tick WHERE run_id = :run_id AND clog_id = :clog_id
ORDER BY tick DESC LIMIT :limit;

-- name: turn_holder
-- The tick that has its turn on a row, if its lock still holds.
SELECT run_id, epoch FROM ocean_turns WHERE row_key = :row_key;

-- name: any_turn
SELECT 1 FROM ocean_turns LIMIT 1;

-- name: has_turn
SELECT 1 FROM ocean_turns WHERE run_id = :run_id AND epoch = :epoch LIMIT 1;

-- name: take_turn
INSERT INTO ocean_turns (row_key, run_id, epoch) VALUES (:row_key, :run_id, :epoch)
ON CONFLICT DO UPDATE SET run_id = excluded.run_id, epoch = excluded.epoch;

-- name: release_turns
DELETE FROM ocean_turns WHERE run_id = :run_id;

-- name: put_attribute
INSERT INTO ocean_attributes (run_id, name, clog_id, sort_key, value, created_at)
VALUES (:run_id, :name, :clog_id, :sort_key, :value, :created_at)
ON CONFLICT DO UPDATE SET sort_key = excluded.sort_key, value = excluded.value;

-- name: clear_attribute
DELETE FROM ocean_attributes WHERE run_id = :run_id AND name = :name;

-- name: clear_attributes
DELETE FROM ocean_attributes WHERE run_id = :run_id;

-- name: get_attributes_of
SELECT run_id, name, value FROM ocean_attributes
WHERE run_id IN (SELECT value FROM json_each(:run_ids)) ORDER BY run_id, name;

-- name: get_attributes
SELECT name, value FROM ocean_attributes WHERE run_id = :run_id ORDER BY name;

-- name: last_seq
-- The highest cursor ever given out.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) AS seq;

-- name: log_floor
SELECT seq FROM ocean_log_floor WHERE id = 1;

-- name: raise_log_floor
UPDATE ocean_log_floor SET seq = max(seq, :seq) WHERE id = 1;

-- name: earlier_life
-- How far the log and the ticks of a run id had come, if it was used before.
SELECT max(run_seq) AS run_seq, coalesce(max(tick), 0) AS tick FROM events WHERE run_id = :run_id
GROUP BY run_id;

-- name: insert_event
-- Many rows at once. If one fails, its whole transaction is rolled back: nothing is kept aside to take back these alone.
INSERT OR FAIL INTO events (seq, ts, session_id, run_id, run_seq, tick, call, clog_id, type, payload, actor, correlation_id, causation_id)
VALUES (:seq, :ts, :session_id, :run_id, :run_seq, :tick, :call, :clog_id, :type, :payload, :actor, :correlation_id, :causation_id);

-- name: oldest_events
SELECT seq, ts FROM events ORDER BY seq LIMIT :limit;

-- name: delete_events
DELETE FROM events WHERE seq <= :seq;

-- name: sweepable_runs
-- Runs that ended before the cut-off and have no children left: leaves go first, a live child keeps its parents.
SELECT run_id FROM runs r WHERE ended_at < :before AND ended_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM runs c WHERE c.parent_run_id = r.run_id)
ORDER BY ended_at LIMIT :limit;

-- name: sweep_requests
DELETE FROM ocean_requests WHERE request_key IN (
  SELECT request_key FROM ocean_requests WHERE created_at < :before ORDER BY created_at LIMIT :limit)
RETURNING request_key;

-- name: get_request
SELECT hash, answer FROM ocean_requests WHERE request_key = :request_key;

-- name: insert_request
INSERT INTO ocean_requests (request_key, hash, answer, created_at) VALUES (:request_key, :hash, :answer, :now);

-- name: register_clog
INSERT INTO ocean_clogs (clog_id, version, has_on_end, external, takes_all_inputs, allows, registered_at)
VALUES (:clog_id, :version, :has_on_end, :external, :takes_all_inputs, :allows, :now)
ON CONFLICT DO UPDATE SET version = excluded.version, has_on_end = excluded.has_on_end, external = excluded.external,
  takes_all_inputs = excluded.takes_all_inputs, allows = excluded.allows, registered_at = excluded.registered_at;

-- name: register_methods
-- An instance that only has a clog's methods does not speak for its handlers.
INSERT INTO ocean_clogs (clog_id, version, has_on_end, allows, registered_at)
VALUES (:clog_id, :version, :has_on_end, :allows, :now)
ON CONFLICT DO NOTHING;

-- name: queue_older_runs
-- A clog has become external: what it already had to do is for the workers of its default queue.
UPDATE runs SET queue = :queue WHERE clog_id = :clog_id AND queue IS NULL AND ended_at IS NULL;

-- name: get_clog
SELECT * FROM ocean_clogs WHERE clog_id = :clog_id;

-- name: list_clogs
SELECT * FROM ocean_clogs ORDER BY clog_id;

-- name: set_clog_paused
UPDATE ocean_clogs SET paused = :paused WHERE clog_id = :clog_id;

-- name: get_counter
SELECT kind, used, at, per_ms, rate FROM ocean_counters WHERE key = :key;

-- name: put_counter
INSERT INTO ocean_counters (key, kind, used, at, per_ms, rate, expires_at)
VALUES (:key, :kind, :used, :at, :per_ms, :rate, :expires_at)
ON CONFLICT DO UPDATE SET kind = excluded.kind, used = excluded.used, at = excluded.at, per_ms = excluded.per_ms,
  rate = excluded.rate, expires_at = excluded.expires_at;

-- name: reset_counter
DELETE FROM ocean_counters WHERE key = :key;

-- name: sweep_counters
-- Counters that are worth as much as none.
DELETE FROM ocean_counters WHERE key IN (
  SELECT key FROM ocean_counters WHERE expires_at <= :now AND expires_at IS NOT NULL ORDER BY expires_at LIMIT :limit)
RETURNING key;

-- name: add_api_key
INSERT INTO ocean_api_keys (key_id, hash, actor, scopes, roles, sessions, created_at, expires_at)
VALUES (:key_id, :hash, :actor, :scopes, :roles, :sessions, :now, :expires_at);

-- name: get_api_key
SELECT * FROM ocean_api_keys WHERE key_id = :key_id;

-- name: list_api_keys
SELECT * FROM ocean_api_keys WHERE key_id > :after ORDER BY key_id LIMIT :limit;

-- name: any_api_key
SELECT EXISTS (SELECT 1 FROM ocean_api_keys) AS is_there;

-- name: revoke_api_key
UPDATE ocean_api_keys SET revoked_at = :now WHERE key_id = :key_id AND revoked_at IS NULL;

-- name: add_web_session
INSERT INTO ocean_web_sessions (hash, key_id, expires_at) VALUES (:hash, :key_id, :expires_at);

-- name: get_web_session
SELECT * FROM ocean_web_sessions WHERE hash = :hash AND expires_at > :now;

-- name: end_web_session
DELETE FROM ocean_web_sessions WHERE hash = :hash;

-- name: end_web_sessions_of_key
DELETE FROM ocean_web_sessions WHERE key_id = :key_id;

-- name: forget_old_web_sessions
DELETE FROM ocean_web_sessions WHERE expires_at <= :now;

-- name: standing_of_run
SELECT runs.run_id, session_id, runs.clog_id, allows FROM runs JOIN ocean_clogs USING (clog_id) WHERE run_id = :run_id;

-- name: standing_of_lease
SELECT runs.run_id, session_id, runs.clog_id, allows FROM ocean_leases JOIN runs USING (run_id)
JOIN ocean_clogs USING (clog_id) WHERE lease_hash = :lease_hash;
