-- Creations: dedupe keys, debounced runs, and ids that were used before.

-- name: get_dedupe
SELECT d.run_id, d.expires_at, d.debounced, w.body_hash FROM ocean_dedupe d JOIN ocean_run_details w ON w.run_id = d.run_id
WHERE d.clog_id = :clog_id AND d.session_id = :session_id AND d.dedupe_key = :dedupe_key;

-- name: insert_dedupe
INSERT INTO ocean_dedupe (clog_id, session_id, dedupe_key, run_id, expires_at, debounced)
VALUES (:clog_id, :session_id, :dedupe_key, :run_id, :expires_at, :debounced);

-- name: release_dedupe
-- Frees the dedupe key that the run holds, if any.
DELETE FROM ocean_dedupe WHERE run_id = :run_id;

-- name: clear_dedupe_key
-- A run does not show a key that it no longer holds.
UPDATE ocean_run_details SET dedupe_key = NULL WHERE run_id = :run_id;

-- name: redefine_run
-- Writes the columns that only another creation of a debounced run changes.
UPDATE runs SET priority = :priority, max_attempts = :max_attempts, deadline_at = :deadline_at, queue = :queue,
  key_count = :key_count
WHERE run_id = :run_id;

-- name: redefine_details
UPDATE ocean_run_details SET body_hash = :body_hash, retry = :retry WHERE run_id = :run_id;

-- name: replace_created_input
UPDATE ocean_inbox SET body = :body, actor = :actor, caused_by = :caused_by, event_seq = :event_seq
WHERE run_id = :run_id AND number = 1 AND kind = 'created' AND assigned_tick IS NULL;

-- name: created_input
-- The input that a run was created with. It is always the first one.
SELECT body FROM ocean_inbox WHERE run_id = :run_id AND number = 1 AND kind = 'created';

-- name: earlier_life
-- The last event and tick number of a run id that was used before.
SELECT max(run_seq) AS run_seq, coalesce(max(tick), 0) AS tick FROM events WHERE run_id = :run_id
GROUP BY run_id;
