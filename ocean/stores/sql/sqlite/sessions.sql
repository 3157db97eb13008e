-- Sessions.

-- name: insert_session
-- Sessions are created on first use.
INSERT INTO ocean_sessions (session_id, created_at) VALUES (:session_id, :now) ON CONFLICT DO NOTHING;

-- name: delete_session
DELETE FROM ocean_sessions WHERE session_id = :session_id RETURNING session_id;

-- name: session_runs
SELECT run_id FROM runs WHERE session_id = :session_id ORDER BY clog_id, status, created_at, run_id;

-- name: session_foreign_run
-- A run in the session that another clog owns.
SELECT run_id, clog_id FROM runs WHERE session_id = :session_id AND clog_id <> :clog_id LIMIT 1;
