-- Plain claims in bulk: see plain.sql.

-- Claims those of the chosen runs that are plain and that no other transaction has locked; the others are left to
-- another claim.
CREATE OR REPLACE FUNCTION ocean_claim_plain(chosen text[], ask jsonb, now bigint, OUT claims json[], OUT receipts json[])
LANGUAGE plpgsql AS $$
DECLARE
  taken runs[];
  run_places tid[];
BEGIN
  SELECT coalesce(array_agg(ocean_with_due_time(ocean_claimed(q.run, ask->>'instance_id',
    (ask->'clogs'->((q.run).clog_id)->>'lock_ms')::bigint, false, now))), '{}'), array_agg(q.place) INTO taken, run_places
  FROM unnest(chosen) c(id),
    LATERAL (SELECT q AS run, q.ctid AS place FROM runs q WHERE q.run_id = c.id FOR UPDATE SKIP LOCKED) q
  WHERE (q.run).due_at <= now AND ocean_is_plain_claim(q.run, now) AND ocean_next_call_at(q.run) <= now
    AND ask->'clogs' ? (q.run).clog_id AND ((q.run).ending IS NOT NULL
      OR NOT (SELECT p.paused FROM ocean_clogs p WHERE p.clog_id = (q.run).clog_id));
  PERFORM ocean_put_all(taken, run_places);
  UPDATE ocean_inbox i SET assigned_tick = due.tick FROM (
    SELECT t.tick, d.place FROM unnest(taken) t, LATERAL (
      SELECT i.ctid AS place FROM ocean_inbox i
      WHERE i.run_id = t.run_id AND i.assigned_tick IS NULL AND i.available_at <= now
      ORDER BY i.available_at, i.number
      LIMIT CASE WHEN (ask->'clogs'->(t.clog_id)->>'takes_all_inputs')::boolean THEN 256 ELSE 1 END) d
    WHERE t.ending IS NULL AND t.pending_count > 0) due
  WHERE i.ctid = due.place;
  INSERT INTO ocean_ticks (run_id, tick, reason, caused_by, calls, epoch, instance_id, version, first_claimed_at, claimed_at)
  SELECT t.run_id, t.tick, coalesce(t.ending, f.kind, 'wake'), f.caused_by, 1, t.lock_epoch, t.locked_by,
    ask->'clogs'->(t.clog_id)->>'version', now, now
  FROM unnest(taken) t LEFT JOIN LATERAL (
    SELECT i.kind, i.caused_by FROM ocean_inbox i
    WHERE i.run_id = t.run_id AND i.assigned_tick = t.tick AND i.consumed_tick IS NULL
    ORDER BY i.available_at, i.number LIMIT 1) f ON true;
  SELECT coalesce(array_agg(json_build_object(
      'shown', ocean_shown_with(t, d.details, b.attributes, NULL), 'epoch', t.lock_epoch,
      'lock_ms', t.lock_expires_at - now, 'tick', t.tick, 'call', 1, 'reason', coalesce(t.ending, i.kinds[1], 'wake'),
      'claimed_at', now, 'lock_expires_at', t.lock_expires_at, 'inputs', i.inputs, 'row', NULL)), '{}'),
    coalesce(array_agg(json_build_array(t.run_id, t.lock_epoch, t.lock_expires_at - now)), '{}')
  INTO claims, receipts
  FROM unnest(taken) t,
    LATERAL (SELECT d AS details FROM ocean_run_details d WHERE d.run_id = t.run_id OFFSET 0) d,
    LATERAL (SELECT json_agg(json_build_array(b.name, b.value) ORDER BY b.name) AS attributes
      FROM ocean_attributes b WHERE b.run_id = t.run_id) b,
    LATERAL (SELECT coalesce(json_agg(f), '[]') AS inputs, array_agg(f.kind) AS kinds FROM (
      SELECT i.number, i.kind, i.body, i.available_at, i.signal_id, i.timer, i.actor, i.caused_by, i.consumed_tick
      FROM ocean_inbox i WHERE i.run_id = t.run_id AND i.assigned_tick = t.tick AND i.consumed_tick IS NULL
      ORDER BY i.available_at, i.number) f) i;
END $$;
