-- Storage rows and turns.

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
-- All rows of a clog in one tick.
SELECT row_id, version, value FROM ocean_storage_tick
WHERE run_id = :run_id AND clog_id = :clog_id AND tick = :tick ORDER BY row_id;

-- name: history_ticks
-- The newest ticks in which a clog has rows, by a backward scan of its range of the index.
SELECT DISTINCT tick FROM ocean_storage_tick WHERE run_id = :run_id AND clog_id = :clog_id
ORDER BY tick DESC LIMIT :limit;

-- name: turn_holder
-- The run that has the turn on a row. The caller checks that its lock is still valid.
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
