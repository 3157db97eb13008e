-- Claiming: choosing due runs, locking them, and assigning the inputs of their ticks.
--
-- A plain claim writes no event and needs no slot of a key: it takes rows that no other transaction has locked, and
-- never waits. Everything else that a claim finds to do (overdue ends, a tick that was begun before, concurrency keys)
-- it does under the writers' lock, which it takes before any row.

CREATE OR REPLACE FUNCTION ocean_claim(token text, ask jsonb, must_notify boolean) RETURNS json
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  now bigint := ocean_now();
  has_lock boolean := ask->>'run_id' IS NOT NULL;
  seen record;
  made record;
BEGIN
  IF ocean_needs_plan_settings() THEN
    RETURN ocean_claim_planned(token, ask, must_notify);
  END IF;
  IF ask ? 'lease' THEN
    ask := ocean_lease_ask(ask);
    IF ask ? 'refused' THEN
      RETURN ask;
    END IF;
  END IF;
  IF has_lock AND NOT ocean_is_worth_claiming(ask, now) THEN
    RETURN '{"claims": [], "again": false}';
  ELSIF has_lock THEN
    PERFORM ocean_lock();
    now := ocean_now();
    made := ocean_claim_named(ask, now);
  ELSE
    seen := ocean_candidates(ask, '{}', (ask->>'limit')::bigint, now);
    has_lock := ocean_is_anything_overdue(now) OR NOT seen.are_plain;
    IF has_lock THEN
      PERFORM ocean_lock();
      now := ocean_now();
      PERFORM ocean_process_all_overdue(now);
      seen := ocean_candidates(ask, '{}', (ask->>'limit')::bigint, now);
    END IF;
    made := ocean_claim_due(ask, seen.urgent, seen.aged, seen.are_plain, has_lock, now);
  END IF;
  PERFORM ocean_settle_keys(now);
  PERFORM ocean_store_result(token, to_json(made.receipts), has_lock AND must_notify);
  RETURN json_build_object('now', now, 'claims', to_json(made.claims),
    'again', has_lock AND cardinality(made.claims) = 0 AND pg_current_xact_id_if_assigned() IS NOT NULL);
END $$;

-- Claims what is due after a group of changes, under the same writers' lock.
CREATE OR REPLACE FUNCTION ocean_claim_after_write(ask jsonb, now bigint, OUT claims json[], OUT receipts json[])
LANGUAGE plpgsql AS $$
DECLARE
  seen record;
BEGIN
  IF ocean_is_anything_overdue(now) THEN
    PERFORM ocean_process_all_overdue(now);
  END IF;
  seen := ocean_candidates(ask, '{}', (ask->>'limit')::bigint, now);
  SELECT * INTO claims, receipts FROM ocean_claim_due(ask, seen.urgent, seen.aged, seen.are_plain, true, now);
  PERFORM ocean_settle_keys(now);
END $$;

-- Returns the claims of a statement whose result was lost, as far as their locks still hold; null if the statement was
-- not committed, and then it never will be.
CREATE OR REPLACE FUNCTION ocean_settle_claim(token text) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  stored json := ocean_settle(token);
  claims json := ocean_claims_from_receipts(stored);
BEGIN
  IF stored IS NULL THEN
    RETURN NULL;
  END IF;
  -- There are none if it only ended overdue runs, or if other processes hold them by now: another claim may find work.
  RETURN json_build_object('claims', coalesce(claims, '[]'), 'again', claims IS NULL);
END $$;

-- Returns the result of a group whose result was lost, with its claims as far as their locks still hold; or null.
CREATE OR REPLACE FUNCTION ocean_settle_write(token text) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  stored json := ocean_settle(token);
BEGIN
  RETURN CASE WHEN stored IS NOT NULL THEN json_build_object('now', stored->'now', 'changed', stored->'changed',
    'results', stored->'results', 'claims', coalesce(ocean_claims_from_receipts(stored->'receipts'), '[]')) END;
END $$;

