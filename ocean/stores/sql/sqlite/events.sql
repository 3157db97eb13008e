-- The event log.

-- name: last_seq
-- The highest cursor that was ever assigned.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) AS seq;

-- name: log_floor
SELECT seq FROM ocean_log_floor WHERE id = 1;

-- name: raise_log_floor
UPDATE ocean_log_floor SET seq = max(seq, :seq) WHERE id = 1;

-- name: insert_event
-- Inserts many rows at once. OR FAIL: if one fails, the whole transaction is rolled back, so SQLite need not keep a
-- journal for this statement alone.
INSERT OR FAIL INTO events (seq, ts, session_id, run_id, run_seq, tick, call, clog_id, type, payload, actor, correlation_id, causation_id, step)
VALUES (:seq, :ts, :session_id, :run_id, :run_seq, :tick, :call, :clog_id, :type, :payload, :actor, :correlation_id, :causation_id, :step);

-- name: oldest_events
SELECT seq, ts FROM events ORDER BY seq LIMIT :limit;

-- name: delete_events
DELETE FROM events WHERE seq <= :seq;
