-- Counters.

-- name: get_counter
SELECT kind, used, at, per_ms, rate FROM ocean_counters WHERE key = :key;

-- name: put_counter
INSERT INTO ocean_counters (key, kind, used, at, per_ms, rate, expires_at)
VALUES (:key, :kind, :used, :at, :per_ms, :rate, :expires_at)
ON CONFLICT DO UPDATE SET kind = excluded.kind, used = excluded.used, at = excluded.at, per_ms = excluded.per_ms,
  rate = excluded.rate, expires_at = excluded.expires_at;

-- name: reset_counter
DELETE FROM ocean_counters WHERE key = :key;
