-- A signal to an idle or waiting run while a process waits for work: the run is claimed in the same step, and its row
-- is written once. Its state and its events come from the functions that also do the two steps one after another.

-- Delivers a signal and claims its run. Returns nulls, before anything is written, if there is anything else to do.
CREATE OR REPLACE FUNCTION ocean_signal_and_claim(s jsonb, ask jsonb, now bigint, OUT answer json, OUT claims json[],
  OUT receipts json[]) LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_find(s->>'run_id');
  terms jsonb := ask->'clogs'->(r.clog_id);
  e events;
  i ocean_inbox;
  t ocean_ticks;
BEGIN
  IF terms IS NULL OR ask->'queues' <> '[]' OR r.status NOT IN ('idle', 'waiting') OR r.paused
    OR (s->>'deliver_at')::bigint > now OR ((s->>'if_idle')::boolean AND r.status <> 'idle') THEN
    RETURN;
  END IF;
  r := ocean_input_arrived(r, now, now);
  IF NOT ocean_is_plain_claim(r, now) OR ocean_earlier_signal(r.run_id, s) IS NOT NULL
    OR NOT ocean_is_claim_unopposed(r.clog_id, ask, now) THEN
    RETURN;
  END IF;
  r.event_count := r.event_count + 1;
  r.inbox_count := r.inbox_count + 1;
  r.pending_count := r.pending_count + 1;
  e := ocean_event_row(r, nextval('ocean_cursor'), ocean_origin(now, s->>'actor'), 'run.signalled',
    ocean_signal_payload(r.inbox_count, s, now, r.status));
  i := ocean_input_row(r, now, 'signal', s->>'body', now, s->>'actor', ocean_last_event(r), e.seq,
    signal_id => s->>'signal_id', body_hash => s->>'body_hash', status_then => r.status);
  answer := json_build_array(r.run_id, r.inbox_count, r.status, e.seq);
  r := ocean_claimed(r, ask->>'instance_id', (terms->>'lock_ms')::bigint, false, now);
  i.assigned_tick := r.tick;
  WITH logged AS (INSERT INTO events VALUES (e.*)), arrived AS (INSERT INTO ocean_inbox VALUES (i.*))
  INSERT INTO ocean_ticks (run_id, tick, reason, caused_by, calls, epoch, instance_id, version, first_claimed_at, claimed_at)
  VALUES (r.run_id, r.tick, i.kind, i.caused_by, 1, r.lock_epoch, r.locked_by, terms->>'version', now, now)
  RETURNING * INTO t;
  PERFORM ocean_put(r);
  claims := ARRAY[ocean_claim_json(r, t, json_build_array(i), (terms->>'lock_ms')::bigint)];
  receipts := ARRAY[json_build_array(r.run_id, r.lock_epoch, terms->'lock_ms')];
END $$;

-- Returns whether nothing is overdue, no other run that `ask` includes is due, and the clog is not paused.
CREATE OR REPLACE FUNCTION ocean_is_claim_unopposed(clog text, ask jsonb, now bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN NOT ocean_is_anything_overdue(now) AND NOT EXISTS (SELECT 1 FROM ocean_due(ask, '{}', 1, now))
    AND EXISTS (SELECT 1 FROM ocean_clogs c WHERE c.clog_id = clog AND NOT c.paused);
END $$;
