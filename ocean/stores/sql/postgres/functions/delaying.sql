-- Runs that start later than they are created: by a rate, or debounced.

-- Delays a new run by its rate or its debounce time. One whose token is free now starts at once.
CREATE OR REPLACE FUNCTION ocean_delayed_at_creation(r runs, n jsonb, now bigint) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  free_at bigint;
BEGIN
  IF n->>'rate' IS NOT NULL THEN
    free_at := ocean_promise(n->'rate', now);
    IF free_at > now THEN
      r := ocean_delayed(r, 'rate', n->'rate'->>'key', free_at, now);
    END IF;
  ELSIF n->>'debounce' IS NOT NULL AND n->>'dedupe_key' IS NOT NULL THEN
    r := ocean_delayed(r, 'debounce', n->>'dedupe_key', ocean_debounced_until(n->'debounce', r, now), now);
  END IF;
  RETURN r;
END $$;

-- Returns whether another creation can still change a debounced run: it was never claimed, and no end is due.
CREATE OR REPLACE FUNCTION ocean_is_debounced(r runs, now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN coalesce(r.delayed_by = 'debounce', false) AND ocean_kernel_end(r, now) IS NULL;
END $$;

CREATE OR REPLACE FUNCTION ocean_debounced_until(debounce jsonb, r runs, now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  -- Not before the run was created, by a clock that may have been ahead of this one: its input would not be available
  -- yet.
  RETURN least(greatest(now + (debounce->>'ms')::bigint, r.created_at),
    r.created_at + (debounce->>'max_ms')::bigint);
END $$;

-- Creates a debounced run again: everything but the id is replaced, and the start moves.
CREATE OR REPLACE FUNCTION ocean_debounce_again(r runs, n jsonb, queue text, now bigint) RETURNS runs
LANGUAGE plpgsql AS $$
BEGIN
  r := ocean_replace_keys(r, n, now);
  UPDATE runs SET priority = (n->>'priority')::smallint, max_attempts = (n->'retry'->>'max_attempts')::bigint,
    deadline_at = (n->>'deadline_at')::bigint, queue = ocean_debounce_again.queue,
    key_count = jsonb_array_length(n->'concurrency_keys')
  WHERE run_id = r.run_id;
  UPDATE ocean_run_details d SET body_hash = n->>'body_hash', retry = n->>'retry' WHERE d.run_id = r.run_id;
  DELETE FROM ocean_attributes b WHERE b.run_id = r.run_id;
  PERFORM ocean_put_attributes(r, n->'attributes');
  r := ocean_delayed(ocean_find(r.run_id), 'debounce', n->>'dedupe_key', ocean_debounced_until(n->'debounce', r, now), now);
  r := ocean_event(r, ocean_origin(now, n->>'actor'), 'run.debounced',
    json_build_object('status', r.status, 'wake_at', r.wake_at)::text);
  UPDATE ocean_inbox i SET body = n->>'input', actor = n->>'actor', caused_by = ocean_last_event(r),
    event_seq = currval('ocean_cursor')
  WHERE i.run_id = r.run_id AND i.number = 1 AND i.kind = 'created' AND i.assigned_tick IS NULL;
  PERFORM ocean_save(r);
  IF r.key_count > 0 THEN
    PERFORM ocean_settle_keys(now);
    r := ocean_find(r.run_id);
  END IF;
  RETURN r;
END $$;

-- Replaces the keys of a debounced run. It was never claimed and holds no slot, but it must be unparked while it still
-- has its old keys.
CREATE OR REPLACE FUNCTION ocean_replace_keys(r runs, n jsonb, now bigint) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  keys jsonb := (SELECT coalesce(jsonb_agg(jsonb_build_array(k.key, k.hold) ORDER BY k.place), '[]')
    FROM ocean_run_keys k WHERE k.run_id = r.run_id);
BEGIN
  IF keys = n->'concurrency_keys' THEN
    RETURN r;
  END IF;
  PERFORM ocean_save(ocean_delayed(r, 'debounce', n->>'dedupe_key', now + 1, now));
  PERFORM ocean_settle_keys(now);
  DELETE FROM ocean_run_keys k WHERE k.run_id = r.run_id;
  PERFORM ocean_insert_run_keys(r.run_id, n->'concurrency_keys');
  RETURN ocean_find(r.run_id);
END $$;
