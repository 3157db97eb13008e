-- Who may ask. `key_id` is the public part of a key; of the rest only the hash is kept. A row is never removed: as long
-- as there is one, requests need a key.
CREATE TABLE ocean_api_keys (
  key_id TEXT PRIMARY KEY,
  hash TEXT NOT NULL,
  actor TEXT NOT NULL,
  scopes TEXT NOT NULL,
  roles TEXT NOT NULL,
  sessions TEXT,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER
) STRICT, WITHOUT ROWID;

-- A browser that has shown a key, and goes on under a cookie of which only the hash is kept.
CREATE TABLE ocean_web_sessions (
  hash TEXT PRIMARY KEY,
  key_id TEXT NOT NULL REFERENCES ocean_api_keys (key_id),
  expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX ocean_web_sessions_expires ON ocean_web_sessions (expires_at);
CREATE INDEX ocean_web_sessions_key ON ocean_web_sessions (key_id);

-- What the generic routes and commands may do with a clog's runs, as a JSON list; null: everything.
ALTER TABLE ocean_clogs ADD COLUMN allows TEXT;
