-- One row per group of runs; made on first use.
CREATE TABLE ocean_sessions (
  session_id TEXT COLLATE "C" PRIMARY KEY,
  created_at BIGINT NOT NULL
);

-- The narrow row: everything that decides whether and when a run moves.
CREATE TABLE runs (
  run_id TEXT COLLATE "C" NOT NULL,
  session_id TEXT COLLATE "C" NOT NULL REFERENCES ocean_sessions ON DELETE CASCADE,
  clog_id TEXT COLLATE "C" NOT NULL,
  parent_run_id TEXT COLLATE "C",
  correlation_id TEXT COLLATE "C" NOT NULL,
  priority SMALLINT NOT NULL CHECK (priority BETWEEN 0 AND 9),
  status TEXT COLLATE "C" NOT NULL CHECK (status IN ('idle', 'pending', 'active', 'waiting', 'done', 'failed')),
  attempt BIGINT NOT NULL CHECK (attempt >= 0),
  max_attempts BIGINT CHECK (max_attempts >= 1),
  due_at BIGINT,
  last_call BOOLEAN NOT NULL,
  ready_at BIGINT,
  wake_at BIGINT,
  wait_until BIGINT,
  deadline_at BIGINT,
  locked_by TEXT COLLATE "C",
  lock_expires_at BIGINT,
  lock_epoch BIGINT NOT NULL,
  life BIGINT NOT NULL DEFAULT 0,
  tick BIGINT NOT NULL,
  tick_open BOOLEAN NOT NULL,
  paused BOOLEAN NOT NULL,
  ending TEXT COLLATE "C" CHECK (ending IN ('cancel', 'deadline', 'exhausted')),
  event_count BIGINT NOT NULL,
  inbox_count BIGINT NOT NULL,
  pending_count BIGINT NOT NULL CHECK (pending_count >= 0),
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  ended_at BIGINT,
  key_count SMALLINT NOT NULL DEFAULT 0 CHECK (key_count BETWEEN 0 AND 3),
  parked_on TEXT COLLATE "C" CHECK (parked_on IS NULL OR (key_count > 0 AND status IN ('pending', 'waiting'))),
  parked_at BIGINT CHECK (parked_on IS NULL OR parked_at IS NOT NULL),
  queue TEXT COLLATE "C",
  leased BOOLEAN NOT NULL DEFAULT false CHECK (NOT leased OR status = 'active'),
  line TEXT COLLATE "C" GENERATED ALWAYS AS (coalesce(queue, '')) STORED,
  delayed_by TEXT COLLATE "C"
    CHECK (delayed_by IS NULL OR (delayed_by IN ('rate', 'debounce') AND status = 'pending' AND wake_at IS NOT NULL)),
  delay_key TEXT COLLATE "C" CHECK ((delayed_by IS NULL) = (delay_key IS NULL)),
  CHECK ((status = 'active') = (locked_by IS NOT NULL)),
  CHECK ((status = 'active') = (lock_expires_at IS NOT NULL)),
  CHECK (status <> 'waiting' OR wake_at IS NOT NULL),
  CHECK (status <> 'idle' OR wake_at IS NULL),
  CHECK (wait_until IS NULL OR status = 'waiting'),
  CHECK (status <> 'pending' OR (ready_at IS NULL) <> (wake_at IS NULL)),
  CHECK ((status IN ('done', 'failed')) = (ended_at IS NOT NULL)),
  CHECK (ended_at IS NULL OR (due_at IS NULL AND wake_at IS NULL AND ending IS NULL AND NOT tick_open))
);

