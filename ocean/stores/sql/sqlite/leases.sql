-- Leases of workers outside.

-- name: insert_lease
INSERT INTO ocean_leases (lease_hash, run_id, epoch, tick, call, worker_id, version, lease_ms, row_version, claimed_at)
VALUES (:lease_hash, :run_id, :epoch, :tick, :call, :worker_id, :version, :lease_ms, :row_version, :now);

-- name: get_lease
SELECT * FROM ocean_leases WHERE lease_hash = :lease_hash;

-- name: complete_lease
-- The result is kept for a worker that repeats its request.
UPDATE ocean_leases SET body_hash = :body_hash, answer = :answer WHERE lease_hash = :lease_hash;
