-- Plain signals in bulk: see plain.sql.

-- Delivers signals, several of which may be for the same run. Returns a receipt for each.
CREATE OR REPLACE FUNCTION ocean_signal_plain(signals jsonb[], now bigint) RETURNS json[] LANGUAGE plpgsql AS $$
DECLARE
  targets runs[];
  target_places tid[];
  target_by_id jsonb;
  target int;
  new_events events[] := '{}';
  new_inputs ocean_inbox[] := '{}';
  receipts json[] := '{}';
  cursor bigint := (SELECT c.last_value FROM ocean_cursor c);
  s jsonb;
  r runs;
  available_at bigint;
BEGIN
  SELECT array_agg(q.run), array_agg(q.place) INTO targets, target_places
  FROM (SELECT DISTINCT g.s->>'run_id' AS run_id FROM unnest(signals) g(s)) g,
    LATERAL (SELECT q AS run, q.ctid AS place FROM runs q WHERE q.run_id = g.run_id FOR UPDATE) q;
  target_by_id := (SELECT jsonb_object_agg((targets[place]).run_id, place) FROM generate_subscripts(targets, 1) place);
  IF EXISTS (
    SELECT 1 FROM unnest(signals) g(s),
      LATERAL (SELECT targets[(target_by_id->>(g.s->>'run_id'))::int] AS run OFFSET 0) q
    WHERE NOT ocean_is_plain_signal(q.run, g.s)
      OR (g.s->>'signal_id' IS NOT NULL AND (SELECT true FROM ocean_inbox i
        WHERE i.run_id = g.s->>'run_id' AND i.signal_id = g.s->>'signal_id' LIMIT 1) IS NOT NULL)) THEN
    RETURN NULL;
  END IF;
  FOREACH s IN ARRAY signals LOOP
    target := (target_by_id->>(s->>'run_id'))::int;
    r := targets[target];
    available_at := greatest((s->>'deliver_at')::bigint, now);
    r := ocean_input_arrived(r, available_at, now);
    cursor := cursor + 1;
    r.event_count := r.event_count + 1;
    r.inbox_count := r.inbox_count + 1;
    r.pending_count := r.pending_count + 1;
    new_events := new_events || ocean_event_row(r, cursor, ocean_origin(now, s->>'actor'), 'run.signalled',
      ocean_signal_payload(r.inbox_count, s, available_at, r.status));
    new_inputs := new_inputs || ocean_input_row(r, now, 'signal', s->>'body', available_at, s->>'actor',
      ocean_last_event(r), cursor, signal_id => s->>'signal_id', body_hash => s->>'body_hash', status_then => r.status);
    receipts := receipts || json_build_object('answer', json_build_array(r.run_id, r.inbox_count, r.status, cursor));
    targets[target] := ocean_with_due_time(r);
  END LOOP;
  PERFORM setval('ocean_cursor', cursor);
  INSERT INTO events SELECT * FROM unnest(new_events);
  INSERT INTO ocean_inbox SELECT * FROM unnest(new_inputs);
  PERFORM ocean_put_all(targets, target_places);
  RETURN receipts;
END $$;