-- What is due: sleepers, finished runs and other clogs' runs are never touched by a probe of a lane.
CREATE INDEX runs_due ON runs (clog_id, priority, due_at, lock_epoch, run_id) WHERE due_at IS NOT NULL;
-- What any advance owes, whatever clogs it has.
CREATE INDEX runs_deadline ON runs (deadline_at) WHERE deadline_at IS NOT NULL AND ended_at IS NULL AND ending IS NULL;
CREATE INDEX runs_last_call ON runs (lock_expires_at) WHERE last_call;
-- The last ticks of paused clogs, which a pause does not hold back.
CREATE INDEX runs_ending ON runs (clog_id, due_at) WHERE ending IS NOT NULL AND due_at IS NOT NULL;
CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL;
-- Each filter of list_runs is one stretch of an index: its columns come first, the order's columns last.
CREATE INDEX runs_parent ON runs (parent_run_id, status, created_at, run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX runs_session ON runs (session_id, clog_id, status, created_at, run_id);
CREATE INDEX runs_clog ON runs (clog_id, status, created_at, run_id);
CREATE INDEX runs_clog_ended ON runs (clog_id, status, ended_at, run_id) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_created ON runs (created_at, run_id);
-- Who is next when a slot of a key is free: the parked runs are here, and not in the due index.
CREATE INDEX runs_parked ON runs (parked_on, clog_id, line, priority, parked_at, run_id) WHERE parked_on IS NOT NULL;
CREATE INDEX runs_queue ON runs (clog_id, queue, priority, due_at, lock_epoch, run_id)
  WHERE due_at IS NOT NULL AND queue IS NOT NULL;
-- Leases that any advance gives back once they have lapsed.
CREATE INDEX runs_leased ON runs (lock_expires_at) WHERE leased AND NOT paused;
-- A primary key is made last where another index ends with its columns. In a table of a row or none all indexes seem
-- equal, and the newest is taken: a plan that was made then, and kept, must not walk the wrong one later.
ALTER TABLE runs ADD PRIMARY KEY (run_id);
ALTER TABLE runs ADD FOREIGN KEY (parent_run_id) REFERENCES runs ON DELETE CASCADE;

-- The wide half of a run: read when it is shown, ended or retried.
CREATE TABLE ocean_run_details (
  run_id TEXT COLLATE "C" PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
  body_hash TEXT COLLATE "C" NOT NULL,
  retry TEXT COLLATE "C" NOT NULL,
  notify_parent BOOLEAN NOT NULL,
  on_parent_end TEXT COLLATE "C" NOT NULL CHECK (on_parent_end IN ('live', 'cancel')),
  dedupe_key TEXT COLLATE "C",
  output TEXT COLLATE "C",
  error TEXT COLLATE "C",
  retry_of TEXT COLLATE "C",
  rate TEXT COLLATE "C"
);

-- Who holds a dedupe key. Without a row the key is free.
CREATE TABLE ocean_dedupe (
  clog_id TEXT COLLATE "C" NOT NULL,
  session_id TEXT COLLATE "C" NOT NULL,
  dedupe_key TEXT COLLATE "C" NOT NULL,
  run_id TEXT COLLATE "C" NOT NULL REFERENCES runs ON DELETE CASCADE,
  expires_at BIGINT,
  debounced BOOLEAN NOT NULL DEFAULT false,
  PRIMARY KEY (clog_id, session_id, dedupe_key)
);
CREATE INDEX ocean_dedupe_run ON ocean_dedupe (run_id);

-- Everything a run is told. assigned_tick fixes a tick's inputs, consumed_tick is set by its commit.
CREATE TABLE ocean_inbox (
  run_id TEXT COLLATE "C" NOT NULL REFERENCES runs ON DELETE CASCADE,
  number BIGINT NOT NULL,
  kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('created', 'continue', 'signal', 'timer', 'child')),
  body TEXT COLLATE "C",
  body_hash TEXT COLLATE "C",
  signal_id TEXT COLLATE "C",
  timer TEXT COLLATE "C",
  actor TEXT COLLATE "C",
  caused_by TEXT COLLATE "C",
  available_at BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  event_seq BIGINT,
  status_then TEXT COLLATE "C",
  assigned_tick BIGINT,
  consumed_tick BIGINT CHECK (consumed_tick IS NULL OR consumed_tick = assigned_tick),
  CHECK ((kind = 'timer') = (timer IS NOT NULL)),
  PRIMARY KEY (run_id, number)
);
CREATE INDEX ocean_inbox_next ON ocean_inbox (run_id, available_at, number) WHERE assigned_tick IS NULL;
-- No index knows consumed_tick: to consume an input changes its row in place.
CREATE INDEX ocean_inbox_tick ON ocean_inbox (run_id, assigned_tick) WHERE assigned_tick IS NOT NULL;
CREATE UNIQUE INDEX ocean_inbox_signal ON ocean_inbox (run_id, signal_id) WHERE signal_id IS NOT NULL;
CREATE UNIQUE INDEX ocean_inbox_timer ON ocean_inbox (run_id, timer)
  WHERE timer IS NOT NULL AND assigned_tick IS NULL;

