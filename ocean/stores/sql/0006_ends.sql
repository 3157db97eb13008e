-- The last tick of a run that the kernel ends has its own attempts. `end_incomplete`: they were spent without success.
ALTER TABLE runs ADD COLUMN end_attempt INTEGER NOT NULL DEFAULT 0 CHECK (end_attempt >= 0);
ALTER TABLE runs ADD COLUMN end_max_attempts INTEGER CHECK (end_max_attempts >= 1);
ALTER TABLE runs ADD COLUMN end_incomplete INTEGER NOT NULL DEFAULT 0
  CHECK (end_incomplete = 0 OR (end_incomplete = 1 AND status = 'failed'));
UPDATE runs SET end_max_attempts = 10, last_call = 0 WHERE ending IS NOT NULL;
CREATE INDEX runs_end_incomplete ON runs (created_at, run_id) WHERE end_incomplete = 1;

-- Until when the call in progress may store a step, although its run is ending. Null for any other run.
ALTER TABLE runs ADD COLUMN stop_by INTEGER CHECK (stop_by IS NULL OR (ending IS NOT NULL AND status = 'active'));

-- With how many runs, itself included, the run was at work when its process crashed, and under which epoch that was;
-- 0 if it had not been called yet. Null for a run that is not suspected.
ALTER TABLE runs ADD COLUMN crash_company INTEGER CHECK (crash_company >= 0);
ALTER TABLE runs ADD COLUMN crash_epoch INTEGER CHECK ((crash_epoch IS NULL) = (crash_company IS NULL));

-- The retry policy of a clog's last ticks as JSON (null: the default), and how long a step in flight may go on.
ALTER TABLE ocean_clogs ADD COLUMN end_retry TEXT;
ALTER TABLE ocean_clogs ADD COLUMN grace_ms INTEGER NOT NULL DEFAULT 10000 CHECK (grace_ms >= 0);

-- Where an instance runs, so that another one on the same host can see that its process is gone.
CREATE TABLE ocean_instances (
  instance_id TEXT PRIMARY KEY,
  boot_id TEXT,
  pid_namespace TEXT,
  pid INTEGER,
  process_start INTEGER,
  longest_lock_ms INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  seen_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX ocean_instances_seen ON ocean_instances (seen_at);
CREATE INDEX ocean_instances_place ON ocean_instances (boot_id, pid_namespace, seen_at) WHERE boot_id IS NOT NULL;

-- The step in which an event was streamed.
ALTER TABLE events ADD COLUMN step TEXT;
