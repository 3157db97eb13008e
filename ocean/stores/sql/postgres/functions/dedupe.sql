-- Dedupe keys: one holder per clog, session and key.

-- Returns the run that holds a dedupe key at `now`, with the hash of the body that created it; or nulls.
CREATE OR REPLACE FUNCTION ocean_holder_of_key(clog text, session text, key text, now bigint, OUT run_id text,
  OUT body_hash text) LANGUAGE plpgsql AS $$
DECLARE
  is_debounced boolean;
BEGIN
  SELECT d.run_id, (SELECT w.body_hash FROM ocean_run_details w WHERE w.run_id = d.run_id), d.debounced
  INTO run_id, body_hash, is_debounced FROM ocean_dedupe d
  WHERE d.clog_id = clog AND d.session_id = session AND d.dedupe_key = key
    AND (d.expires_at IS NULL OR d.expires_at > now);
  IF is_debounced AND NOT ocean_is_debounced(ocean_find(run_id), now) THEN
    run_id := NULL;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION ocean_hold_dedupe_key(n jsonb, now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  earlier text;
BEGIN
  SELECT d.run_id INTO earlier FROM ocean_dedupe d
  WHERE d.clog_id = n->>'clog_id' AND d.session_id = n->>'session_id' AND d.dedupe_key = n->>'dedupe_key';
  IF earlier IS NOT NULL THEN
    PERFORM ocean_release_dedupe_key(earlier);
  END IF;
  INSERT INTO ocean_dedupe (clog_id, session_id, dedupe_key, run_id, expires_at, debounced)
  VALUES (n->>'clog_id', n->>'session_id', n->>'dedupe_key', n->>'run_id', now + (n->>'dedupe_ms')::bigint,
    n->>'debounce' IS NOT NULL);
END $$;

-- Frees the key that the run holds, if any; the run no longer shows it.
CREATE OR REPLACE FUNCTION ocean_release_dedupe_key(id text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM ocean_dedupe d WHERE d.run_id = id;
  UPDATE ocean_run_details d SET dedupe_key = NULL WHERE d.run_id = id;
END $$;
