-- Plain commits in bulk, in three steps: read and check, compute, write. See plain.sql.

CREATE OR REPLACE FUNCTION ocean_commit_plain(commits jsonb[], now bigint) RETURNS json[] LANGUAGE plpgsql AS $$
DECLARE
  before record;
  after record;
BEGIN
  before := ocean_read_plain_commits(commits);
  IF before.held IS NULL THEN
    RETURN NULL;
  END IF;
  after := ocean_settle_plain_commits(commits, before.held, before.ticks, before.consumed, now);
  PERFORM ocean_write_plain_commits(commits, after.settled, before.run_places, before.tick_places, after.new_events,
    after.new_inputs, now);
  RETURN ARRAY(
    SELECT json_build_object('answer', json_build_object('committed', r.status))
    FROM unnest(after.settled) WITH ORDINALITY r ORDER BY r.ordinality);
END $$;

-- Returns, in the order of the commits, the runs and ticks with the places of their rows, and the numbers of the inputs
-- that each tick consumes. Returns nulls if a commit is not plain.
CREATE OR REPLACE FUNCTION ocean_read_plain_commits(commits jsonb[], OUT held runs[], OUT run_places tid[],
  OUT ticks ocean_ticks[], OUT tick_places tid[], OUT consumed jsonb[]) LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM ocean_turns) AND (
    EXISTS (SELECT 1 FROM unnest(commits) a WHERE EXISTS (
      SELECT 1 FROM ocean_turns turn WHERE turn.run_id = a->>'run_id'))
    OR EXISTS (SELECT 1 FROM unnest(commits) a, jsonb_array_elements(a->'effects'->'writes') w WHERE EXISTS (
      SELECT 1 FROM ocean_turns turn WHERE turn.row_key = w->>'key'))) THEN
    RETURN;
  END IF;
  SELECT array_agg(q.run), array_agg(q.place), array_agg(k.tick), array_agg(k.place)
  INTO held, run_places, ticks, tick_places
  FROM unnest(commits) c(a),
    LATERAL (SELECT q AS run, q.ctid AS place FROM runs q WHERE q.run_id = c.a->>'run_id' OFFSET 0) q,
    LATERAL (SELECT k AS tick, k.ctid AS place FROM ocean_ticks k
      WHERE k.run_id = c.a->>'run_id' AND k.tick = (c.a->>'tick')::bigint OFFSET 0) k
  WHERE ocean_is_held(q.run, (c.a->>'epoch')::bigint) AND ocean_is_plain_commit(q.run, c.a)
    AND (c.a->'outcome'->>0 NOT IN ('done', 'failed')
      OR (SELECT true FROM runs child WHERE child.parent_run_id = c.a->>'run_id' LIMIT 1) IS NULL);
  IF cardinality(held) IS DISTINCT FROM cardinality(commits)
    OR EXISTS (
      SELECT 1 FROM unnest(commits) a, jsonb_array_elements(a->'effects'->'writes') w, LATERAL ocean_row(w->'at') s
      WHERE CASE WHEN w ? 'from' THEN s.value IS DISTINCT FROM w->>'from' ELSE s.version <> (w->>'version')::bigint END)
  THEN
    held := NULL;
    RETURN;
  END IF;
  SELECT array_agg(i.numbers) INTO consumed FROM unnest(held) h, LATERAL (
    SELECT coalesce(jsonb_agg(i.number ORDER BY i.number), '[]') AS numbers FROM (SELECT i.number FROM ocean_inbox i
      WHERE i.run_id = h.run_id AND i.assigned_tick = h.tick AND i.consumed_tick IS NULL OFFSET 0) i) i;
  IF EXISTS (
    SELECT 1 FROM generate_subscripts(held, 1) place
    WHERE commits[place]->'outcome'->>0 IN ('done', 'failed')
      AND (held[place]).pending_count > jsonb_array_length(consumed[place])) THEN
    held := NULL;
  END IF;
END $$;

-- Computes the runs after their commits, with their events and the inputs of those that continue. Writes nothing but
-- the cursor.
CREATE OR REPLACE FUNCTION ocean_settle_plain_commits(commits jsonb[], held runs[], ticks ocean_ticks[],
  consumed jsonb[], now bigint, OUT settled runs[], OUT new_events events[], OUT new_inputs ocean_inbox[])
LANGUAGE plpgsql AS $$
DECLARE
  cursor bigint := (SELECT c.last_value FROM ocean_cursor c);
  a jsonb;
  event jsonb;
  r runs;
  t ocean_ticks;
  o ocean_origin;
  attempt bigint;
  outcome text;
  value text;
