-- One row per group of runs; made on first use.
CREATE TABLE ocean_sessions (
  session_id TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The narrow row: everything that decides whether and when a run moves.
-- In the checks of this and other busy tables no list has more than two values: of a longer one SQLite makes a table,
-- for every row that is written.
CREATE TABLE runs (
  run_id TEXT PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES ocean_sessions ON DELETE CASCADE,
  clog_id TEXT NOT NULL,
  parent_run_id TEXT REFERENCES runs ON DELETE CASCADE,
  correlation_id TEXT NOT NULL,
  priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
  status TEXT NOT NULL
    CHECK (status IN ('idle', 'pending') OR status IN ('active', 'waiting') OR status IN ('done', 'failed')),
  attempt INTEGER NOT NULL CHECK (attempt >= 0),
  max_attempts INTEGER CHECK (max_attempts >= 1),
  due_at INTEGER,
  last_call INTEGER NOT NULL CHECK (last_call IN (0, 1)),
  ready_at INTEGER,
  wake_at INTEGER,
  wait_until INTEGER,
  deadline_at INTEGER,
  locked_by TEXT,
  lock_expires_at INTEGER,
  lock_epoch INTEGER NOT NULL,
  life INTEGER NOT NULL DEFAULT 0,
  tick INTEGER NOT NULL,
  tick_open INTEGER NOT NULL CHECK (tick_open IN (0, 1)),
  paused INTEGER NOT NULL CHECK (paused IN (0, 1)),
  ending TEXT CHECK (ending = 'cancel' OR ending IN ('deadline', 'exhausted')),
  event_count INTEGER NOT NULL,
  inbox_count INTEGER NOT NULL,
  pending_count INTEGER NOT NULL CHECK (pending_count >= 0),
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  ended_at INTEGER,
  CHECK ((status = 'active') = (locked_by IS NOT NULL)),
  CHECK ((status = 'active') = (lock_expires_at IS NOT NULL)),
  CHECK (status <> 'waiting' OR wake_at IS NOT NULL),
  CHECK (status <> 'idle' OR wake_at IS NULL),
  CHECK (wait_until IS NULL OR status = 'waiting'),
  CHECK (status <> 'pending' OR (ready_at IS NULL) <> (wake_at IS NULL)),
  CHECK ((status IN ('done', 'failed')) = (ended_at IS NOT NULL)),
  CHECK (ended_at IS NULL OR (due_at IS NULL AND wake_at IS NULL AND ending IS NULL AND tick_open = 0))
) STRICT;

-- What is due: sleepers, finished runs and other clogs' runs are never touched by a probe of a lane.
CREATE INDEX runs_due ON runs (clog_id, priority, due_at, lock_epoch, run_id) WHERE due_at IS NOT NULL;
-- What any advance owes, whatever clogs it has.
CREATE INDEX runs_deadline ON runs (deadline_at) WHERE deadline_at IS NOT NULL AND ended_at IS NULL AND ending IS NULL;
CREATE INDEX runs_last_call ON runs (lock_expires_at) WHERE last_call = 1;
-- The last ticks of paused clogs, which a pause does not hold back.
CREATE INDEX runs_ending ON runs (clog_id, due_at) WHERE ending IS NOT NULL AND due_at IS NOT NULL;
CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent_run_id, created_at, run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX runs_session ON runs (session_id, created_at, run_id);
CREATE INDEX runs_clog ON runs (clog_id, created_at, run_id);
CREATE INDEX runs_created ON runs (created_at, run_id);

-- The wide half of a run: read when it is shown, ended or retried.
CREATE TABLE ocean_run_details (
  run_id TEXT PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
  body_hash TEXT NOT NULL,
  retry TEXT NOT NULL,
  notify_parent INTEGER NOT NULL CHECK (notify_parent IN (0, 1)),
  on_parent_end TEXT NOT NULL CHECK (on_parent_end IN ('live', 'cancel')),
  dedupe_key TEXT,
  output TEXT,
  error TEXT
) STRICT, WITHOUT ROWID;

-- Who holds a dedupe key. Without a row the key is free.
CREATE TABLE ocean_dedupe (
  clog_id TEXT NOT NULL,
  session_id TEXT NOT NULL,
  dedupe_key TEXT NOT NULL,
  run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
  expires_at INTEGER,
  PRIMARY KEY (clog_id, session_id, dedupe_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX ocean_dedupe_run ON ocean_dedupe (run_id);

-- Everything a run is told. assigned_tick fixes a tick's inputs, consumed_tick is set by its commit.
CREATE TABLE ocean_inbox (
  run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
  number INTEGER NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('created', 'continue') OR kind = 'signal' OR kind IN ('timer', 'child')),
  body TEXT,
  body_hash TEXT,
  signal_id TEXT,
  timer TEXT,
  actor TEXT,
  caused_by TEXT,
  available_at INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  event_seq INTEGER,
  status_then TEXT,
  assigned_tick INTEGER,
  consumed_tick INTEGER CHECK (consumed_tick IS NULL OR consumed_tick = assigned_tick),
  CHECK ((kind = 'timer') = (timer IS NOT NULL)),
  PRIMARY KEY (run_id, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX ocean_inbox_next ON ocean_inbox (run_id, available_at, number) WHERE assigned_tick IS NULL;
CREATE INDEX ocean_inbox_open ON ocean_inbox (run_id, assigned_tick) WHERE consumed_tick IS NULL;
CREATE UNIQUE INDEX ocean_inbox_signal ON ocean_inbox (run_id, signal_id) WHERE signal_id IS NOT NULL;
CREATE UNIQUE INDEX ocean_inbox_timer ON ocean_inbox (run_id, timer)
  WHERE timer IS NOT NULL AND assigned_tick IS NULL;

-- One row per tick, made at its first claim.
CREATE TABLE ocean_ticks (
  run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
  tick INTEGER NOT NULL,
  reason TEXT NOT NULL,
  caused_by TEXT,
  calls INTEGER NOT NULL,
  conflicts INTEGER NOT NULL DEFAULT 0,
  give_backs INTEGER NOT NULL DEFAULT 0,
  epoch INTEGER NOT NULL,
  instance_id TEXT NOT NULL,
  version TEXT NOT NULL,
  first_claimed_at INTEGER NOT NULL,
  claimed_at INTEGER NOT NULL,
  outcome TEXT,
  committed_at INTEGER,
  CHECK ((outcome IS NULL) = (committed_at IS NULL)),
  PRIMARY KEY (run_id, tick),
  UNIQUE (run_id, epoch)
) STRICT, WITHOUT ROWID;

-- Results of steps, written once. tick 0 holds those that last as long as the run.
CREATE TABLE ocean_steps (
  run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
  tick INTEGER NOT NULL,
  name TEXT NOT NULL,
  result TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (run_id, tick, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE ocean_storage_global (
  clog_id TEXT PRIMARY KEY,
  value TEXT NOT NULL,
  version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE ocean_storage_session (
  clog_id TEXT NOT NULL,
  session_id TEXT NOT NULL REFERENCES ocean_sessions ON DELETE CASCADE,
  value TEXT NOT NULL,
  version INTEGER NOT NULL,
  PRIMARY KEY (clog_id, session_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX ocean_storage_session_parent ON ocean_storage_session (session_id);

CREATE TABLE ocean_storage_run (
  run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
  clog_id TEXT NOT NULL,
  value TEXT NOT NULL,
  version INTEGER NOT NULL,
  PRIMARY KEY (run_id, clog_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE ocean_storage_tick (
  run_id TEXT NOT NULL,
  clog_id TEXT NOT NULL,
  tick INTEGER NOT NULL,
  row_id TEXT NOT NULL,
  value TEXT NOT NULL,
  version INTEGER NOT NULL,
  PRIMARY KEY (run_id, clog_id, tick, row_id),
  FOREIGN KEY (run_id, tick) REFERENCES ocean_ticks ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX ocean_storage_tick_parent ON ocean_storage_tick (run_id, tick);

-- Rows that a tick has reserved after two conflicts. Void as soon as its lock is.
CREATE TABLE ocean_turns (
  row_key TEXT PRIMARY KEY,
  run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
  epoch INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX ocean_turns_run ON ocean_turns (run_id);

-- sort_key orders like the value does, as bytes: equality and ranges are both one stretch of the index.
CREATE TABLE ocean_attributes (
  run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
  name TEXT NOT NULL,
  clog_id TEXT NOT NULL,
  sort_key TEXT NOT NULL,
  value TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX ocean_attributes_value ON ocean_attributes (clog_id, name, sort_key, created_at, run_id);

-- The append-only log. No foreign key: it outlives what it tells of.
CREATE TABLE events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  ts INTEGER NOT NULL,
  session_id TEXT,
  run_id TEXT,
  run_seq INTEGER,
  tick INTEGER,
  call INTEGER,
  clog_id TEXT,
  type TEXT NOT NULL,
  payload TEXT NOT NULL,
  actor TEXT,
  correlation_id TEXT,
  causation_id TEXT,
  CHECK ((run_id IS NULL) = (run_seq IS NULL))
) STRICT;
CREATE UNIQUE INDEX events_run_seq ON events (run_id, run_seq) WHERE run_id IS NOT NULL;
CREATE INDEX events_run ON events (run_id, seq);
CREATE INDEX events_session ON events (session_id, seq);
CREATE INDEX events_clog ON events (clog_id, seq);
CREATE INDEX events_correlation ON events (correlation_id, seq);

-- What instances say of their clogs.
CREATE TABLE ocean_clogs (
  clog_id TEXT PRIMARY KEY,
  version TEXT NOT NULL,
  has_on_end INTEGER NOT NULL CHECK (has_on_end IN (0, 1)),
  paused INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
  registered_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Answers kept for request keys.
CREATE TABLE ocean_requests (
  request_key TEXT PRIMARY KEY,
  hash TEXT NOT NULL,
  answer TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX ocean_requests_created ON ocean_requests (created_at);

-- The highest seq that retention has removed.
CREATE TABLE ocean_log_floor (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  seq INTEGER NOT NULL
) STRICT;
INSERT INTO ocean_log_floor (id, seq) VALUES (1, 0);