-- One row per tick, made at its first claim.
CREATE TABLE ocean_ticks (
  run_id TEXT COLLATE "C" NOT NULL REFERENCES runs ON DELETE CASCADE,
  tick BIGINT NOT NULL,
  reason TEXT COLLATE "C" NOT NULL,
  caused_by TEXT COLLATE "C",
  calls BIGINT NOT NULL,
  conflicts BIGINT NOT NULL DEFAULT 0,
  give_backs BIGINT NOT NULL DEFAULT 0,
  epoch BIGINT NOT NULL,
  instance_id TEXT COLLATE "C" NOT NULL,
  version TEXT COLLATE "C" NOT NULL,
  first_claimed_at BIGINT NOT NULL,
  claimed_at BIGINT NOT NULL,
  outcome TEXT COLLATE "C",
  committed_at BIGINT,
  CHECK ((outcome IS NULL) = (committed_at IS NULL)),
  UNIQUE (run_id, epoch)
);
ALTER TABLE ocean_ticks ADD PRIMARY KEY (run_id, tick);

-- Results of steps, written once. tick 0 holds those that last as long as the run.
CREATE TABLE ocean_steps (
  run_id TEXT COLLATE "C" NOT NULL REFERENCES runs ON DELETE CASCADE,
  tick BIGINT NOT NULL,
  name TEXT COLLATE "C" NOT NULL,
  result TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (run_id, tick, name)
);

CREATE TABLE ocean_storage_global (
  clog_id TEXT COLLATE "C" PRIMARY KEY,
  value TEXT COLLATE "C" NOT NULL,
  version BIGINT NOT NULL
);

CREATE TABLE ocean_storage_session (
  clog_id TEXT COLLATE "C" NOT NULL,
  session_id TEXT COLLATE "C" NOT NULL REFERENCES ocean_sessions ON DELETE CASCADE,
  value TEXT COLLATE "C" NOT NULL,
  version BIGINT NOT NULL,
  PRIMARY KEY (clog_id, session_id)
);
CREATE INDEX ocean_storage_session_parent ON ocean_storage_session (session_id);

CREATE TABLE ocean_storage_run (
  run_id TEXT COLLATE "C" NOT NULL REFERENCES runs ON DELETE CASCADE,
  clog_id TEXT COLLATE "C" NOT NULL,
  value TEXT COLLATE "C" NOT NULL,
  version BIGINT NOT NULL,
  PRIMARY KEY (run_id, clog_id)
);

CREATE TABLE ocean_storage_tick (
  run_id TEXT COLLATE "C" NOT NULL,
  clog_id TEXT COLLATE "C" NOT NULL,
  tick BIGINT NOT NULL,
  row_id TEXT COLLATE "C" NOT NULL,
  value TEXT COLLATE "C" NOT NULL,
  version BIGINT NOT NULL,
  PRIMARY KEY (run_id, clog_id, tick, row_id),
  FOREIGN KEY (run_id, tick) REFERENCES ocean_ticks ON DELETE CASCADE
);
CREATE INDEX ocean_storage_tick_parent ON ocean_storage_tick (run_id, tick);

-- Rows that a tick has reserved after two conflicts. Void as soon as its lock is.
CREATE TABLE ocean_turns (
  row_key TEXT COLLATE "C" PRIMARY KEY,
  run_id TEXT COLLATE "C" NOT NULL REFERENCES runs ON DELETE CASCADE,
  epoch BIGINT NOT NULL
);
CREATE INDEX ocean_turns_run ON ocean_turns (run_id);

