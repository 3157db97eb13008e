-- Creating runs, and finding the run that an id or a dedupe key has created before.

CREATE OR REPLACE FUNCTION ocean_create_run(n jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_find_or_create(n, now, NULL);
BEGIN
  RETURN ocean_shown(r);
END $$;

-- Creates the run that repeats a failed one, or returns the one that was created before.
CREATE OR REPLACE FUNCTION ocean_retry_run(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  failed runs := ocean_run(a->>'run_id');
  n jsonb := a->'new';
  again runs := ocean_find(n->>'run_id');
BEGIN
  IF again.run_id IS NOT NULL THEN
    IF (SELECT d.retry_of FROM ocean_run_details d WHERE d.run_id = again.run_id) IS DISTINCT FROM failed.run_id THEN
      PERFORM ocean_refuse('retry_id_taken', json_build_object('run_id', failed.run_id, 'new_id', again.run_id));
    END IF;
    RETURN ocean_shown(again);
  ELSIF EXISTS (SELECT 1 FROM events e WHERE e.run_id = n->>'run_id') THEN
    PERFORM ocean_refuse('retry_deleted', json_build_object('run_id', failed.run_id, 'new_id', n->'run_id'));
  END IF;
  again := ocean_find_or_create(n, now, ocean_last_event(failed));
  RETURN ocean_shown(again);
END $$;

-- Creates a run, or returns the one that the same id or dedupe key has created before.
CREATE OR REPLACE FUNCTION ocean_find_or_create(n jsonb, now bigint, caused_by text) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  clog ocean_clogs;
  earlier runs;
  queue text;
  r runs;
BEGIN
  SELECT * INTO clog FROM ocean_clogs c WHERE c.clog_id = n->>'clog_id';
  IF clog.clog_id IS NULL THEN
    PERFORM ocean_refuse_unknown_clog(n->>'clog_id');
  END IF;
  earlier := ocean_earlier_run(n, now);
  IF earlier.run_id IS NOT NULL AND (n->>'debounce' IS NULL OR NOT ocean_is_debounced(earlier, now)) THEN
    RETURN earlier;
  END IF;
  IF (n->>'deadline_at')::bigint <= now THEN
    PERFORM ocean_refuse('deadline_passed', json_build_object('deadline_at', n->'deadline_at', 'now', now));
  END IF;
  queue := ocean_queue_of(n, clog);
  IF earlier.run_id IS NOT NULL THEN
    RETURN ocean_debounce_again(earlier, n, queue, now);
  END IF;
  PERFORM ocean_add_session(n->>'session_id', now);
  r := ocean_insert_run(n, queue, now);
  r := ocean_log_creation(r, n, ocean_origin(now, n->>'actor', caused_by));
  IF r.key_count > 0 THEN
    -- The creator's result includes whether a full concurrency key has parked the run.
    PERFORM ocean_note_unsettled(r.run_id, NULL);
    PERFORM ocean_settle_keys(now);
    r := ocean_find(r.run_id);
  END IF;
  RETURN r;
END $$;

CREATE OR REPLACE FUNCTION ocean_log_creation(r runs, n jsonb, o ocean_origin) RETURNS runs LANGUAGE plpgsql AS $$
BEGIN
  r := ocean_event(r, o, 'run.created', ocean_creation_payload(r, n));
  IF n->>'input' IS NOT NULL THEN
    r := ocean_append_input(r, o.now, 'created', n->>'input', o.now, o.actor, ocean_last_event(r),
      currval('ocean_cursor'));
  END IF;
  RETURN r;
END $$;

CREATE OR REPLACE FUNCTION ocean_creation_payload(r runs, n jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  payload jsonb;
BEGIN
  IF r.parent_run_id IS NULL AND r.delayed_by IS NULL AND n->>'retry_of' IS NULL THEN
    RETURN ocean_plain_creation_payload(r.status, r.priority);
  END IF;
  payload := jsonb_build_object('status', r.status, 'parent_run_id', r.parent_run_id, 'priority', r.priority);
  IF r.delayed_by IS NOT NULL THEN
    payload := payload
      || jsonb_build_object('delayed_by', r.delayed_by, 'delay_key', r.delay_key, 'wake_at', r.wake_at);
  END IF;
  IF n->>'retry_of' IS NOT NULL THEN
    payload := payload || jsonb_build_object('retry_of', n->>'retry_of');
  END IF;
  RETURN payload::text;
END $$;

-- Concatenated as text: nothing in it needs quoting, and building JSON takes several times as long.
CREATE OR REPLACE FUNCTION ocean_plain_creation_payload(status text, priority smallint) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT '{"status":"' || status || '","parent_run_id":null,"priority":' || priority::text || '}'
$$;

-- Returns the run that the same id or dedupe key has created before, or null.
CREATE OR REPLACE FUNCTION ocean_earlier_run(n jsonb, now bigint) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_find(n->>'run_id');
  holder record;
BEGIN
  IF r.run_id IS NOT NULL THEN
    IF (SELECT d.body_hash FROM ocean_run_details d WHERE d.run_id = r.run_id) IS DISTINCT FROM n->>'body_hash' THEN
      PERFORM ocean_refuse('run_exists', json_build_object('run_id', r.run_id));
    END IF;
    RETURN r;
  END IF;
  IF n->>'dedupe_key' IS NULL THEN
    RETURN NULL;
  END IF;
  holder := ocean_holder_of_key(n->>'clog_id', n->>'session_id', n->>'dedupe_key', now);
  IF holder.run_id IS NULL THEN
    RETURN NULL;
  END IF;
  r := ocean_find(holder.run_id);
  IF holder.body_hash <> n->>'body_hash' AND (n->>'debounce' IS NULL OR NOT ocean_is_debounced(r, now)) THEN
    PERFORM ocean_refuse('dedupe_key_reused', json_build_object('dedupe_key', n->'dedupe_key', 'run_id', r.run_id));
  END IF;
  RETURN r;
END $$;

CREATE OR REPLACE FUNCTION ocean_queue_of(n jsonb, clog ocean_clogs) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  IF clog.external THEN
    RETURN coalesce(n->>'queue', 'default');
  END IF;
  IF n->>'queue' IS NOT NULL AND n->>'retry_of' IS NULL THEN
    PERFORM ocean_refuse('not_external', json_build_object('clog_id', clog.clog_id));
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ocean_insert_run(n jsonb, queue text, now bigint) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_new_run(n, queue, now);
  inputs int := (n->>'input' IS NOT NULL)::int;
BEGIN
  -- Its first event and its input are already counted, so that the row is written once.
  INSERT INTO runs (run_id, session_id, clog_id, parent_run_id, correlation_id, priority, status, attempt, max_attempts,
    due_at, last_call, ready_at, wake_at, deadline_at, lock_epoch, life, tick, tick_open, paused, event_count, inbox_count,
    pending_count, created_at, updated_at, key_count, queue, leased, delayed_by, delay_key)
  VALUES (r.run_id, r.session_id, r.clog_id, r.parent_run_id, r.correlation_id, r.priority, r.status, r.attempt,
    r.max_attempts, ocean_due_at(r), false, r.ready_at, r.wake_at, r.deadline_at, r.lock_epoch, r.life, r.tick, false, false,
    r.event_count + 1, inputs, inputs, r.created_at, r.updated_at, r.key_count, r.queue, false, r.delayed_by, r.delay_key);
  PERFORM ocean_insert_details(ARRAY[n]);
  IF n->'concurrency_keys' <> '[]' THEN
    PERFORM ocean_insert_run_keys(r.run_id, n->'concurrency_keys');
  END IF;
  IF n->'attributes' <> '[]' THEN
    PERFORM ocean_put_attributes(r, n->'attributes');
  END IF;
  IF n->>'dedupe_key' IS NOT NULL THEN
    PERFORM ocean_hold_dedupe_key(n, now);
  END IF;
  RETURN r;
END $$;

-- Returns the run as it is inserted, without its first event and its input.
CREATE OR REPLACE FUNCTION ocean_new_run(n jsonb, queue text, now bigint) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  r runs;
  seen bigint;
  has_input boolean := n->>'input' IS NOT NULL;
BEGIN
  r.run_id := n->>'run_id';
  r.session_id := n->>'session_id';
  r.clog_id := n->>'clog_id';
  r.parent_run_id := n->>'parent_run_id';
  r.correlation_id := coalesce(n->>'correlation_id',
    CASE WHEN r.parent_run_id IS NOT NULL THEN (SELECT p.correlation_id FROM runs p WHERE p.run_id = r.parent_run_id) END,
    r.run_id);
  r.priority := (n->>'priority')::smallint;
  r.status := CASE WHEN has_input THEN 'pending' ELSE 'idle' END;
  r.attempt := 0;
  r.max_attempts := (n->'retry'->>'max_attempts')::bigint;
  r.ready_at := CASE WHEN has_input THEN now END;
  r.deadline_at := (n->>'deadline_at')::bigint;
  r.life := 0;
  r.tick := 0;
  r.event_count := 0;
  IF (n->>'is_id_given')::boolean THEN
    SELECT max(e.run_seq), coalesce(max(e.tick), 0) INTO seen, r.tick FROM events e WHERE e.run_id = r.run_id;
    r.event_count := coalesce(seen, 0);
    -- An id that was used before may have a lock holder that does not know of the end: no earlier epoch may match
    -- again, nor any idempotency key of its ticks. The cursor of the log has risen at least as often as any epoch.
    IF seen IS NOT NULL OR (SELECT f.seq > 0 FROM ocean_log_floor f) THEN
      r.life := (SELECT last_value + 1 FROM ocean_cursor);
    END IF;
  END IF;
  r.lock_epoch := r.life;
  r.tick_open := false;
  r.paused := false;
  r.leased := false;
  r.end_attempt := 0;
  r.end_incomplete := false;
  r.inbox_count := 0;
  r.pending_count := 0;
  r.created_at := now;
  r.updated_at := now;
  r.key_count := coalesce(jsonb_array_length(n->'concurrency_keys'), 0);
  r.queue := queue;
  RETURN ocean_delayed_at_creation(r, n, now);
END $$;

-- Inserts the wide half of new runs.
CREATE OR REPLACE FUNCTION ocean_insert_details(new_runs jsonb[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO ocean_run_details (run_id, body_hash, retry, notify_parent, on_parent_end, dedupe_key, retry_of, rate)
  SELECT n->>'run_id', n->>'body_hash', n->>'retry', (n->>'notify_parent')::boolean, n->>'on_parent_end', n->>'dedupe_key',
    n->>'retry_of', n->>'rate_kept'
  FROM unnest(new_runs) n;
END $$;

CREATE OR REPLACE FUNCTION ocean_insert_run_keys(id text, keys jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO ocean_run_keys (run_id, key, place, hold, is_held)
  SELECT id, k.value->>0, k.place - 1, k.value->>1, false FROM jsonb_array_elements(keys) WITH ORDINALITY k(value, place);
END $$;

-- Sets attributes: [[name, sort key, value], …]. One without a value is cleared.
CREATE OR REPLACE FUNCTION ocean_put_attributes(r runs, attributes jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM ocean_attributes b USING jsonb_array_elements(attributes) a
  WHERE b.run_id = r.run_id AND b.name = a->>0 AND a->>2 IS NULL;
  INSERT INTO ocean_attributes (run_id, name, clog_id, sort_key, value, created_at)
  SELECT r.run_id, a->>0, r.clog_id, a->>1, a->>2, r.created_at FROM jsonb_array_elements(attributes) a
  WHERE a->>2 IS NOT NULL
  ON CONFLICT (run_id, name) DO UPDATE SET sort_key = excluded.sort_key, value = excluded.value;
END $$;
