-- Plain items in bulk: what many runs do at once and what changes nothing but their own rows is worked out one by one in
-- memory, by the same functions as ever, and written by a statement for each table. Most of what a statement costs is to
-- begin it.
--
-- A function here answers null, before it has written anything, if one of its items is not plain after all: then each is
-- done by itself. Rows are updated by INSERT … ON CONFLICT: it has no other plan than to look each up by its key.

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

-- Everything that can change of runs that are there.
CREATE OR REPLACE FUNCTION ocean_put_all(changed runs[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO runs AS q (run_id, session_id, clog_id, parent_run_id, correlation_id, priority, status, attempt, max_attempts,
    due_at, last_call, ready_at, wake_at, wait_until, deadline_at, locked_by, lock_expires_at, lock_epoch, life, tick,
    tick_open, paused, ending, event_count, inbox_count, pending_count, created_at, updated_at, ended_at, key_count,
    parked_on, parked_at, queue, leased, delayed_by, delay_key)
  SELECT r.run_id, r.session_id, r.clog_id, r.parent_run_id, r.correlation_id, r.priority, r.status, r.attempt,
    r.max_attempts, ocean_due_at(r), ocean_is_last_call(r), r.ready_at, r.wake_at, r.wait_until, r.deadline_at, r.locked_by,
    r.lock_expires_at, r.lock_epoch, r.life, r.tick, r.tick_open, r.paused, r.ending, r.event_count, r.inbox_count,
    r.pending_count, r.created_at, r.updated_at, r.ended_at, r.key_count, r.parked_on, r.parked_at, r.queue, r.leased,
    r.delayed_by, r.delay_key
  FROM unnest(changed) r
  ON CONFLICT (run_id) DO UPDATE SET status = excluded.status, attempt = excluded.attempt, due_at = excluded.due_at,
    last_call = excluded.last_call, ready_at = excluded.ready_at, wake_at = excluded.wake_at,
    wait_until = excluded.wait_until, locked_by = excluded.locked_by, lock_expires_at = excluded.lock_expires_at,
    lock_epoch = excluded.lock_epoch, tick = excluded.tick, tick_open = excluded.tick_open, paused = excluded.paused,
    ending = excluded.ending, event_count = excluded.event_count, inbox_count = excluded.inbox_count,
    pending_count = excluded.pending_count, updated_at = excluded.updated_at, ended_at = excluded.ended_at,
    parked_on = excluded.parked_on, parked_at = excluded.parked_at, leased = excluded.leased,
    delayed_by = excluded.delayed_by, delay_key = excluded.delay_key;
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
  INSERT INTO ocean_inbox SELECT * FROM unnest(inputs);
  RETURN ARRAY(
    SELECT json_build_object('answer', json_build_object('run', to_json(made[place]), 'details', json_build_object(
      'output', NULL, 'error', NULL, 'dedupe_key', NULL, 'retry_of', NULL), 'attributes', '[]'::json, 'keys', '[]'::json))
    FROM generate_subscripts(made, 1) place ORDER BY place);
END $$;

-- Ticks that emit events, write at most their own run's row, and move or end their run, which has no keys, no kin, no
-- end under way, no failure behind it and no turn, while nobody has a turn on its row.
CREATE OR REPLACE FUNCTION ocean_commit_plain(commits jsonb[], now bigint) RETURNS json[] LANGUAGE plpgsql AS $$
DECLARE
  held runs[];
  ticks ocean_ticks[];
  fixed ocean_inbox[];
  told events[] := '{}';
  further ocean_inbox[] := '{}';
  ended jsonb[] := '{}';
  consumed jsonb;
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
  SELECT array_agg(q.run ORDER BY c.place), array_agg(k.tick ORDER BY c.place) INTO held, ticks
  FROM unnest(commits) WITH ORDINALITY c(a, place),
    LATERAL (SELECT q AS run FROM runs q WHERE q.run_id = c.a->>'run_id' OFFSET 0) q,
    LATERAL (SELECT k AS tick FROM ocean_ticks k
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
  SELECT coalesce(array_agg(i.input), '{}') INTO fixed FROM unnest(held) h, LATERAL (
    SELECT i AS input FROM ocean_inbox i
    WHERE i.run_id = h.run_id AND i.assigned_tick = h.tick AND i.consumed_tick IS NULL OFFSET 0) i;
  consumed := coalesce((SELECT jsonb_object_agg(c.run_id, c.numbers) FROM (
    SELECT i.run_id, jsonb_agg(i.number ORDER BY i.number) AS numbers FROM unnest(fixed) i GROUP BY i.run_id) c), '{}');
  IF EXISTS (
    SELECT 1 FROM generate_subscripts(held, 1) place
    WHERE commits[place]->'outcome'->>0 IN ('done', 'failed') AND (held[place]).pending_count
      > coalesce(jsonb_array_length(consumed->((held[place]).run_id)), 0)) THEN
    RETURN NULL;
  END IF;

  FOR place IN 1 .. cardinality(commits) LOOP
    a := commits[place];
    r := held[place];
    t := ticks[place];
    answered := a->'outcome'->>0;
    said := a->'outcome'->>1;
    o := ROW(now, t.tick, (a->>'call')::bigint, NULL, t.caused_by)::ocean_origin;
    FOR number IN 0 .. coalesce(jsonb_array_length(a->'effects'->'events'), 0) - 1 LOOP
      each := a->'effects'->'events'->number;
      cursor := cursor + 1;
      r.event_count := r.event_count + 1;
      told := told || ocean_event_row(r, cursor, o, each->>0, each->>1, each->>2);
    END LOOP;
    numbers := coalesce(consumed->(r.run_id), '[]');
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
    IF ocean_is_ended(r) THEN
      ended := ended || jsonb_build_array(r.run_id, answered, said);
    END IF;
    IF ocean_is_ended(r) OR r.status = 'waiting' THEN
      cursor := cursor + 1;
      r.event_count := r.event_count + 1;
      told := told || ocean_event_row(r, cursor, o, CASE WHEN r.status = 'waiting' THEN 'run.waiting' ELSE 'run.' || answered END,
        CASE answered WHEN 'done' THEN '{"output":' || said || '}' WHEN 'failed' THEN '{"error":' || said || '}'
          ELSE json_build_object('wake_at', r.wake_at)::text END);
    END IF;
    t.outcome := answered;
    t.committed_at := now;
    ticks[place] := t;
    held[place] := r;
  END LOOP;
  PERFORM setval('ocean_cursor', cursor);

  INSERT INTO ocean_storage_run AS s (run_id, clog_id, value, version)
  SELECT w->'at'->>3, w->'at'->>1, w->>'text', nextval('ocean_versions')
  FROM unnest(commits) c, jsonb_array_elements(c->'effects'->'writes') w
  ON CONFLICT (run_id, clog_id) DO UPDATE SET value = excluded.value, version = excluded.version;
  INSERT INTO events SELECT * FROM unnest(told);
  INSERT INTO ocean_inbox SELECT * FROM unnest(further);
  INSERT INTO ocean_inbox AS i SELECT * FROM unnest(fixed)
  ON CONFLICT (run_id, number) DO UPDATE SET consumed_tick = excluded.assigned_tick;
  INSERT INTO ocean_ticks AS k SELECT * FROM unnest(ticks)
  ON CONFLICT (run_id, tick) DO UPDATE SET outcome = excluded.outcome, committed_at = excluded.committed_at;
  PERFORM ocean_put_all(held);
  INSERT INTO ocean_run_details AS d (run_id, body_hash, retry, notify_parent, on_parent_end, output, error)
  SELECT e->>0, '', '', false, 'live', CASE e->>1 WHEN 'done' THEN e->>2 END, CASE e->>1 WHEN 'failed' THEN e->>2 END
  FROM unnest(ended) e
  ON CONFLICT (run_id) DO UPDATE SET output = coalesce(excluded.output, d.output), error = excluded.error;
  RETURN ARRAY(
    SELECT json_build_object('answer', json_build_object('committed', (held[place]).status))
    FROM generate_subscripts(held, 1) place ORDER BY place);
END $$;

-- Signals that are new, to runs that live and have no keys; some of them perhaps to the same run.
CREATE OR REPLACE FUNCTION ocean_signal_plain(signals jsonb[], now bigint) RETURNS json[] LANGUAGE plpgsql AS $$
DECLARE
  met runs[];
  places jsonb;
  told events[] := '{}';
  inputs ocean_inbox[] := '{}';
  receipts json[] := '{}';
  cursor bigint := (SELECT c.last_value FROM ocean_cursor c);
  s jsonb;
  r runs;
  available_at bigint;
BEGIN
  SELECT array_agg(q.run) INTO met
  FROM (SELECT DISTINCT given->>'run_id' AS run_id FROM unnest(signals) given) g,
    LATERAL (SELECT q AS run FROM runs q WHERE q.run_id = g.run_id FOR UPDATE) q;
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
    met[(places->>(s->>'run_id'))::int] := r;
  END LOOP;
  PERFORM setval('ocean_cursor', cursor);
  INSERT INTO events SELECT * FROM unnest(told);
  INSERT INTO ocean_inbox SELECT * FROM unnest(inputs);
  PERFORM ocean_put_all(met);
  RETURN receipts;
END $$;

-- Take those of the chosen that nobody else has locked, and that are plain. The others are left to another claim.
CREATE OR REPLACE FUNCTION ocean_claim_plain(chosen text[], ask jsonb, now bigint) RETURNS json[] LANGUAGE plpgsql AS $$
DECLARE
  taken runs[];
  fixed ocean_inbox[];
  inputs jsonb;
BEGIN
  SELECT coalesce(array_agg(ocean_claimed(q.run, ask->>'instance_id', (ask->'clogs'->((q.run).clog_id)->>'lock_ms')::bigint,
    false, now) ORDER BY c.place), '{}') INTO taken
  FROM unnest(chosen) WITH ORDINALITY c(id, place),
    LATERAL (SELECT q AS run FROM runs q WHERE q.run_id = c.id FOR UPDATE SKIP LOCKED) q
  WHERE (q.run).due_at <= now AND ocean_is_plain(q.run, now) AND ocean_next_call_at(q.run) <= now
    AND ask->'clogs' ? (q.run).clog_id AND ((q.run).ending IS NOT NULL
      OR NOT (SELECT p.paused FROM ocean_clogs p WHERE p.clog_id = (q.run).clog_id));
  SELECT coalesce(array_agg(ocean_assigned(i.input, t.tick)), '{}') INTO fixed FROM unnest(taken) t, LATERAL (
    SELECT i AS input FROM ocean_inbox i
    WHERE i.run_id = t.run_id AND i.assigned_tick IS NULL AND i.available_at <= now
    ORDER BY i.available_at, i.number
    LIMIT CASE WHEN (ask->'clogs'->(t.clog_id)->>'takes_all_inputs')::boolean THEN 256 ELSE 1 END) i
  WHERE t.ending IS NULL AND t.pending_count > 0;
  inputs := coalesce((SELECT jsonb_object_agg(g.run_id, g.inputs) FROM (
    SELECT i.run_id, jsonb_agg(to_jsonb(i) ORDER BY i.available_at, i.number) AS inputs
    FROM unnest(fixed) i GROUP BY i.run_id) g), '{}');

  INSERT INTO ocean_inbox AS i SELECT * FROM unnest(fixed)
  ON CONFLICT (run_id, number) DO UPDATE SET assigned_tick = excluded.assigned_tick;
  INSERT INTO ocean_ticks (run_id, tick, reason, caused_by, calls, epoch, instance_id, version, first_claimed_at, claimed_at)
  SELECT t.run_id, t.tick, coalesce(t.ending, inputs->(t.run_id)->0->>'kind', 'wake'), inputs->(t.run_id)->0->>'caused_by',
    1, t.lock_epoch, t.locked_by, ask->'clogs'->(t.clog_id)->>'version', now, now
  FROM unnest(taken) t;
  PERFORM ocean_put_all(taken);
  RETURN ARRAY(
    SELECT json_build_object('shown', ocean_shown(t), 'epoch', t.lock_epoch, 'lock_ms', t.lock_expires_at - now,
      'tick', t.tick, 'call', 1, 'reason', coalesce(t.ending, inputs->(t.run_id)->0->>'kind', 'wake'), 'claimed_at', now,
      'lock_expires_at', t.lock_expires_at, 'inputs', coalesce(inputs->(t.run_id), '[]'), 'row', NULL)
    FROM unnest(taken) t);
END $$;

CREATE OR REPLACE FUNCTION ocean_assigned(i ocean_inbox, tick bigint) RETURNS ocean_inbox LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  i.assigned_tick := tick;
  RETURN i;
END $$;
