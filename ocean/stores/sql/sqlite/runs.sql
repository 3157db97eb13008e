-- Runs and the wide half of their rows.

-- name: get_run
-- The narrow row of a run.
SELECT {run} FROM runs WHERE run_id = :run_id;

-- name: get_runs
-- The narrow rows of several runs, in no order.
SELECT {run} FROM runs WHERE run_id IN (SELECT value FROM json_each(:run_ids));

-- name: insert_run
INSERT INTO runs (run_id, session_id, clog_id, parent_run_id, correlation_id, priority, status, attempt, max_attempts,
  due_at, last_call, ready_at, wake_at, wait_until, deadline_at, locked_by, lock_expires_at, lock_epoch, life, tick, tick_open, paused, ending,
  event_count, inbox_count, pending_count, created_at, updated_at, ended_at,
  key_count, parked_on, parked_at, queue, leased, delayed_by, delay_key, end_attempt, end_max_attempts, end_incomplete,
  stop_by, crash_company, crash_epoch)
VALUES (:run_id, :session_id, :clog_id, :parent_run_id, :correlation_id, :priority, :status, :attempt, :max_attempts,
  :due_at, :last_call, :ready_at, :wake_at, :wait_until, :deadline_at, :locked_by, :lock_expires_at, :lock_epoch, :life, :tick, :tick_open,
  :paused, :ending, :event_count, :inbox_count, :pending_count, :created_at, :updated_at, :ended_at,
  :key_count, :parked_on, :parked_at, :queue, :leased, :delayed_by, :delay_key, :end_attempt, :end_max_attempts, :end_incomplete,
  :stop_by, :crash_company, :crash_epoch);

-- name: save_run
-- Writes all columns that can change, except those of `redefine_run`.
UPDATE runs SET status = :status, attempt = :attempt, due_at = :due_at, last_call = :last_call, ready_at = :ready_at,
  wake_at = :wake_at, wait_until = :wait_until, locked_by = :locked_by, lock_expires_at = :lock_expires_at, lock_epoch = :lock_epoch, tick = :tick,
  tick_open = :tick_open, paused = :paused, ending = :ending, event_count = :event_count, inbox_count = :inbox_count,
  pending_count = :pending_count, updated_at = :updated_at, ended_at = :ended_at, parked_on = :parked_on,
  parked_at = :parked_at, leased = :leased, delayed_by = :delayed_by, delay_key = :delay_key,
  end_attempt = :end_attempt, end_max_attempts = :end_max_attempts, end_incomplete = :end_incomplete,
  stop_by = :stop_by, crash_company = :crash_company, crash_epoch = :crash_epoch
WHERE run_id = :run_id;

-- name: notify_no_parent
-- The parent of a run was notified of its end; it is not again.
UPDATE ocean_run_details SET notify_parent = 0 WHERE run_id = :run_id;

-- name: delete_run
DELETE FROM runs WHERE run_id = :run_id;

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

-- name: descendants
-- A run and all its descendants, parents before children.
WITH RECURSIVE below(run_id, depth) AS (
  SELECT :run_id, 0
  UNION ALL
  SELECT r.run_id, below.depth + 1 FROM runs r JOIN below ON r.parent_run_id = below.run_id)
SELECT run_id FROM below ORDER BY depth, run_id;

-- name: children_to_cancel
-- Children that have not ended and must end with their parent.
SELECT r.run_id FROM runs r JOIN ocean_run_details d ON d.run_id = r.run_id
WHERE r.parent_run_id = :run_id AND r.status IN ('active', 'idle', 'pending', 'waiting') AND r.ending IS NULL
  AND d.on_parent_end = 'cancel'
ORDER BY r.status, r.created_at, r.run_id;

-- name: next_clog
-- The next clog that has runs.
SELECT clog_id FROM runs INDEXED BY runs_clog WHERE clog_id > :clog_id ORDER BY clog_id LIMIT 1;

-- name: next_clog_of_session
SELECT clog_id FROM runs INDEXED BY runs_session WHERE session_id = :session_id AND clog_id > :clog_id
ORDER BY clog_id LIMIT 1;

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
