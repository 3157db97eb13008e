-- Plain items in bulk: what many runs do at once and what changes nothing but their own rows is worked out one by one in
-- memory, by the same functions as ever, and written by a statement for each table. Most of what a statement costs is to
-- begin it. Of new runs there is nothing to work out: the statements say what they are.
--
-- A function here answers null, before it has written anything, if one of its items is not plain after all: then each is
-- done by itself. Rows are changed in the places where they were read (`ctid`), under the lock that they were read under: no
-- index knows a place, so there is no other plan than to go there. Where a row is looked for on the way it is one row that
-- is asked for, not whether there is any: for EXISTS the planner may read the whole table first, however that is forbidden.

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
    WHEN 'create_run' THEN ocean_create_plain(items, false, now)
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

-- The run with what its row says of when it is due. One that has ended never is, and need not be asked.
CREATE OR REPLACE FUNCTION ocean_timed(r runs) RETURNS runs LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF r.ended_at IS NOT NULL THEN
    r.due_at := NULL;
    r.last_call := false;
    RETURN r;
  END IF;
  r.due_at := ocean_due_at(r);
  r.last_call := ocean_is_last_call(r);
  RETURN r;
END $$;

-- New runs of clogs at home here, with nothing but an input. What `ocean_new_run`, `ocean_tell_creation` and
-- `ocean_append_input` make of such a one is said here for all of them at once, table by table. Their own rows may be
-- there already (`ocean_create_early`).
CREATE OR REPLACE FUNCTION ocean_create_plain(news jsonb[], is_early boolean, now bigint) RETURNS json[] LANGUAGE plpgsql AS $$
DECLARE
  cursor bigint := (SELECT c.last_value FROM ocean_cursor c);
BEGIN
  IF NOT ocean_are_at_home(news) THEN
    IF is_early THEN
      RAISE EXCEPTION 'a clog has changed while its runs waited for their turn';
    END IF;
    RETURN NULL;
  END IF;
  PERFORM setval('ocean_cursor', cursor + cardinality(news));
  INSERT INTO ocean_sessions (session_id, created_at) SELECT DISTINCT n->>'session_id', now FROM unnest(news) n
  ON CONFLICT DO NOTHING;
  IF NOT is_early THEN
    PERFORM ocean_insert_plain(news, now);
  END IF;
  INSERT INTO events (seq, ts, session_id, run_id, run_seq, clog_id, type, payload, actor, correlation_id)
  SELECT cursor + place, now, n->>'session_id', n->>'run_id', 1, n->>'clog_id', 'run.created',
    ocean_plain_creation_told(CASE WHEN n->>'input' IS NULL THEN 'idle' ELSE 'pending' END, (n->>'priority')::smallint),
    n->>'actor', coalesce(n->>'correlation_id', n->>'run_id')
  FROM unnest(news) WITH ORDINALITY told(n, place);
  INSERT INTO ocean_inbox (run_id, number, kind, body, actor, caused_by, available_at, created_at, event_seq)
  SELECT n->>'run_id', 1, 'created', n->>'input', n->>'actor', (n->>'run_id') || ':1', now, now, cursor + place
  FROM unnest(news) WITH ORDINALITY told(n, place) WHERE n->>'input' IS NOT NULL;
  -- All else that there is to say of them, their creators know.
  RETURN array_fill(json_build_object('answer', json_build_object('made_at', now)), ARRAY[cardinality(news)]);
END $$;

-- Whether somebody has all their clogs, and calls them himself.
CREATE OR REPLACE FUNCTION ocean_are_at_home(news jsonb[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN NOT EXISTS (SELECT 1 FROM unnest(news) given WHERE NOT EXISTS (
    SELECT 1 FROM ocean_clogs c WHERE c.clog_id = given->>'clog_id' AND NOT c.external));
END $$;

-- The rows that are theirs alone.
CREATE OR REPLACE FUNCTION ocean_insert_plain(news jsonb[], now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO runs (run_id, session_id, clog_id, correlation_id, priority, status, attempt, max_attempts, due_at, last_call,
    ready_at, lock_epoch, tick, tick_open, paused, event_count, inbox_count, pending_count, created_at, updated_at)
  SELECT n->>'run_id', n->>'session_id', n->>'clog_id', coalesce(n->>'correlation_id', n->>'run_id'),
    (n->>'priority')::smallint, CASE WHEN g.input IS NULL THEN 'idle' ELSE 'pending' END, 0,
    (n->'retry'->>'max_attempts')::bigint, CASE WHEN g.input IS NOT NULL THEN now END, false,
    CASE WHEN g.input IS NOT NULL THEN now END, 0, 0, false, false, 1, (g.input IS NOT NULL)::int,
    (g.input IS NOT NULL)::int, now, now
  FROM unnest(news) n, LATERAL (SELECT n->>'input' AS input OFFSET 0) g;
  PERFORM ocean_insert_details(news);
END $$;

-- What a group begins with, if that is plain creations, is written before it is the group's turn: nobody can know of these
-- runs yet, so nobody waits for them. Their sessions could be waited for: those are written in turn, and looked at by the
-- commit. Answers the runs written so.
CREATE OR REPLACE FUNCTION ocean_create_early(items jsonb, now bigint) RETURNS jsonb[] LANGUAGE plpgsql AS $$
DECLARE
  news jsonb[] := ocean_plain_stretch(items, 0);
BEGIN
  IF cardinality(news) < 2 OR NOT ocean_are_at_home(news) THEN
    RETURN '{}';
  END IF;
  SET CONSTRAINTS runs_session_id_fkey DEFERRED;
  PERFORM ocean_insert_plain(news, now);
  RETURN news;
EXCEPTION WHEN OTHERS THEN
  -- Whose fault it is will be found out when it is their turn.
  RETURN '{}';
END $$;

-- As if they had not been.
CREATE OR REPLACE FUNCTION ocean_take_back_early(news jsonb[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM runs r WHERE r.run_id = ANY (ARRAY(SELECT n->>'run_id' FROM unnest(news) n));
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
  is_over boolean;
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
      AND (SELECT true FROM runs child WHERE child.parent_run_id = c.a->>'run_id' LIMIT 1) IS NULL));
  IF cardinality(held) IS DISTINCT FROM cardinality(commits)
    OR EXISTS (
      SELECT 1 FROM unnest(commits) c, jsonb_array_elements(c->'effects'->'writes') w, LATERAL ocean_row(w->'at') s
      WHERE CASE WHEN w ? 'from' THEN s.value IS DISTINCT FROM w->>'from' ELSE s.version <> (w->>'version')::bigint END)
  THEN
    RETURN NULL;
  END IF;
  SELECT array_agg(i.numbers) INTO consumed FROM unnest(held) h, LATERAL (
    SELECT coalesce(jsonb_agg(i.number ORDER BY i.number), '[]') AS numbers FROM (SELECT i.number FROM ocean_inbox i
      WHERE i.run_id = h.run_id AND i.assigned_tick = h.tick AND i.consumed_tick IS NULL OFFSET 0) i) i;
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
    is_over := ocean_is_ended(r);
    has_ended := has_ended OR is_over;
    IF is_over OR r.status = 'waiting' THEN
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
      OR (given->>'signal_id' IS NOT NULL AND (SELECT true FROM ocean_inbox i
        WHERE i.run_id = given->>'run_id' AND i.signal_id = given->>'signal_id' LIMIT 1) IS NOT NULL)) THEN
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
