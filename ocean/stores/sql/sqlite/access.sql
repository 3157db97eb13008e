-- API keys, web sessions, and which session and clog a run belongs to.

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
