-- Plain items in bulk: what many runs do at once and what changes nothing but their own rows is worked out one by one in
-- memory, by the same functions as ever, and written by a statement for each table. Most of what a statement costs is to
-- begin it.
--
-- A function here answers null, before it has written anything, if one of its items is not plain after all: then each is
-- done by itself. Rows are changed in the places where they were read (`ctid`), under the lock that they were read under: no
-- index knows a place, so there is no other plan than to go there.

-- The items from `first` on that may be plain, as far as their senders know, and have the same verb.
CREATE OR REPLACE FUNCTION ocean_plain_stretch(items jsonb, first int) RETURNS jsonb[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  verb text := items->first->>0;
  found jsonb[] := '{}';
BEGIN
  WHILE (items->first->1->>'is_plain')::boolean AND items->first->>2 IS NULL AND items->first->>0 = verb LOOP
    found := found || (items->first->1);
    first := first + 1;
  END LOOP;
  RETURN found;
END $$;

CREATE OR REPLACE FUNCTION ocean_perform_plain(verb text, items jsonb[], now bigint) RETURNS json[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN CASE verb
    WHEN 'create_run' THEN ocean_create_plain(items, now)
    WHEN 'commit_tick' THEN ocean_commit_plain(items, now)
    WHEN 'deliver_signal' THEN ocean_signal_plain(items, now)
  END;
END $$;

-- Everything that can change of runs that are there, each in the place where it was read; `ocean_timed` has seen them all.
CREATE OR REPLACE FUNCTION ocean_put_all(changed runs[], places tid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  written bigint;
BEGIN
  UPDATE runs q SET status = r.status, attempt = r.attempt, due_at = r.due_at, last_call = r.last_call,
    ready_at = r.ready_at, wake_at = r.wake_at, wait_until = r.wait_until, locked_by = r.locked_by,
    lock_expires_at = r.lock_expires_at, lock_epoch = r.lock_epoch, tick = r.tick, tick_open = r.tick_open,
    paused = r.paused, ending = r.ending, event_count = r.event_count, inbox_count = r.inbox_count,
    pending_count = r.pending_count, updated_at = r.updated_at, ended_at = r.ended_at, parked_on = r.parked_on,
    parked_at = r.parked_at, leased = r.leased, delayed_by = r.delayed_by, delay_key = r.delay_key
  FROM unnest(changed, places) r WHERE q.ctid = r.unnest;
  GET DIAGNOSTICS written = ROW_COUNT;
  IF written <> cardinality(changed) THEN
    RAISE EXCEPTION 'of % runs only % were where they had been read, each once', cardinality(changed), written;
  END IF;
END $$;

-- The run with what its row says of when it is due.
CREATE OR REPLACE FUNCTION ocean_timed(r runs) RETURNS runs LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  r.due_at := ocean_due_at(r);
  r.last_call := ocean_is_last_call(r);
  RETURN r;
END $$;

-- New runs of clogs at home here, with nothing but an input.
CREATE OR REPLACE FUNCTION ocean_create_plain(news jsonb[], now bigint) RETURNS json[] LANGUAGE plpgsql AS $$
DECLARE
  made runs[] := '{}';
  told events[] := '{}';
  inputs ocean_inbox[] := '{}';
  cursor bigint := (SELECT c.last_value FROM ocean_cursor c);
  n jsonb;
  r runs;
BEGIN
  IF EXISTS (SELECT 1 FROM unnest(news) given WHERE NOT EXISTS (
      SELECT 1 FROM ocean_clogs c WHERE c.clog_id = given->>'clog_id' AND NOT c.external)) THEN
    RETURN NULL;
  END IF;
  FOREACH n IN ARRAY news LOOP
    cursor := cursor + 1;
    r := ocean_new_run(n, NULL, now);
    r.event_count := r.event_count + 1;
    told := told || ocean_event_row(r, cursor, ocean_origin(now, n->>'actor'), 'run.created',
      ocean_creation_told(r, n));
    IF n->>'input' IS NOT NULL THEN
      r.inbox_count := 1;
      r.pending_count := 1;
      inputs := inputs || ocean_input_row(r, now, 'created', n->>'input', now, n->>'actor', ocean_last_event(r), cursor);
    END IF;
    made := made || r;
  END LOOP;
  PERFORM setval('ocean_cursor', cursor);
  INSERT INTO ocean_sessions (session_id, created_at) SELECT DISTINCT m.session_id, now FROM unnest(made) m
  ON CONFLICT DO NOTHING;
  PERFORM ocean_insert_all(made, news);
  INSERT INTO events SELECT * FROM unnest(told);
  IF cardinality(inputs) > 0 THEN
    INSERT INTO ocean_inbox SELECT * FROM unnest(inputs);
  END IF;
  -- All else that there is to say of them, their creators know.
  RETURN array_fill(json_build_object('answer', json_build_object('made_at', now)), ARRAY[cardinality(made)]);
END $$;

-- Ticks that emit events, write at most their own run's row, and move or end their run, which has no keys, no kin, no
-- end under way, no failure behind it and no turn, while nobody has a turn on its row.
CREATE OR REPLACE FUNCTION ocean_commit_plain(commits jsonb[], now bigint) RETURNS json[] LANGUAGE plpgsql AS $$
DECLARE
  held runs[];
  places tid[];
  ticks ocean_ticks[];
  ticks_at tid[];
  consumed jsonb[];
  told events[] := '{}';
  further ocean_inbox[] := '{}';
  has_written boolean := false;
  has_ended boolean := false;
  cursor bigint := (SELECT c.last_value FROM ocean_cursor c);
  numbers jsonb;
  a jsonb;
  each jsonb;
  r runs;
  before runs;
  t ocean_ticks;
  o ocean_origin;
  answered text;
  said text;
BEGIN
  IF EXISTS (SELECT 1 FROM ocean_turns) AND (
    EXISTS (SELECT 1 FROM unnest(commits) c WHERE EXISTS (
      SELECT 1 FROM ocean_turns turn WHERE turn.run_id = c->>'run_id'))
    OR EXISTS (SELECT 1 FROM unnest(commits) c, jsonb_array_elements(c->'effects'->'writes') w WHERE EXISTS (
      SELECT 1 FROM ocean_turns turn WHERE turn.row_key = w->>'key'))) THEN
    RETURN NULL;
  END IF;
  SELECT array_agg(q.run), array_agg(q.at), array_agg(k.tick), array_agg(k.at) INTO held, places, ticks, ticks_at
  FROM unnest(commits) c(a),
    LATERAL (SELECT q AS run, q.ctid AS at FROM runs q WHERE q.run_id = c.a->>'run_id' OFFSET 0) q,
    LATERAL (SELECT k AS tick, k.ctid AS at FROM ocean_ticks k
      WHERE k.run_id = c.a->>'run_id' AND k.tick = (c.a->>'tick')::bigint OFFSET 0) k
  WHERE ocean_is_held(q.run, (c.a->>'epoch')::bigint)
    AND (q.run).key_count = 0 AND (q.run).ending IS NULL AND (q.run).attempt = 0
    AND (c.a->'outcome'->>0 NOT IN ('done', 'failed') OR ((q.run).parent_run_id IS NULL
      AND NOT EXISTS (SELECT 1 FROM runs child WHERE child.parent_run_id = c.a->>'run_id')));
  IF cardinality(held) IS DISTINCT FROM cardinality(commits)
    OR EXISTS (
      SELECT 1 FROM unnest(commits) c, jsonb_array_elements(c->'effects'->'writes') w, LATERAL ocean_row(w->'at') s
      WHERE CASE WHEN w ? 'from' THEN s.value IS DISTINCT FROM w->>'from' ELSE s.version <> (w->>'version')::bigint END)
  THEN
    RETURN NULL;
  END IF;
  SELECT array_agg(i.numbers) INTO consumed FROM unnest(held) h, LATERAL (
    SELECT coalesce(jsonb_agg(i.number ORDER BY i.number), '[]') AS numbers FROM ocean_inbox i
    WHERE i.run_id = h.run_id AND i.assigned_tick = h.tick AND i.consumed_tick IS NULL) i;
  IF EXISTS (
    SELECT 1 FROM generate_subscripts(held, 1) place
    WHERE commits[place]->'outcome'->>0 IN ('done', 'failed')
      AND (held[place]).pending_count > jsonb_array_length(consumed[place])) THEN
    RETURN NULL;
  END IF;

  FOR place IN 1 .. cardinality(commits) LOOP
    a := commits[place];
    r := held[place];
    t := ticks[place];
    IF r.run_id <> a->>'run_id' THEN
      RAISE EXCEPTION 'runs were not read in the order in which they were named';
    END IF;
    answered := a->'outcome'->>0;
    said := a->'outcome'->>1;
    o := ROW(now, t.tick, (a->>'call')::bigint, NULL, t.caused_by)::ocean_origin;
    FOR number IN 0 .. coalesce(jsonb_array_length(a->'effects'->'events'), 0) - 1 LOOP
      each := a->'effects'->'events'->number;
      cursor := cursor + 1;
      r.event_count := r.event_count + 1;
      told := told || ocean_event_row(r, cursor, o, each->>0, each->>1, each->>2);
    END LOOP;
    has_written := has_written OR a->'effects' ? 'writes';
    numbers := consumed[place];
    r.pending_count := r.pending_count - jsonb_array_length(numbers);
    IF answered = 'continue' THEN
      r.inbox_count := r.inbox_count + 1;
      r.pending_count := r.pending_count + 1;
      further := further || ocean_input_row(r, now, 'continue', said, -1);
    END IF;
    before := r;
    r := ocean_settled(r, answered,
      CASE WHEN answered = 'wait' THEN coalesce(said::bigint, now + (a->'outcome'->>2)::bigint) END,
      CASE WHEN r.pending_count > 0 THEN ocean_next_input_at(r.run_id) END, now);
    cursor := cursor + 1;
    r.event_count := r.event_count + 1;
    told := told || ocean_event_row(r, cursor, o, 'tick.committed',
      ocean_commit_told(answered, r.status, t.reason, before.attempt, numbers, a));
    has_ended := has_ended OR ocean_is_ended(r);
    IF ocean_is_ended(r) OR r.status = 'waiting' THEN
      cursor := cursor + 1;
      r.event_count := r.event_count + 1;
      told := told || ocean_event_row(r, cursor, o, CASE WHEN r.status = 'waiting' THEN 'run.waiting' ELSE 'run.' || answered END,
        CASE answered WHEN 'done' THEN '{"output":' || said || '}' WHEN 'failed' THEN '{"error":' || said || '}'
          ELSE json_build_object('wake_at', r.wake_at)::text END);
    END IF;
    held[place] := ocean_timed(r);
  END LOOP;
  PERFORM setval('ocean_cursor', cursor);

  IF has_written THEN
    INSERT INTO ocean_storage_run AS s (run_id, clog_id, value, version)
    SELECT w->'at'->>3, w->'at'->>1, w->>'text', nextval('ocean_versions')
    FROM unnest(commits) c, jsonb_array_elements(c->'effects'->'writes') w
    ON CONFLICT (run_id, clog_id) DO UPDATE SET value = excluded.value, version = excluded.version;
  END IF;
  INSERT INTO events SELECT * FROM unnest(told);
  IF cardinality(further) > 0 THEN
    INSERT INTO ocean_inbox SELECT * FROM unnest(further);
  END IF;
  UPDATE ocean_inbox i SET consumed_tick = i.assigned_tick FROM (
    SELECT d.at FROM unnest(held) h, LATERAL (
      SELECT i.ctid AS at FROM ocean_inbox i
      WHERE i.run_id = h.run_id AND i.assigned_tick = h.tick AND i.consumed_tick IS NULL OFFSET 0) d) fixed
  WHERE i.ctid = fixed.at;
  UPDATE ocean_ticks k SET outcome = c.a->'outcome'->>0, committed_at = now
  FROM unnest(commits, ticks_at) c(a, at) WHERE k.ctid = c.at;
  PERFORM ocean_put_all(held, places);
  IF has_ended THEN
    UPDATE ocean_run_details d SET output = coalesce(CASE e.answered WHEN 'done' THEN e.said END, d.output),
      error = CASE e.answered WHEN 'failed' THEN e.said END
    FROM (SELECT c->'outcome'->>0 AS answered, c->'outcome'->>1 AS said, w.at FROM unnest(commits) c, LATERAL (
      SELECT w.ctid AS at FROM ocean_run_details w WHERE w.run_id = c->>'run_id' OFFSET 0) w
      WHERE c->'outcome'->>0 IN ('done', 'failed')) e
    WHERE d.ctid = e.at;
  END IF;
  RETURN ARRAY(
    SELECT json_build_object('answer', json_build_object('committed', (held[place]).status))
    FROM generate_subscripts(held, 1) place ORDER BY place);
END $$;

-- Signals that are new, to runs that live and have no keys; some of them perhaps to the same run.
CREATE OR REPLACE FUNCTION ocean_signal_plain(signals jsonb[], now bigint) RETURNS json[] LANGUAGE plpgsql AS $$
DECLARE
  met runs[];
  met_at tid[];
  places jsonb;
  told events[] := '{}';
  inputs ocean_inbox[] := '{}';
  receipts json[] := '{}';
  cursor bigint := (SELECT c.last_value FROM ocean_cursor c);
  s jsonb;
  r runs;
  available_at bigint;
BEGIN
  SELECT array_agg(q.run), array_agg(q.at) INTO met, met_at
  FROM (SELECT DISTINCT given->>'run_id' AS run_id FROM unnest(signals) given) g,
    LATERAL (SELECT q AS run, q.ctid AS at FROM runs q WHERE q.run_id = g.run_id FOR UPDATE) q;
  places := (SELECT jsonb_object_agg((met[place]).run_id, place) FROM generate_subscripts(met, 1) place
    WHERE NOT ocean_is_ended(met[place]) AND (met[place]).ending IS NULL AND (met[place]).key_count = 0);
  IF EXISTS (
    SELECT 1 FROM unnest(signals) given
    WHERE NOT coalesce(places ? (given->>'run_id'), false) OR (given->>'if_idle')::boolean
      OR (given->>'signal_id' IS NOT NULL AND EXISTS (SELECT 1 FROM ocean_inbox i
        WHERE i.run_id = given->>'run_id' AND i.signal_id = given->>'signal_id'))) THEN
    RETURN NULL;
  END IF;
  FOREACH s IN ARRAY signals LOOP
    r := met[(places->>(s->>'run_id'))::int];
    available_at := greatest((s->>'deliver_at')::bigint, now);
    r := ocean_input_arrived(r, available_at, now);
    cursor := cursor + 1;
    r.event_count := r.event_count + 1;
    r.inbox_count := r.inbox_count + 1;
    r.pending_count := r.pending_count + 1;
    told := told || ocean_event_row(r, cursor, ocean_origin(now, s->>'actor'), 'run.signalled',
      ocean_signal_told(r.inbox_count, s, available_at, r.status));
    inputs := inputs || ocean_input_row(r, now, 'signal', s->>'body', available_at, s->>'actor', ocean_last_event(r), cursor,
      signal_id => s->>'signal_id', body_hash => s->>'body_hash', status_then => r.status);
    receipts := receipts || json_build_object('answer', json_build_array(r.run_id, r.inbox_count, r.status, cursor));
    met[(places->>(s->>'run_id'))::int] := ocean_timed(r);
  END LOOP;
  PERFORM setval('ocean_cursor', cursor);
  INSERT INTO events SELECT * FROM unnest(told);
  INSERT INTO ocean_inbox SELECT * FROM unnest(inputs);
  PERFORM ocean_put_all(met, met_at);
  RETURN receipts;
END $$;