BEGIN
  settled := '{}';
  new_events := '{}';
  new_inputs := '{}';
  FOR place IN 1 .. cardinality(commits) LOOP
    a := commits[place];
    r := held[place];
    t := ticks[place];
    IF r.run_id <> a->>'run_id' THEN
      RAISE EXCEPTION 'runs must be read in the order of their commits, got % instead of %', r.run_id, a->>'run_id';
    END IF;
    outcome := a->'outcome'->>0;
    value := a->'outcome'->>1;
    o := ROW(now, t.tick, (a->>'call')::bigint, NULL, t.caused_by)::ocean_origin;
    FOR number IN 0 .. coalesce(jsonb_array_length(a->'effects'->'events'), 0) - 1 LOOP
      event := a->'effects'->'events'->number;
      cursor := cursor + 1;
      r.event_count := r.event_count + 1;
      new_events := new_events || ocean_event_row(r, cursor, o, event->>0, event->>1, event->>2);
    END LOOP;
    r.pending_count := r.pending_count - jsonb_array_length(consumed[place]);
    IF outcome = 'continue' THEN
      r.inbox_count := r.inbox_count + 1;
      r.pending_count := r.pending_count + 1;
      new_inputs := new_inputs || ocean_input_row(r, now, 'continue', value, -1);
    END IF;
    attempt := r.attempt;
    r := ocean_settled(r, outcome,
      CASE WHEN outcome = 'wait' THEN coalesce(value::bigint, now + (a->'outcome'->>2)::bigint) END,
      CASE WHEN r.pending_count > 0 THEN ocean_next_input_at(r.run_id) END, now);
    cursor := cursor + 1;
    r.event_count := r.event_count + 1;
    new_events := new_events || ocean_event_row(r, cursor, o, 'tick.committed',
      ocean_commit_payload(outcome, r.status, t.reason, attempt, consumed[place], a));
    IF r.status IN ('done', 'failed', 'waiting') THEN
      cursor := cursor + 1;
      r.event_count := r.event_count + 1;
      new_events := new_events || ocean_event_row(r, cursor, o, 'run.' || r.status, CASE r.status
        WHEN 'done' THEN '{"output":' || value || '}' WHEN 'failed' THEN '{"error":' || value || '}'
        ELSE json_build_object('wake_at', r.wake_at)::text END);
    END IF;
    settled := settled || ocean_with_due_time(r);
  END LOOP;
  PERFORM setval('ocean_cursor', cursor);
END $$;

CREATE OR REPLACE FUNCTION ocean_write_plain_commits(commits jsonb[], settled runs[], run_places tid[], tick_places tid[],
  new_events events[], new_inputs ocean_inbox[], now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  has_writes boolean;
  has_ends boolean;
BEGIN
  SELECT bool_or(a->'effects' ? 'writes'), bool_or(a->'outcome'->>0 IN ('done', 'failed')) INTO has_writes, has_ends
  FROM unnest(commits) a;
  IF has_writes THEN
    INSERT INTO ocean_storage_run AS s (run_id, clog_id, value, version)
    SELECT w->'at'->>3, w->'at'->>1, w->>'text', nextval('ocean_versions')
    FROM unnest(commits) a, jsonb_array_elements(a->'effects'->'writes') w
    ON CONFLICT (run_id, clog_id) DO UPDATE SET value = excluded.value, version = excluded.version;
  END IF;
  INSERT INTO events SELECT * FROM unnest(new_events);
  IF cardinality(new_inputs) > 0 THEN
    INSERT INTO ocean_inbox SELECT * FROM unnest(new_inputs);
  END IF;
  UPDATE ocean_inbox i SET consumed_tick = i.assigned_tick FROM (
    SELECT d.place FROM unnest(settled) r, LATERAL (
      SELECT i.ctid AS place FROM ocean_inbox i
      WHERE i.run_id = r.run_id AND i.assigned_tick = r.tick AND i.consumed_tick IS NULL OFFSET 0) d) assigned
  WHERE i.ctid = assigned.place;
  UPDATE ocean_ticks k SET outcome = c.a->'outcome'->>0, committed_at = now
  FROM unnest(commits, tick_places) c(a, place) WHERE k.ctid = c.place;
  PERFORM ocean_put_all(settled, run_places);
  IF has_ends THEN
    UPDATE ocean_run_details d SET output = coalesce(CASE e.outcome WHEN 'done' THEN e.value END, d.output),
      error = CASE e.outcome WHEN 'failed' THEN e.value END
    FROM (SELECT a->'outcome'->>0 AS outcome, a->'outcome'->>1 AS value, w.place FROM unnest(commits) a, LATERAL (
      SELECT w.ctid AS place FROM ocean_run_details w WHERE w.run_id = a->>'run_id' OFFSET 0) w
      WHERE a->'outcome'->>0 IN ('done', 'failed')) e
    WHERE d.ctid = e.place;
  END IF;
END $$;
