-- Registered clogs.

-- name: register_clog
INSERT INTO ocean_clogs (clog_id, version, has_on_end, external, takes_all_inputs, allows, end_retry, grace_ms, registered_at)
VALUES (:clog_id, :version, :has_on_end, :external, :takes_all_inputs, :allows, :end_retry, :grace_ms, :now)
ON CONFLICT DO UPDATE SET version = excluded.version, has_on_end = excluded.has_on_end, external = excluded.external,
  takes_all_inputs = excluded.takes_all_inputs, allows = excluded.allows, end_retry = excluded.end_retry,
  grace_ms = excluded.grace_ms, registered_at = excluded.registered_at;

-- name: register_methods
-- An instance that has only the methods of a clog does not change what is registered about its handlers.
INSERT INTO ocean_clogs (clog_id, version, has_on_end, allows, end_retry, grace_ms, registered_at)
VALUES (:clog_id, :version, :has_on_end, :allows, :end_retry, :grace_ms, :now)
ON CONFLICT DO NOTHING;

-- name: queue_older_runs
-- A clog has become external: its existing runs go to the workers of its default queue.
UPDATE runs SET queue = :queue WHERE clog_id = :clog_id AND queue IS NULL AND ended_at IS NULL;

-- name: get_clog
SELECT * FROM ocean_clogs WHERE clog_id = :clog_id;

-- name: list_clogs
SELECT * FROM ocean_clogs ORDER BY clog_id;

-- name: set_clog_paused
UPDATE ocean_clogs SET paused = :paused WHERE clog_id = :clog_id;
