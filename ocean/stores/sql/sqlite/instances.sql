-- Registered instances, and the runs that they hold.

-- name: register_instance
-- An id that two processes use describes neither of them.
INSERT INTO ocean_instances (instance_id, boot_id, pid_namespace, pid, process_start, longest_lock_ms, started_at, seen_at)
VALUES (:instance_id, :boot_id, :pid_namespace, :pid, :process_start, :longest_lock_ms, :now, :now)
ON CONFLICT DO UPDATE SET started_at = excluded.started_at, seen_at = excluded.seen_at,
  longest_lock_ms = max(longest_lock_ms, excluded.longest_lock_ms),
  boot_id = CASE WHEN boot_id IS excluded.boot_id AND pid_namespace IS excluded.pid_namespace AND pid IS excluded.pid
    AND process_start IS excluded.process_start THEN boot_id END;

-- name: instance_seen
UPDATE ocean_instances SET seen_at = max(seen_at, :now) WHERE instance_id = :instance_id;

-- name: delete_instance
DELETE FROM ocean_instances WHERE instance_id = :instance_id AND boot_id IS :boot_id
  AND pid_namespace IS :pid_namespace AND pid IS :pid AND process_start IS :process_start;

-- name: delete_unseen_instance
DELETE FROM ocean_instances WHERE instance_id = :instance_id;

-- name: get_instance
SELECT * FROM ocean_instances WHERE instance_id = :instance_id;

-- name: list_instances
SELECT * FROM ocean_instances ORDER BY seen_at DESC LIMIT :limit;

-- name: list_instances_at
SELECT * FROM ocean_instances WHERE boot_id = :boot_id AND pid_namespace = :pid_namespace
ORDER BY seen_at DESC LIMIT :limit;

-- name: unseen_instances
SELECT instance_id FROM ocean_instances WHERE seen_at < :before ORDER BY seen_at LIMIT :limit;

-- name: active_of_clog
-- The runs of a clog that an instance has locked; a worker's leases are not its own.
SELECT run_id FROM runs WHERE clog_id = :clog_id AND status = 'active' AND locked_by = :instance_id AND leased = 0
ORDER BY created_at, run_id;
