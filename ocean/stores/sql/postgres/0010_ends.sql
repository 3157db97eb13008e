-- The last tick of a run that the kernel ends has its own attempts. `end_incomplete`: they were spent without success.
ALTER TABLE runs ADD COLUMN end_attempt BIGINT NOT NULL DEFAULT 0 CHECK (end_attempt >= 0);
ALTER TABLE runs ADD COLUMN end_max_attempts BIGINT CHECK (end_max_attempts >= 1);
ALTER TABLE runs ADD COLUMN end_incomplete BOOLEAN NOT NULL DEFAULT false CHECK (NOT end_incomplete OR status = 'failed');
CREATE INDEX runs_end_incomplete ON runs (created_at, run_id) WHERE end_incomplete;

-- Until when the call in progress may store a step, although its run is ending. Null for any other run.
ALTER TABLE runs ADD COLUMN stop_by BIGINT CHECK (stop_by IS NULL OR (ending IS NOT NULL AND status = 'active'));

-- With how many runs, itself included, the run was at work when its process crashed, and under which epoch that was;
-- 0 if it had not been called yet. Null for a run that is not suspected.
ALTER TABLE runs ADD COLUMN crash_company BIGINT CHECK (crash_company >= 0);
ALTER TABLE runs ADD COLUMN crash_epoch BIGINT CHECK ((crash_epoch IS NULL) = (crash_company IS NULL));

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

-- The step in which an event was streamed.
ALTER TABLE events ADD COLUMN step TEXT COLLATE "C";
DROP FUNCTION IF EXISTS ocean_event(runs, ocean_origin, text, text, text);
DROP FUNCTION IF EXISTS ocean_event_row(runs, bigint, ocean_origin, text, text, text);
