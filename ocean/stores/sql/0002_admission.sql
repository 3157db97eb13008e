-- Concurrency keys that somebody holds, or whose limit was set. Without a row the limit is 1 and nothing is in use.
CREATE TABLE ocean_keys (
  key TEXT PRIMARY KEY,
  slots INTEGER NOT NULL CHECK (slots >= 0),
  in_use INTEGER NOT NULL CHECK (in_use >= 0),
  wakes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The keys of a run, in the order they were named, and whether it holds a slot of each.
CREATE TABLE ocean_run_keys (
  run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
  key TEXT NOT NULL,
  place INTEGER NOT NULL,
  hold TEXT NOT NULL CHECK (hold IN ('tick', 'run')),
  is_held INTEGER NOT NULL CHECK (is_held IN (0, 1)),
  PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX ocean_run_keys_held ON ocean_run_keys (key, run_id) WHERE is_held = 1;

ALTER TABLE runs ADD COLUMN key_count INTEGER NOT NULL DEFAULT 0 CHECK (key_count BETWEEN 0 AND 3);
ALTER TABLE runs ADD COLUMN parked_on TEXT
  CHECK (parked_on IS NULL OR (key_count > 0 AND status IN ('pending', 'waiting')));
ALTER TABLE runs ADD COLUMN parked_at INTEGER CHECK (parked_on IS NULL OR parked_at IS NOT NULL);
-- Clogs whose runs are leased to workers outside. A run of one is in a queue.
ALTER TABLE ocean_clogs ADD COLUMN external INTEGER NOT NULL DEFAULT 0 CHECK (external IN (0, 1));
ALTER TABLE ocean_clogs ADD COLUMN takes_all_inputs INTEGER NOT NULL DEFAULT 0 CHECK (takes_all_inputs IN (0, 1));
ALTER TABLE runs ADD COLUMN queue TEXT;
ALTER TABLE runs ADD COLUMN leased INTEGER NOT NULL DEFAULT 0 CHECK (leased = 0 OR (leased = 1 AND status = 'active'));
-- Parked runs stand in line by clog and queue: whoever serves one of them may not serve another.
ALTER TABLE runs ADD COLUMN line TEXT GENERATED ALWAYS AS (coalesce(queue, '')) VIRTUAL;
-- Who is next when a slot of a key is free: the parked runs are here, and not in the due index.
CREATE INDEX runs_parked ON runs (parked_on, clog_id, line, priority, parked_at, run_id) WHERE parked_on IS NOT NULL;
CREATE INDEX runs_queue ON runs (clog_id, queue, priority, due_at, lock_epoch, run_id)
  WHERE due_at IS NOT NULL AND queue IS NOT NULL;
-- Leases that any advance gives back once they have lapsed.
CREATE INDEX runs_leased ON runs (lock_expires_at) WHERE leased = 1 AND paused = 0;

-- One row per lease handed out, found by the hash of its secret id; the answer of its completion is kept for repeats.
CREATE TABLE ocean_leases (
  lease_hash TEXT PRIMARY KEY,
  run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
  epoch INTEGER NOT NULL,
  tick INTEGER NOT NULL,
  call INTEGER NOT NULL,
  worker_id TEXT NOT NULL,
  version TEXT NOT NULL,
  lease_ms INTEGER NOT NULL,
  row_version INTEGER NOT NULL,
  claimed_at INTEGER NOT NULL,
  body_hash TEXT,
  answer TEXT,
  CHECK ((body_hash IS NULL) = (answer IS NULL)),
  UNIQUE (run_id, epoch)
) STRICT, WITHOUT ROWID;