-- sort_key orders like the value does, as bytes: equality and ranges are both one stretch of the index.
CREATE TABLE ocean_attributes (
  run_id TEXT COLLATE "C" NOT NULL REFERENCES runs ON DELETE CASCADE,
  name TEXT COLLATE "C" NOT NULL,
  clog_id TEXT COLLATE "C" NOT NULL,
  sort_key TEXT COLLATE "C" NOT NULL,
  value TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE INDEX ocean_attributes_value ON ocean_attributes (clog_id, name, sort_key, created_at, run_id);
ALTER TABLE ocean_attributes ADD PRIMARY KEY (run_id, name);

-- The append-only log. No foreign key: it outlives what it tells of.
CREATE TABLE events (
  seq BIGINT PRIMARY KEY,
  ts BIGINT NOT NULL,
  session_id TEXT COLLATE "C",
  run_id TEXT COLLATE "C",
  run_seq BIGINT,
  tick BIGINT,
  call BIGINT,
  clog_id TEXT COLLATE "C",
  type TEXT COLLATE "C" NOT NULL,
  payload TEXT COLLATE "C" NOT NULL,
  actor TEXT COLLATE "C",
  correlation_id TEXT COLLATE "C",
  causation_id TEXT COLLATE "C",
  CHECK ((run_id IS NULL) = (run_seq IS NULL))
);
CREATE UNIQUE INDEX events_run_seq ON events (run_id, run_seq) WHERE run_id IS NOT NULL;
CREATE INDEX events_run ON events (run_id, seq);
CREATE INDEX events_session ON events (session_id, seq);
CREATE INDEX events_clog ON events (clog_id, seq);
CREATE INDEX events_correlation ON events (correlation_id, seq);

-- What instances say of their clogs. `allows` is what the generic routes and commands may do with their runs, as a
-- JSON list; null: everything.
CREATE TABLE ocean_clogs (
  clog_id TEXT COLLATE "C" PRIMARY KEY,
  version TEXT COLLATE "C" NOT NULL,
  has_on_end BOOLEAN NOT NULL,
  paused BOOLEAN NOT NULL DEFAULT false,
  registered_at BIGINT NOT NULL,
  external BOOLEAN NOT NULL DEFAULT false,
  takes_all_inputs BOOLEAN NOT NULL DEFAULT false,
  allows TEXT COLLATE "C"
);

-- Answers kept for request keys.
CREATE TABLE ocean_requests (
  request_key TEXT COLLATE "C" PRIMARY KEY,
  hash TEXT COLLATE "C" NOT NULL,
  answer TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE INDEX ocean_requests_created ON ocean_requests (created_at);

-- The highest seq that retention has removed.
CREATE TABLE ocean_log_floor (
  id SMALLINT PRIMARY KEY CHECK (id = 1),
  seq BIGINT NOT NULL
);
INSERT INTO ocean_log_floor (id, seq) VALUES (1, 0);

-- Concurrency keys that somebody holds, or whose limit was set. Without a row the limit is 1 and nothing is in use.
CREATE TABLE ocean_keys (
  key TEXT COLLATE "C" PRIMARY KEY,
  slots BIGINT NOT NULL CHECK (slots >= 0),
  in_use BIGINT NOT NULL CHECK (in_use >= 0),
  wakes BIGINT NOT NULL
);

-- The keys of a run, in the order they were named, and whether it holds a slot of each.
CREATE TABLE ocean_run_keys (
  run_id TEXT COLLATE "C" NOT NULL REFERENCES runs ON DELETE CASCADE,
  key TEXT COLLATE "C" NOT NULL,
  place SMALLINT NOT NULL,
  hold TEXT COLLATE "C" NOT NULL CHECK (hold IN ('tick', 'run')),
  is_held BOOLEAN NOT NULL,
  PRIMARY KEY (run_id, key)
);
CREATE INDEX ocean_run_keys_held ON ocean_run_keys (key, run_id) WHERE is_held;

-- One row per lease handed out, found by the hash of its secret id; the answer of its completion is kept for repeats.
CREATE TABLE ocean_leases (
  lease_hash TEXT COLLATE "C" PRIMARY KEY,
  run_id TEXT COLLATE "C" NOT NULL REFERENCES runs ON DELETE CASCADE,
  epoch BIGINT NOT NULL,
  tick BIGINT NOT NULL,
  call BIGINT NOT NULL,
  worker_id TEXT COLLATE "C" NOT NULL,
  version TEXT COLLATE "C" NOT NULL,
  lease_ms BIGINT NOT NULL,
  row_version BIGINT NOT NULL,
  claimed_at BIGINT NOT NULL,
  body_hash TEXT COLLATE "C",
  answer TEXT COLLATE "C",
  CHECK ((body_hash IS NULL) = (answer IS NULL)),
  UNIQUE (run_id, epoch)
);

-- What has been taken of a counter. For a steady one `used` is in units of which a token has `per_ms`, and of which
-- `rate` are paid back in every millisecond since `at`. From `expires_at` on a row is worth as much as none.
CREATE TABLE ocean_counters (
  key TEXT COLLATE "C" PRIMARY KEY,
  kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('total', 'steady', 'at_once')),
  used BIGINT NOT NULL CHECK (used > 0),
  at BIGINT NOT NULL,
  per_ms BIGINT CHECK (per_ms >= 1),
  rate BIGINT CHECK (rate >= 1),
  expires_at BIGINT,
  CHECK ((kind = 'total') = (per_ms IS NULL)),
  CHECK ((kind = 'total') = (expires_at IS NULL)),
  CHECK ((kind = 'steady') = (rate IS NOT NULL))
);
CREATE INDEX ocean_counters_expires ON ocean_counters (expires_at) WHERE expires_at IS NOT NULL;

-- Who may ask. `key_id` is the public part of a key; of the rest only the hash is kept. A row is never removed: as long
-- as there is one, requests need a key.
CREATE TABLE ocean_api_keys (
  key_id TEXT COLLATE "C" PRIMARY KEY,
  hash TEXT COLLATE "C" NOT NULL,
  actor TEXT COLLATE "C" NOT NULL,
  scopes TEXT COLLATE "C" NOT NULL,
  roles TEXT COLLATE "C" NOT NULL,
  sessions TEXT COLLATE "C",
  created_at BIGINT NOT NULL,
  expires_at BIGINT,
  revoked_at BIGINT
);

-- A browser that has shown a key, and goes on under a cookie of which only the hash is kept.
CREATE TABLE ocean_web_sessions (
  hash TEXT COLLATE "C" PRIMARY KEY,
  key_id TEXT COLLATE "C" NOT NULL REFERENCES ocean_api_keys (key_id),
  expires_at BIGINT NOT NULL
);
CREATE INDEX ocean_web_sessions_expires ON ocean_web_sessions (expires_at);
CREATE INDEX ocean_web_sessions_key ON ocean_web_sessions (key_id);

-- Rows that change often: room for the next version beside the last, and a vacuum before there are many dead ones. A run's
-- claim and its commit move it in the due index, so they are new entries in its indexes whatever is done; what is left
-- (streams, steps, inputs consumed, ticks and ends told) changes in place.
ALTER TABLE runs SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE ocean_run_details SET (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE ocean_inbox SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE ocean_ticks SET (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE ocean_storage_run SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE ocean_storage_session SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE ocean_run_keys SET (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05);
-- Few rows that everybody changes, or that come and go.
ALTER TABLE ocean_storage_global SET (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE ocean_keys SET (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE ocean_counters SET (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE ocean_turns SET (autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.02);
-- A log that only grows is frozen piece by piece, not all at once when its age demands it.
ALTER TABLE events SET (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_scale_factor = 0.05);

-- The log's cursor. It is drawn from under the feed lock only, so its order is the order of commits.
CREATE SEQUENCE ocean_cursor AS BIGINT MINVALUE 0 START 0;
SELECT setval('ocean_cursor', 0);

-- Versions of storage rows, and lives of run ids: never the same number twice.
CREATE SEQUENCE ocean_versions AS BIGINT;

-- One row per group of changes, to find out what became of one whose answer was lost. Without an answer it is void.
CREATE TABLE ocean_groups (
  token TEXT COLLATE "C" PRIMARY KEY,
  at BIGINT NOT NULL,
  answer TEXT
);
CREATE INDEX ocean_groups_at ON ocean_groups (at);
ALTER TABLE ocean_groups SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);

-- Time, in milliseconds UTC: this server's, and nobody else's.
CREATE FUNCTION ocean_now() RETURNS BIGINT LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- Where changes come from, as their events say it: the moment, a tick and its call, who asked, and the event before.
CREATE TYPE ocean_origin AS (now BIGINT, tick BIGINT, call BIGINT, actor TEXT, caused_by TEXT);

-- What a take from a counter is answered, and the counter as it is after it.
CREATE TYPE ocean_taken AS (ok BOOLEAN, used BIGINT, retry_after_ms BIGINT, kind TEXT, owed BIGINT, at BIGINT, per_ms BIGINT, rate BIGINT);
