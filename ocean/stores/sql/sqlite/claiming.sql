-- What is due, and what is overdue.

-- name: lanes
-- The lanes (clog, priority) that have entries in the due index, with the first due time of each.
WITH RECURSIVE lanes(clog_id, priority) AS (
  SELECT clog_id, priority FROM (
    SELECT clog_id, priority FROM runs WHERE due_at IS NOT NULL ORDER BY clog_id, priority LIMIT 1)
  UNION ALL
  SELECT
    coalesce(
      (SELECT clog_id FROM runs WHERE clog_id = lanes.clog_id AND priority > lanes.priority AND due_at IS NOT NULL
       ORDER BY clog_id, priority LIMIT 1),
      (SELECT clog_id FROM runs WHERE clog_id > lanes.clog_id AND due_at IS NOT NULL
       ORDER BY clog_id, priority LIMIT 1)),
    coalesce(
      (SELECT priority FROM runs WHERE clog_id = lanes.clog_id AND priority > lanes.priority AND due_at IS NOT NULL
       ORDER BY clog_id, priority LIMIT 1),
      (SELECT priority FROM runs WHERE clog_id > lanes.clog_id AND due_at IS NOT NULL
       ORDER BY clog_id, priority LIMIT 1))
  FROM lanes WHERE lanes.clog_id IS NOT NULL)
SELECT clog_id, priority,
  (SELECT min(due_at) FROM runs r
   WHERE r.clog_id = lanes.clog_id AND r.priority = lanes.priority AND r.due_at IS NOT NULL) AS first_due_at
FROM lanes WHERE clog_id IS NOT NULL;

-- name: lane_due
-- The due runs of one lane, longest due first; among equals, the least often claimed first.
SELECT {run} FROM runs WHERE clog_id = :clog_id AND priority = :priority AND due_at <= :now AND due_at IS NOT NULL
ORDER BY due_at, lock_epoch, run_id LIMIT :limit;

-- name: lane_due_count
SELECT count(*) AS n FROM (
  SELECT 1 FROM runs WHERE clog_id = :clog_id AND priority = :priority AND due_at <= :now AND due_at IS NOT NULL
  LIMIT :limit);

-- name: queue_due
-- The due runs of one lane of a queue, longest due first.
SELECT {run} FROM runs WHERE clog_id = :clog_id AND queue = :queue AND queue IS NOT NULL AND priority = :priority
  AND due_at <= :now AND due_at IS NOT NULL
ORDER BY due_at, lock_epoch, run_id LIMIT :limit;

-- name: endings_due
-- Runs of a paused clog whose last tick is due.
SELECT {run} FROM runs WHERE clog_id = :clog_id AND ending IS NOT NULL AND due_at IS NOT NULL AND due_at <= :now
ORDER BY due_at LIMIT :limit;

-- name: first_ending
-- When the first last tick of a paused clog is due.
SELECT min(due_at) AS due_at FROM runs WHERE clog_id = :clog_id AND ending IS NOT NULL AND due_at IS NOT NULL;

-- name: overdue
-- Runs whose deadline has passed.
SELECT {run} FROM runs WHERE deadline_at IS NOT NULL AND ended_at IS NULL AND ending IS NULL AND deadline_at <= :now
ORDER BY deadline_at LIMIT :limit;

-- name: lost_on_last_call
-- Runs whose lock expired during their last call.
SELECT {run} FROM runs WHERE last_call = 1 AND lock_expires_at <= :now ORDER BY lock_expires_at LIMIT :limit;

-- name: active_runs_of
-- The runs of one clog that a process had locked when one of its locks expired. What it has claimed since then was not
-- at work.
SELECT {run} FROM runs WHERE clog_id = :clog_id AND status = 'active' AND locked_by = :locked_by AND leased = 0
  AND (SELECT t.claimed_at FROM ocean_ticks t WHERE t.run_id = runs.run_id AND t.tick = runs.tick) < :lapsed_at;

-- name: lapsed_leases
-- Runs whose external worker has stopped renewing its lease.
SELECT {run} FROM runs WHERE leased = 1 AND paused = 0 AND lock_expires_at <= :now ORDER BY lock_expires_at LIMIT :limit;

-- name: next_owed
-- When any `advance` next has a run to end or a lease to take back.
SELECT min(at) AS at FROM (
  SELECT (SELECT min(deadline_at) FROM runs WHERE deadline_at IS NOT NULL AND ended_at IS NULL AND ending IS NULL) AS at
  UNION ALL
  SELECT (SELECT min(lock_expires_at) FROM runs WHERE last_call = 1)
  UNION ALL
  SELECT (SELECT min(lock_expires_at) FROM runs WHERE leased = 1 AND paused = 0));
