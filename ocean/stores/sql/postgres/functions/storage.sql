-- Storage rows. An address is [scope, clog, session, run, tick, row id], as text.

CREATE OR REPLACE FUNCTION ocean_row(at jsonb, OUT version bigint, OUT value text) LANGUAGE plpgsql STABLE AS $$
BEGIN
  CASE at->>0
  WHEN 'global' THEN
    SELECT s.version, s.value INTO version, value FROM ocean_storage_global s WHERE s.clog_id = at->>1;
  WHEN 'session' THEN
    SELECT s.version, s.value INTO version, value FROM ocean_storage_session s
    WHERE s.clog_id = at->>1 AND s.session_id = at->>2;
  WHEN 'run' THEN
    SELECT s.version, s.value INTO version, value FROM ocean_storage_run s
    WHERE s.run_id = at->>3 AND s.clog_id = at->>1;
  WHEN 'tick' THEN
    SELECT s.version, s.value INTO version, value FROM ocean_storage_tick s
    WHERE s.run_id = at->>3 AND s.clog_id = at->>1 AND s.tick = (at->>4)::bigint AND s.row_id = at->>5;
  END CASE;
  version := coalesce(version, 0);
END $$;

CREATE OR REPLACE FUNCTION ocean_put_row(at jsonb, value text, version bigint, now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  CASE at->>0
  WHEN 'global' THEN
    INSERT INTO ocean_storage_global (clog_id, value, version) VALUES (at->>1, value, version)
    ON CONFLICT (clog_id) DO UPDATE SET value = excluded.value, version = excluded.version;
  WHEN 'session' THEN
    INSERT INTO ocean_storage_session (clog_id, session_id, value, version) VALUES (at->>1, at->>2, value, version)
    ON CONFLICT (clog_id, session_id) DO UPDATE SET value = excluded.value, version = excluded.version;
  WHEN 'run' THEN
    INSERT INTO ocean_storage_run (run_id, clog_id, value, version) VALUES (at->>3, at->>1, value, version)
    ON CONFLICT (run_id, clog_id) DO UPDATE SET value = excluded.value, version = excluded.version;
  WHEN 'tick' THEN
    INSERT INTO ocean_storage_tick (run_id, clog_id, tick, row_id, value, version)
    VALUES (at->>3, at->>1, (at->>4)::bigint, at->>5, value, version)
    ON CONFLICT (run_id, clog_id, tick, row_id) DO UPDATE SET value = excluded.value, version = excluded.version;
  END CASE;
END $$;

CREATE OR REPLACE FUNCTION ocean_clear_row(at jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  CASE at->>0
  WHEN 'global' THEN
    DELETE FROM ocean_storage_global s WHERE s.clog_id = at->>1;
  WHEN 'session' THEN
    DELETE FROM ocean_storage_session s WHERE s.clog_id = at->>1 AND s.session_id = at->>2;
  WHEN 'run' THEN
    DELETE FROM ocean_storage_run s WHERE s.run_id = at->>3 AND s.clog_id = at->>1;
  WHEN 'tick' THEN
    DELETE FROM ocean_storage_tick s
    WHERE s.run_id = at->>3 AND s.clog_id = at->>1 AND s.tick = (at->>4)::bigint AND s.row_id = at->>5;
  END CASE;
END $$;

-- Returns whether a row has another version than the call has read. A run whose row is written must exist, or be
-- created by this commit.
CREATE OR REPLACE FUNCTION ocean_have_rows_changed(e jsonb, own text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  w jsonb;
BEGIN
  FOR w IN SELECT jsonb_array_elements(e->'writes') LOOP
    IF w->'at'->>0 = 'run' AND w->'at'->>3 IS DISTINCT FROM own
      AND NOT coalesce(e->'runs' @> jsonb_build_array(jsonb_build_object('run_id', w->'at'->3)), false) THEN
      PERFORM ocean_run(w->'at'->>3);
    END IF;
    IF NOT w ? 'from' AND (ocean_row(w->'at')).version <> (w->>'version')::bigint THEN
      RETURN true;
    END IF;
  END LOOP;
  FOR w IN SELECT jsonb_array_elements(e->'guards') LOOP
    IF (ocean_row(w->0)).version <> (w->>1)::bigint THEN
      RETURN true;
    END IF;
  END LOOP;
  RETURN false;
END $$;

-- Returns the current texts of rows that a function was applied to in an older version: [[place, text], …], or null.
CREATE OR REPLACE FUNCTION ocean_stale_writes(writes jsonb) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
  RETURN (
    SELECT json_agg(json_build_array(w.place - 1, now.value))
    FROM jsonb_array_elements(writes) WITH ORDINALITY w(value, place), LATERAL ocean_row(w.value->'at') now
    WHERE w.value ? 'from' AND w.value->>'from' IS DISTINCT FROM now.value);
END $$;

CREATE OR REPLACE FUNCTION ocean_write_rows(writes jsonb, own text, now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  w jsonb;
  version bigint := nextval('ocean_versions');
BEGIN
  FOR w IN SELECT jsonb_array_elements(writes) LOOP
    IF w->'at'->>0 = 'run' AND w->'at'->>3 IS DISTINCT FROM own AND ocean_is_ended(ocean_run(w->'at'->>3)) THEN
      PERFORM ocean_refuse('row_of_ended_run', json_build_object('run_id', w->'at'->3));
    END IF;
    IF w->'at'->>0 = 'session' THEN
      PERFORM ocean_add_session(w->'at'->>2, now);
    END IF;
    IF w->>'text' IS NULL THEN
      PERFORM ocean_clear_row(w->'at');
    ELSE
      PERFORM ocean_put_row(w->'at', w->>'text', version, now);
    END IF;
  END LOOP;
END $$;

-- Returns the run whose tick has the turn on a row, as long as its lock holds.
CREATE OR REPLACE FUNCTION ocean_turn_holder(wanted text, now bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT t.run_id FROM ocean_turns t, LATERAL (
      SELECT FROM runs r WHERE r.run_id = t.run_id AND r.status = 'active' AND r.lock_epoch = t.epoch
        AND r.lock_expires_at > now OFFSET 0) held
    WHERE t.row_key = wanted);
END $$;

-- Returns whether another tick has the turn on a row to be written. A tick that has a turn itself never waits.
CREATE OR REPLACE FUNCTION ocean_must_wait_for_turn(writes jsonb, id text, epoch bigint, now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  IF writes IS NULL OR NOT EXISTS (SELECT 1 FROM ocean_turns)
    OR EXISTS (SELECT 1 FROM ocean_turns t WHERE t.run_id = id AND t.epoch = ocean_must_wait_for_turn.epoch) THEN
    RETURN false;
  END IF;
  RETURN EXISTS (
    SELECT 1 FROM jsonb_array_elements(writes) w, LATERAL (SELECT ocean_turn_holder(w->>'key', now) AS run_id) holder
    WHERE holder.run_id IS NOT NULL AND holder.run_id IS DISTINCT FROM id);
END $$;

-- Gives a tick the turn on all rows or on none, and ends its older turns, so that two ticks never hold half of what
-- both need.
CREATE OR REPLACE FUNCTION ocean_take_turn(id text, epoch bigint, keys jsonb, now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM ocean_turns t WHERE t.run_id = id;
  IF EXISTS (
    SELECT 1 FROM jsonb_array_elements_text(keys) k, LATERAL (SELECT ocean_turn_holder(k, now) AS run_id) holder
    WHERE holder.run_id IS NOT NULL AND holder.run_id <> id) THEN
    RETURN false;
  END IF;
  INSERT INTO ocean_turns (row_key, run_id, epoch) SELECT DISTINCT k, id, ocean_take_turn.epoch
  FROM jsonb_array_elements_text(keys) k
  ON CONFLICT (row_key) DO UPDATE SET run_id = excluded.run_id, epoch = excluded.epoch;
  RETURN true;
END $$;
