-- What has been taken of a counter. For a steady one `used` is in units of which a token has `per_ms`, and of which
-- `rate` are paid back in every millisecond since `at`. From `expires_at` on a row is worth as much as none.
CREATE TABLE ocean_counters (
  key TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('total', 'steady', 'at_once')),
  used INTEGER NOT NULL CHECK (used > 0),
  at INTEGER NOT NULL,
  per_ms INTEGER CHECK (per_ms >= 1),
  rate INTEGER CHECK (rate >= 1),
  expires_at INTEGER,
  CHECK ((kind = 'total') = (per_ms IS NULL)),
  CHECK ((kind = 'total') = (expires_at IS NULL)),
  CHECK ((kind = 'steady') = (rate IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX ocean_counters_expires ON ocean_counters (expires_at) WHERE expires_at IS NOT NULL;

-- What a run waits for between its creation and its first claim, which clears both.
ALTER TABLE runs ADD COLUMN delayed_by TEXT
  CHECK (delayed_by IS NULL OR (delayed_by IN ('rate', 'debounce') AND status = 'pending' AND wake_at IS NOT NULL));
ALTER TABLE runs ADD COLUMN delay_key TEXT CHECK ((delayed_by IS NULL) = (delay_key IS NULL));

-- A key that is held only while its run is debounced.
ALTER TABLE ocean_dedupe ADD COLUMN debounced INTEGER NOT NULL DEFAULT 0 CHECK (debounced IN (0, 1));

-- The rate that a run was created under, for a run that repeats it.
ALTER TABLE ocean_run_details ADD COLUMN rate TEXT;
