-- What retention removes beside events.

-- name: sweepable_runs
-- Runs that ended before the cut-off and have no children: leaves are removed first, and a live child keeps its
-- parents.
SELECT run_id FROM runs r WHERE ended_at < :before AND ended_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM runs c WHERE c.parent_run_id = r.run_id)
ORDER BY ended_at LIMIT :limit;

-- name: sweep_requests
DELETE FROM ocean_requests WHERE request_key IN (
  SELECT request_key FROM ocean_requests WHERE created_at < :before ORDER BY created_at LIMIT :limit)
RETURNING request_key;

-- name: sweep_counters
-- Counters that have expired, which is the same as having no row.
DELETE FROM ocean_counters WHERE key IN (
  SELECT key FROM ocean_counters WHERE expires_at <= :now AND expires_at IS NOT NULL ORDER BY expires_at LIMIT :limit)
RETURNING key;