CREATE OR REPLACE FUNCTION ocean_claims_from_receipts(receipts json) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT json_agg(ocean_held_claim(r, (k.value->>2)::bigint) ORDER BY k.place)
    FROM json_array_elements(receipts) WITH ORDINALITY k(value, place),
      LATERAL (SELECT * FROM runs q WHERE q.run_id = k.value->>0 OFFSET 0) r
    WHERE ocean_is_held(r, (k.value->>1)::bigint));
END $$;

CREATE OR REPLACE FUNCTION ocean_is_anything_overdue(now bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN EXISTS (SELECT 1 FROM runs WHERE deadline_at <= now AND ended_at IS NULL AND ending IS NULL)
    OR EXISTS (SELECT 1 FROM runs WHERE last_call AND lock_expires_at <= now)
    OR EXISTS (SELECT 1 FROM runs WHERE leased AND NOT paused AND lock_expires_at <= now);
END $$;

CREATE OR REPLACE FUNCTION ocean_process_all_overdue(now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  id text;
BEGIN
  -- Among runs with the same deadline, parents come first: the end of a parent is the cause of the ends of its
  -- children.
  FOR id IN SELECT run_id FROM (SELECT * FROM runs WHERE deadline_at <= now AND ended_at IS NULL AND ending IS NULL
      ORDER BY deadline_at LIMIT 100) d
    ORDER BY deadline_at, parent_run_id IS NOT NULL, created_at, run_id LOOP
    PERFORM ocean_process_overdue(ocean_find(id), now);
  END LOOP;
  PERFORM ocean_settle_keys(now);
  FOR id IN SELECT run_id FROM runs WHERE last_call AND lock_expires_at <= now ORDER BY lock_expires_at LIMIT 100 LOOP
    PERFORM ocean_process_overdue(ocean_find(id), now);
  END LOOP;
  PERFORM ocean_settle_keys(now);
  FOR id IN SELECT run_id FROM runs WHERE leased AND NOT paused AND lock_expires_at <= now
    ORDER BY lock_expires_at LIMIT 100 LOOP
    PERFORM ocean_process_overdue(ocean_find(id), now);
  END LOOP;
  PERFORM ocean_settle_keys(now);
END $$;

-- Returns claims, and a receipt for each: [run, epoch, lock_ms]. `urgent` and `aged` are the first candidates; for
-- those that another process holds or that were parked, further candidates are read.
CREATE OR REPLACE FUNCTION ocean_claim_due(ask jsonb, urgent text[], aged text[], are_plain boolean, has_lock boolean,
  now bigint, OUT claims json[], OUT receipts json[]) LANGUAGE plpgsql AS $$
DECLARE
  most bigint := (ask->>'limit')::bigint;
  slot bigint := (ask->>'slot')::bigint;
  wanted bigint := most;
  passed text[] := '{}';
  chosen text[];
  made record;
BEGIN
  claims := '{}';
  receipts := '{}';
  WHILE urgent IS NOT NULL LOOP
    chosen := ocean_pick(urgent, aged, wanted, slot + cardinality(claims));
    passed := passed || chosen;
    IF are_plain AND NOT ask ? 'lease' AND cardinality(chosen) > 1 THEN
      made := ocean_claim_plain(chosen, ask, now);
    ELSE
      made := ocean_claim_each(chosen, ask, has_lock, now, cardinality(claims));
    END IF;
    claims := claims || made.claims;
    receipts := receipts || made.receipts;
    EXIT WHEN cardinality(chosen) < wanted OR cardinality(claims) >= most OR cardinality(passed) >= 1000;
    wanted := most - cardinality(claims);
    SELECT * INTO urgent, aged, are_plain FROM ocean_candidates(ask, passed, wanted, now);
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION ocean_claim_each(chosen text[], ask jsonb, has_lock boolean, now bigint, place int,
  OUT claims json[], OUT receipts json[]) LANGUAGE plpgsql AS $$
DECLARE
  id text;
  r runs;
  claim json;
BEGIN
  claims := '{}';
  receipts := '{}';
  FOREACH id IN ARRAY chosen LOOP
    SELECT * INTO r FROM runs q WHERE q.run_id = id FOR UPDATE SKIP LOCKED;
    IF r.due_at <= now AND (has_lock OR ocean_is_plain_claim(r, now)) THEN
      claim := ocean_claim_one(r, ask, now, place + cardinality(claims));
      IF claim IS NOT NULL THEN
        claims := claims || claim;
        receipts := receipts || json_build_array(id, claim->'epoch', claim->'lock_ms');
      END IF;
    END IF;
  END LOOP;
END $$;

-- Returns whether the run that `ask` names may be due. Called before anything is locked.
CREATE OR REPLACE FUNCTION ocean_is_worth_claiming(ask jsonb, now bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
  r runs;
BEGIN
  SELECT * INTO r FROM runs q WHERE q.run_id = ask->>'run_id';
  RETURN coalesce(r.due_at <= now, false) AND (ocean_kernel_end(r, now) IS NOT NULL OR ocean_is_lapsed_lease(r, now)
    OR (ask->'clogs' ? r.clog_id AND ocean_full_key(r) IS NULL AND (r.ending IS NOT NULL
      OR NOT EXISTS (SELECT 1 FROM ocean_clogs c WHERE c.clog_id = r.clog_id AND c.paused))));
END $$;

CREATE OR REPLACE FUNCTION ocean_claim_named(ask jsonb, now bigint, OUT claims json[], OUT receipts json[])
LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_find(ask->>'run_id');
  claim json;
BEGIN
  IF r.run_id IS NOT NULL THEN
    PERFORM ocean_process_overdue(r, now);
    claim := ocean_claim_one(ocean_find(r.run_id), ask, now, 0);
  END IF;
  claims := CASE WHEN claim IS NULL THEN '{}' ELSE ARRAY[claim] END;
  receipts := CASE WHEN claim IS NULL THEN '{}' ELSE ARRAY[json_build_array(r.run_id, claim->'epoch', claim->'lock_ms')] END;
END $$;

-- Claims a run that this transaction has locked, or does what it needs instead. `place` is the number of claims before
-- it.
CREATE OR REPLACE FUNCTION ocean_claim_one(r runs, ask jsonb, now bigint, place int) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  terms jsonb := ask->'clogs'->(r.clog_id);
  clog ocean_clogs;
BEGIN
  IF ocean_needs_note(r, now) THEN
    r := ocean_with_crash_noted(r, now);
  END IF;
  IF ocean_kernel_end(r, now) IS NOT NULL OR ocean_is_lapsed_lease(r, now) THEN
    PERFORM ocean_process_overdue(r, now);
    RETURN NULL;
  END IF;
  SELECT * INTO clog FROM ocean_clogs c WHERE c.clog_id = r.clog_id;
  IF terms IS NULL OR (clog.paused AND r.ending IS NULL) OR coalesce(ocean_next_call_at(r) > now, true) THEN
    RETURN NULL;
  ELSIF ocean_full_key(r) IS NOT NULL AND r.parked_on IS NULL THEN
    PERFORM ocean_save(ocean_park_if_full(r, now));
    PERFORM ocean_settle_keys(now);
    RETURN NULL;
  ELSIF r.parked_on IS NOT NULL THEN
    RETURN NULL;
  END IF;
  r := ocean_begin_call(r, ask, terms, now);
  PERFORM ocean_save(r);
  IF r.key_count > 0 THEN
    -- The slots are taken at once, so that they count for the next candidate of this claim.
    PERFORM ocean_settle_keys(now);
  END IF;
  IF ask ? 'lease' THEN
    PERFORM ocean_add_lease(r, ask, terms, ask->'lease'->>place, now);
  END IF;
  RETURN ocean_held_claim(r, (terms->>'lock_ms')::bigint);
END $$;

-- Locks the run and begins a new tick with its inputs, or calls the open tick again.
CREATE OR REPLACE FUNCTION ocean_begin_call(r runs, ask jsonb, terms jsonb, now bigint) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  before runs := r;
  holder text := ask->>'instance_id';
  t ocean_ticks;
  because text;
  payload jsonb;
BEGIN
  r := ocean_claimed(r, holder, (terms->>'lock_ms')::bigint, ask ? 'lease', now);
  IF r.tick <> before.tick THEN
    PERFORM ocean_begin_tick(r, terms, holder, now);
    RETURN r;
  END IF;
  UPDATE ocean_ticks k SET calls = k.calls + 1, conflicts = 0, epoch = r.lock_epoch, instance_id = holder,
    version = terms->>'version', claimed_at = now
  WHERE k.run_id = r.run_id AND k.tick = r.tick RETURNING k.* INTO t;
  because := CASE WHEN before.status = 'active' THEN 'crash' WHEN before.wake_at IS NULL THEN 'give_back' ELSE 'retry' END;
  payload := jsonb_build_object('because', because, 'attempt', ocean_attempts(r), 'previous', before.locked_by);
  IF because = 'crash' AND NOT ocean_counts_as_attempt(before) THEN
    payload := payload || jsonb_build_object('company', before.crash_company);
  END IF;
  RETURN ocean_event(r, ROW(now, t.tick, t.calls, NULL, t.caused_by)::ocean_origin, 'tick.restarted', payload::text);
END $$;

CREATE OR REPLACE FUNCTION ocean_begin_tick(r runs, terms jsonb, holder text, now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  first ocean_inbox;
BEGIN
  IF r.ending IS NULL AND r.pending_count > 0 THEN
    UPDATE ocean_inbox i SET assigned_tick = r.tick WHERE i.run_id = r.run_id AND i.number = ANY (ARRAY(
      SELECT d.number FROM ocean_inbox d WHERE d.run_id = r.run_id AND d.assigned_tick IS NULL AND d.available_at <= now
      ORDER BY d.available_at, d.number LIMIT CASE WHEN (terms->>'takes_all_inputs')::boolean THEN 256 ELSE 1 END));
    SELECT * INTO first FROM ocean_inbox i
    WHERE i.run_id = r.run_id AND i.assigned_tick = r.tick AND i.consumed_tick IS NULL
    ORDER BY i.available_at, i.number LIMIT 1;
  END IF;
  INSERT INTO ocean_ticks (run_id, tick, reason, caused_by, calls, epoch, instance_id, version, first_claimed_at, claimed_at)
  VALUES (r.run_id, r.tick, coalesce(r.ending, first.kind, 'wake'), first.caused_by, 1, r.lock_epoch, holder,
    terms->>'version', now, now);
END $$;

-- Returns a claim as its holder receives it: the run, the tick and its inputs; for an external worker also the run's
-- row.
CREATE OR REPLACE FUNCTION ocean_held_claim(r runs, lock_ms bigint) RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
  t ocean_ticks;
BEGIN
  SELECT * INTO t FROM ocean_ticks k WHERE k.run_id = r.run_id AND k.tick = r.tick;
  RETURN ocean_claim_json(r, t, (
      SELECT coalesce(json_agg(i ORDER BY i.available_at, i.number), '[]') FROM ocean_inbox i
      WHERE i.run_id = r.run_id AND i.assigned_tick = r.tick AND i.consumed_tick IS NULL), lock_ms,
    CASE WHEN r.leased THEN (SELECT json_build_array(s.version, s.value) FROM ocean_storage_run s
      WHERE s.run_id = r.run_id AND s.clog_id = r.clog_id) END);
END $$;

CREATE OR REPLACE FUNCTION ocean_claim_json(r runs, t ocean_ticks, inputs json, lock_ms bigint, own_row json DEFAULT NULL)
RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN json_build_object('shown', ocean_shown(r), 'epoch', r.lock_epoch, 'lock_ms', lock_ms, 'tick', r.tick,
    'call', t.calls, 'reason', t.reason, 'claimed_at', t.claimed_at, 'lock_expires_at', r.lock_expires_at,
    'inputs', inputs, 'row', own_row);
END $$;
