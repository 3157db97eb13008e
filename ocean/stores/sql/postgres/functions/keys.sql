-- Concurrency keys: which runs hold a slot, which are parked, and which are woken when a slot is free. The rules are
-- described in the `keys` module of the SQLite store.

-- Returns the runs with keys that this transaction has changed, as they were before. They are kept in a setting that
-- ends with the transaction.
CREATE OR REPLACE FUNCTION ocean_unsettled() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RETURN coalesce(nullif(current_setting('ocean.unsettled', true), ''), '[]')::jsonb;
END $$;

CREATE OR REPLACE FUNCTION ocean_note_unsettled(id text, before jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  noted jsonb := ocean_unsettled();
BEGIN
  IF NOT noted @> jsonb_build_array(jsonb_build_object('run_id', id)) THEN
    PERFORM set_config('ocean.unsettled', (noted || jsonb_build_object('run_id', id, 'before', before))::text, true);
  END IF;
END $$;

-- Settles the slots of all changed runs, then wakes parked runs. Not before: until all are written, the tables contain
-- parked runs that are no longer parked.
CREATE OR REPLACE FUNCTION ocean_settle_keys(now bigint, vacated text[] DEFAULT '{}') RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  noted jsonb;
  woken record;
BEGIN
  IF cardinality(vacated) = 0 AND coalesce(current_setting('ocean.unsettled', true), '') IN ('', '[]') THEN
    RETURN;
  END IF;
  LOOP
    noted := ocean_unsettled();
    EXIT WHEN noted = '[]';
    vacated := vacated || ocean_settle_slots(noted->0->>'run_id', noted->0->'before', now);
    PERFORM set_config('ocean.unsettled', (noted - 0)::text, true);
  END LOOP;
  FOR woken IN SELECT key, count(*) AS count FROM unnest(vacated) key GROUP BY key LOOP
    PERFORM ocean_wake(woken.key, woken.count, now);
  END LOOP;
END $$;

-- Returns the stage of a run: away (nothing to do), due (it would be called now), at_work, or parked on a full key.
CREATE OR REPLACE FUNCTION ocean_stage(r runs, now bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN CASE
    WHEN r.run_id IS NULL OR r.status IN ('done', 'failed') THEN 'away'
    WHEN r.status = 'active' THEN 'at_work'
    WHEN r.parked_on IS NOT NULL THEN 'parked'
    WHEN ocean_wants_slots(r, now) THEN 'due'
    ELSE 'away'
  END;
END $$;

-- Takes or frees slots according to the new state of a run, and parks it if a key it needs is full. Returns the keys of
-- which other runs may now get a slot.
CREATE OR REPLACE FUNCTION ocean_settle_slots(id text, before jsonb, now bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_find(id);
  was text := ocean_stage(jsonb_populate_record(NULL::runs, nullif(before, 'null')), now);
  freed text[];
BEGIN
  IF r.run_id IS NULL THEN
    RETURN '{}';
  END IF;
  freed := ocean_take_and_free(r);
  IF r.parked_on IS NOT NULL AND NOT ocean_wants_slots(r, now) THEN
    r := ocean_unparked(r, now);
    PERFORM ocean_put(r);
  ELSIF was <> 'due' AND ocean_stage(r, now) = 'due' THEN
    r := ocean_park_if_full(r, now);
    PERFORM ocean_put(r);
  END IF;
  IF was = 'due' AND ocean_stage(r, now) <> 'due' THEN
    RETURN ARRAY(SELECT k.key FROM ocean_run_keys k WHERE k.run_id = id ORDER BY k.place);
  END IF;
  RETURN freed;
END $$;

-- Takes and frees slots: an active run holds all its keys, an ended run none; between ticks a run keeps those with hold
-- 'run'.
CREATE OR REPLACE FUNCTION ocean_take_and_free(r runs) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  k ocean_run_keys;
  holds boolean;
  freed text[] := '{}';
BEGIN
  FOR k IN SELECT * FROM ocean_run_keys WHERE run_id = r.run_id ORDER BY place LOOP
    holds := r.status = 'active' OR (k.hold = 'run' AND k.is_held AND NOT ocean_is_ended(r));
    IF holds <> k.is_held THEN
      INSERT INTO ocean_keys (key, slots, in_use, wakes) VALUES (k.key, 1, 1, 0)
      ON CONFLICT (key) DO UPDATE SET in_use = ocean_keys.in_use + CASE WHEN holds THEN 1 ELSE -1 END;
      UPDATE ocean_run_keys SET is_held = holds WHERE run_id = r.run_id AND key = k.key;
      IF NOT holds THEN
        freed := freed || k.key;
      END IF;
    END IF;
  END LOOP;
  RETURN freed;
END $$;

-- Returns the first key of the run that is full and of which it holds no slot, with one of its holders; or null.
CREATE OR REPLACE FUNCTION ocean_full_key(r runs) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF r.key_count = 0 OR r.status = 'active' THEN
    RETURN NULL;
  END IF;
  RETURN (
    SELECT json_build_object('key', k.key, 'limit', coalesce(u.slots, 1), 'in_use', coalesce(u.in_use, 0), 'holder', (
      SELECT h.run_id FROM ocean_run_keys h WHERE h.key = k.key AND h.is_held ORDER BY h.key, h.run_id LIMIT 1))
    FROM ocean_run_keys k LEFT JOIN ocean_keys u ON u.key = k.key
    WHERE k.run_id = r.run_id AND NOT k.is_held AND coalesce(u.in_use, 0) >= coalesce(u.slots, 1)
    ORDER BY k.place LIMIT 1);
END $$;

CREATE OR REPLACE FUNCTION ocean_park_if_full(r runs, now bigint) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  full_key json := ocean_full_key(r);
  is_first_time boolean := r.parked_at IS NULL;
BEGIN
  IF full_key IS NOT NULL THEN
    r := ocean_parked(r, full_key->>'key', now);
    IF is_first_time THEN
      r := ocean_event(r, ocean_origin(now), 'run.parked',
        json_build_object('key', full_key->'key', 'limit', full_key->'limit', 'status', r.status)::text);
    END IF;
  END IF;
  RETURN r;
END $$;

-- If the key has free slots, makes the next parked runs of each clog and queue due: last ticks first, then by priority;
-- every eighth time the longest parked.
CREATE OR REPLACE FUNCTION ocean_wake(wanted text, most bigint, now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  free_slots bigint;
  waiting text[];
  wakes bigint;
  id text;
BEGIN
  SELECT k.slots - k.in_use INTO free_slots FROM ocean_keys k WHERE k.key = wanted;
  most := least(most, coalesce(free_slots, 1), 100);
  IF most <= 0 THEN
    RETURN;
  END IF;
  waiting := ocean_first_parked(wanted, most);
  IF cardinality(waiting) = 0 THEN
    DELETE FROM ocean_keys k WHERE k.key = wanted AND k.slots = 1 AND k.in_use = 0;
    RETURN;
  END IF;
  UPDATE ocean_keys k SET wakes = k.wakes + 1 WHERE k.key = wanted RETURNING k.wakes INTO wakes;
  FOR id IN
    SELECT run_id FROM (
      SELECT r.run_id, row_number() OVER (PARTITION BY r.clog_id, r.line ORDER BY r.ending IS NULL,
        CASE WHEN wakes % 8 = 0 THEN 0 ELSE r.priority END, r.parked_at, r.run_id) AS place
      FROM runs r WHERE r.run_id = ANY (waiting)) ranked
    WHERE place <= most
  LOOP
    PERFORM ocean_put(ocean_unparked(ocean_find(id), now));
  END LOOP;
END $$;

-- Returns the first parked runs of every lane, by one probe per lane, however many runs it has.
CREATE OR REPLACE FUNCTION ocean_first_parked(wanted text, most bigint) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN ARRAY(
    WITH RECURSIVE lanes(clog_id, line, priority) AS (
      (SELECT r.clog_id, r.line, r.priority FROM runs r WHERE r.parked_on = wanted
       ORDER BY r.clog_id, r.line, r.priority LIMIT 1)
      UNION ALL
      SELECT next.* FROM lanes, LATERAL (
        SELECT r.clog_id, r.line, r.priority FROM runs r
        WHERE r.parked_on = wanted AND (r.clog_id, r.line, r.priority) > (lanes.clog_id, lanes.line, lanes.priority)
        ORDER BY r.clog_id, r.line, r.priority LIMIT 1) next)
    SELECT first.run_id FROM lanes, LATERAL (
      SELECT r.run_id FROM runs r WHERE r.parked_on = wanted AND r.clog_id = lanes.clog_id AND r.line = lanes.line
        AND r.priority = lanes.priority
      ORDER BY r.parked_at, r.run_id LIMIT most) first);
END $$;

CREATE OR REPLACE FUNCTION ocean_set_limit(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  wanted text := a->>'key';
  asked bigint := (a->>'limit')::bigint;
  before bigint := coalesce((SELECT k.slots FROM ocean_keys k WHERE k.key = wanted), 1);
BEGIN
  INSERT INTO ocean_keys (key, slots, in_use, wakes) VALUES (wanted, asked, 0, 0)
  ON CONFLICT (key) DO UPDATE SET slots = excluded.slots;
  IF asked <> before THEN
    PERFORM ocean_append_event(now, 'key.limit_set',
      json_build_object('key', wanted, 'limit', asked, 'before', before)::text, NULL, NULL, a->>'actor');
  END IF;
  PERFORM ocean_settle_keys(now);
  PERFORM ocean_wake(wanted, asked, now);
  RETURN ocean_read_key(wanted);
END $$;
