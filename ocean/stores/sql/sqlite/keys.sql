-- Concurrency keys and the runs that are parked on them.

-- name: insert_run_key
INSERT INTO ocean_run_keys (run_id, key, place, hold, is_held) VALUES (:run_id, :key, :place, :hold, 0);

-- name: forget_run_keys
DELETE FROM ocean_run_keys WHERE run_id = :run_id;

-- name: run_keys
-- The concurrency keys of a run, in the order of its creation.
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
-- Every eighth wake of a key goes to the run that has been parked longest.
UPDATE ocean_keys SET wakes = wakes + 1 WHERE key = :key RETURNING wakes;

-- name: next_parked_lane
-- The first lane (clog, queue, priority) after this one that has runs parked on a key. One probe per column: a single
-- comparison of all three would read every run of this lane.
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
