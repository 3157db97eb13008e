-- The last tick of a run that the kernel ends has its own attempts. `end_incomplete`: they were spent without success.
ALTER TABLE runs ADD COLUMN end_attempt BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN end_max_attempts BIGINT;
ALTER TABLE runs ADD COLUMN end_incomplete BOOLEAN NOT NULL DEFAULT false;
UPDATE runs SET end_max_attempts = 10, last_call = false WHERE ending IS NOT NULL;
CREATE INDEX runs_end_incomplete ON runs (created_at, run_id) WHERE end_incomplete;

-- Until when the call in progress may store a step, although its run is ending. Null for any other run.
ALTER TABLE runs ADD COLUMN stop_by BIGINT;

-- With how many runs, itself included, the run was at work when its process crashed, and under which epoch that was;
-- 0 if it had not been called yet. Null for a run that is not suspected.
ALTER TABLE runs ADD COLUMN crash_company BIGINT;
ALTER TABLE runs ADD COLUMN crash_epoch BIGINT;

-- The one check of a run, with the new columns.
ALTER TABLE runs DROP CONSTRAINT runs_make_sense;
DROP FUNCTION ocean_makes_sense(text, text, smallint, bigint, bigint, bigint, bigint, bigint, bigint, text, bigint, boolean, bigint, bigint,
  smallint, text, bigint, boolean, text, text);
CREATE FUNCTION ocean_makes_sense(status text, ending text, priority smallint, attempt bigint, max_attempts bigint,
  due_at bigint, ready_at bigint, wake_at bigint, wait_until bigint, locked_by text, lock_expires_at bigint,
  tick_open boolean, pending_count bigint, ended_at bigint, key_count smallint, parked_on text, parked_at bigint,
  leased boolean, delayed_by text, delay_key text, end_attempt bigint, end_max_attempts bigint, end_incomplete boolean,
  stop_by bigint, crash_company bigint, crash_epoch bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN priority BETWEEN 0 AND 9 AND attempt >= 0 AND coalesce(max_attempts >= 1, true) AND pending_count >= 0
    AND key_count BETWEEN 0 AND 3
    AND (ending IS NULL OR ending IN ('cancel', 'deadline', 'exhausted'))
    AND CASE status
      WHEN 'idle' THEN wake_at IS NULL
      WHEN 'pending' THEN (ready_at IS NULL) <> (wake_at IS NULL)
      WHEN 'active' THEN true
      WHEN 'waiting' THEN wake_at IS NOT NULL
      WHEN 'done' THEN true
      WHEN 'failed' THEN true
      ELSE false END
    AND (status = 'active') = (locked_by IS NOT NULL) AND (status = 'active') = (lock_expires_at IS NOT NULL)
    AND (status = 'active' OR NOT leased) AND (status = 'waiting' OR wait_until IS NULL)
    AND (status IN ('done', 'failed')) = (ended_at IS NOT NULL)
    AND (ended_at IS NULL OR (due_at IS NULL AND wake_at IS NULL AND ending IS NULL AND NOT tick_open))
    AND (parked_on IS NULL OR (key_count > 0 AND parked_at IS NOT NULL AND status IN ('pending', 'waiting')))
    AND (delayed_by IS NULL OR (delayed_by IN ('rate', 'debounce') AND status = 'pending' AND wake_at IS NOT NULL))
    AND (delayed_by IS NULL) = (delay_key IS NULL)
    AND end_attempt >= 0 AND coalesce(end_max_attempts >= 1, true) AND (NOT end_incomplete OR status = 'failed')
    AND (stop_by IS NULL OR (ending IS NOT NULL AND status = 'active'))
    AND coalesce(crash_company >= 0, true) AND (crash_epoch IS NULL) = (crash_company IS NULL);
END $$;

ALTER TABLE runs ADD CONSTRAINT runs_make_sense CHECK (ocean_makes_sense(status, ending, priority, attempt, max_attempts,
  due_at, ready_at, wake_at, wait_until, locked_by, lock_expires_at, tick_open, pending_count, ended_at, key_count,
  parked_on, parked_at, leased, delayed_by, delay_key, end_attempt, end_max_attempts, end_incomplete, stop_by,
  crash_company, crash_epoch));

-- The retry policy of a clog's last ticks as JSON (null: the default), and how long a step in flight may go on.
ALTER TABLE ocean_clogs ADD COLUMN end_retry TEXT COLLATE "C";
ALTER TABLE ocean_clogs ADD COLUMN grace_ms BIGINT NOT NULL DEFAULT 10000 CHECK (grace_ms >= 0);

-- Where an instance runs, so that another one on the same host can see that its process is gone.
CREATE TABLE ocean_instances (
  instance_id TEXT COLLATE "C" PRIMARY KEY,
  boot_id TEXT COLLATE "C",
  pid_namespace TEXT COLLATE "C",
  pid BIGINT,
  process_start BIGINT,
  longest_lock_ms BIGINT NOT NULL,
  started_at BIGINT NOT NULL,
  seen_at BIGINT NOT NULL
);
CREATE INDEX ocean_instances_seen ON ocean_instances (seen_at);
CREATE INDEX ocean_instances_place ON ocean_instances (boot_id, pid_namespace, seen_at) WHERE boot_id IS NOT NULL;

-- The step in which an event was streamed.
ALTER TABLE events ADD COLUMN step TEXT COLLATE "C";

-- Functions that have other parameters now.
DROP FUNCTION IF EXISTS ocean_ending(runs, text, bigint);
DROP FUNCTION IF EXISTS ocean_end_one(runs, text, text, text, ocean_origin);
DROP FUNCTION IF EXISTS ocean_event(runs, ocean_origin, text, text, text);
DROP FUNCTION IF EXISTS ocean_event_row(runs, bigint, ocean_origin, text, text, text);
