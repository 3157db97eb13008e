-- Ticks and their steps.

-- name: insert_tick
INSERT INTO ocean_ticks (run_id, tick, reason, caused_by, calls, epoch, instance_id, version, first_claimed_at, claimed_at)
VALUES (:run_id, :tick, :reason, :caused_by, 1, :epoch, :instance_id, :version, :now, :now);

-- name: get_tick
SELECT * FROM ocean_ticks WHERE run_id = :run_id AND tick = :tick;

-- name: reclaim_tick
-- The same tick is called again, by a new lock holder.
UPDATE ocean_ticks SET calls = :call, conflicts = 0, epoch = :epoch, instance_id = :instance_id, version = :version, claimed_at = :now
WHERE run_id = :run_id AND tick = :tick;

-- name: restart_tick
-- The same tick is called again after a conflict, by the same lock holder.
UPDATE ocean_ticks SET calls = calls + 1, conflicts = conflicts + 1 WHERE run_id = :run_id AND tick = :tick RETURNING *;

-- name: call_tick_again
-- The same tick is called again by the same lock holder, without a conflict of rows.
UPDATE ocean_ticks SET calls = calls + 1 WHERE run_id = :run_id AND tick = :tick RETURNING *;

-- name: count_give_back
UPDATE ocean_ticks SET give_backs = give_backs + :counted WHERE run_id = :run_id AND tick = :tick
RETURNING give_backs, calls, caused_by;

-- name: commit_tick
UPDATE ocean_ticks SET outcome = :outcome, committed_at = :now WHERE run_id = :run_id AND tick = :tick;

-- name: delete_tick
DELETE FROM ocean_ticks WHERE run_id = :run_id AND tick = :tick;

-- name: list_ticks
SELECT * FROM ocean_ticks WHERE run_id = :run_id AND tick > :after ORDER BY tick LIMIT :limit;

-- name: get_step
SELECT result FROM ocean_steps WHERE run_id = :run_id AND tick = :tick AND name = :name;

-- name: insert_step
INSERT INTO ocean_steps (run_id, tick, name, result, created_at) VALUES (:run_id, :tick, :name, :result, :now);
