-- Claiming: a bounded probe per lane, the lock, and the tick's inputs fixed.
--
-- A plain claim writes no event and needs no slot of a key: it takes rows that nobody else has locked, and waits for
-- nobody. Whatever else a claim finds to do (ends that are owed, a tick begun before, concurrency keys) it does under
-- the writers' lock, which it takes before any row.

CREATE OR REPLACE FUNCTION ocean_claim(token text, ask jsonb, is_told boolean) RETURNS json
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  now bigint := ocean_now();
  is_alone boolean := ask->>'run_id' IS NOT NULL;
  claims json[] := '{}';
BEGIN
  IF ask ? 'lease' THEN
    ask := ocean_lease_ask(ask);
    IF ask ? 'refused' THEN
      RETURN ask;
    END IF;
  END IF;
  IF is_alone AND NOT ocean_is_worth_claiming(ask, now) THEN
    RETURN '{"claims": [], "again": false}';
  ELSIF is_alone THEN
    PERFORM ocean_lock();
    now := ocean_now();
    claims := ocean_claim_named(ask, now);
  ELSE
    is_alone := ocean_is_anything_owed(now) OR EXISTS (
      SELECT 1 FROM ocean_due(ask, '{}', (ask->>'limit')::bigint, now) d WHERE NOT d.is_plain);
    IF is_alone THEN
      PERFORM ocean_lock();
      now := ocean_now();
      PERFORM ocean_do_all_that_is_owed(now);
    END IF;
    claims := ocean_claim_due(ask, is_alone, now);
  END IF;
  PERFORM ocean_flush(now);
  PERFORM ocean_keep(token, (
    SELECT coalesce(json_agg(json_build_array(c->'shown'->'run'->'run_id', c->'epoch', c->'lock_ms')), '[]')
    FROM unnest(claims) c), is_alone AND is_told);
  RETURN json_build_object('now', now, 'claims', to_json(claims),
    'again', is_alone AND cardinality(claims) = 0 AND pg_current_xact_id_if_assigned() IS NOT NULL);
END $$;

-- The claims of a group whose answer was lost, as far as they still hold; null if it never was, and never will be.
CREATE OR REPLACE FUNCTION ocean_settle_claim(token text) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  kept json := ocean_settle(token);
  claims json;
BEGIN
  IF kept IS NULL THEN
    RETURN NULL;
  END IF;
  SELECT json_agg(ocean_claim_shown(r, (k.value->>2)::bigint) ORDER BY k.place) INTO claims
  FROM json_array_elements(kept) WITH ORDINALITY k(value, place),
    LATERAL (SELECT * FROM runs q WHERE q.run_id = k.value->>0 OFFSET 0) r
  WHERE ocean_is_held(r, (k.value->>1)::bigint);
  -- None, if it only made ends that were owed, or others have them by now: there may be work for another.
  RETURN json_build_object('claims', coalesce(claims, '[]'), 'again', claims IS NULL);
END $$;

CREATE OR REPLACE FUNCTION ocean_is_anything_owed(now bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN EXISTS (SELECT 1 FROM runs WHERE deadline_at <= now AND ended_at IS NULL AND ending IS NULL)
    OR EXISTS (SELECT 1 FROM runs WHERE last_call AND lock_expires_at <= now)
    OR EXISTS (SELECT 1 FROM runs WHERE leased AND NOT paused AND lock_expires_at <= now);
END $$;

CREATE OR REPLACE FUNCTION ocean_do_all_that_is_owed(now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  id text;
BEGIN
  -- Of those that are due at the same time the parents go first: their ends say why the children's are made.
  FOR id IN SELECT run_id FROM (SELECT * FROM runs WHERE deadline_at <= now AND ended_at IS NULL AND ending IS NULL
      ORDER BY deadline_at LIMIT 100) d
    ORDER BY deadline_at, parent_run_id IS NOT NULL, created_at, run_id LOOP
    PERFORM ocean_do_what_is_owed(ocean_find(id), now);
  END LOOP;
  PERFORM ocean_flush(now);
  FOR id IN SELECT run_id FROM runs WHERE last_call AND lock_expires_at <= now ORDER BY lock_expires_at LIMIT 100 LOOP
    PERFORM ocean_do_what_is_owed(ocean_find(id), now);
  END LOOP;
  PERFORM ocean_flush(now);
  FOR id IN SELECT run_id FROM runs WHERE leased AND NOT paused AND lock_expires_at <= now
    ORDER BY lock_expires_at LIMIT 100 LOOP
    PERFORM ocean_do_what_is_owed(ocean_find(id), now);
  END LOOP;
  PERFORM ocean_flush(now);
END $$;

-- The due runs of the asked clogs, at most so many of each lane, without those that were looked at. It only reads.
CREATE OR REPLACE FUNCTION ocean_due(ask jsonb, passed text[], most bigint, now bigint)
RETURNS TABLE (run_id text, priority smallint, due_at bigint, lock_epoch bigint, is_plain boolean)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  clog ocean_clogs;
  lane smallint;
  line_of text;
BEGIN
  FOR clog IN SELECT c.* FROM jsonb_object_keys(ask->'clogs') k JOIN ocean_clogs c ON c.clog_id = k ORDER BY c.clog_id LOOP
    IF ask->'queues' <> '[]' THEN
      FOR line_of IN SELECT jsonb_array_elements_text(ask->'queues') LOOP
        FOR lane IN 0..9 LOOP
          CONTINUE WHEN clog.paused;
          RETURN QUERY SELECT r.run_id, r.priority, r.due_at, r.lock_epoch, ocean_is_plain(r, now) FROM (
            SELECT * FROM runs q WHERE q.clog_id = clog.clog_id AND q.queue = line_of AND q.priority = lane
              AND q.due_at <= now AND NOT q.run_id = ANY (passed)
            ORDER BY q.due_at, q.lock_epoch, q.run_id LIMIT most) r;
        END LOOP;
      END LOOP;
    ELSIF clog.paused THEN
      RETURN QUERY SELECT r.run_id, r.priority, r.due_at, r.lock_epoch, ocean_is_plain(r, now) FROM (
        SELECT * FROM runs q WHERE q.clog_id = clog.clog_id AND q.ending IS NOT NULL AND q.due_at <= now
          AND NOT q.run_id = ANY (passed)
        ORDER BY q.due_at LIMIT most) r;
    ELSE
      lane := -1;
      LOOP
        SELECT q.priority INTO lane FROM runs q
        WHERE q.clog_id = clog.clog_id AND q.priority > lane AND q.due_at IS NOT NULL
        ORDER BY q.priority LIMIT 1;
        EXIT WHEN NOT FOUND;
        RETURN QUERY SELECT r.run_id, r.priority, r.due_at, r.lock_epoch, ocean_is_plain(r, now) FROM (
          SELECT * FROM runs q WHERE q.clog_id = clog.clog_id AND q.priority = lane AND q.due_at <= now
            AND NOT q.run_id = ANY (passed)
          ORDER BY q.due_at, q.lock_epoch, q.run_id LIMIT most) r;
      END LOOP;
    END IF;
  END LOOP;
END $$;

-- Whether a claim of this run writes no event and takes no slot.
CREATE OR REPLACE FUNCTION ocean_is_plain(r runs, now bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN r.status IN ('pending', 'waiting') AND NOT r.tick_open AND r.key_count = 0
    AND ocean_kernel_end(r, now) IS NULL;
END $$;

-- Urgent before patient, long due before fresh; one slot in eight goes to the longest due run of any priority.
CREATE OR REPLACE FUNCTION ocean_pick(urgent text[], aged text[], most bigint, slot bigint) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  chosen text[] := '{}';
  is_chosen jsonb := '{}';
  next_urgent int := 1;
  next_aged int := 1;
  id text;
BEGIN
  WHILE cardinality(chosen) < least(most, cardinality(urgent)) LOOP
    WHILE is_chosen ? urgent[next_urgent] LOOP
      next_urgent := next_urgent + 1;
    END LOOP;
    WHILE is_chosen ? aged[next_aged] LOOP
      next_aged := next_aged + 1;
    END LOOP;
    id := CASE WHEN (slot + cardinality(chosen)) % 8 = 7 THEN aged[next_aged] ELSE urgent[next_urgent] END;
    chosen := chosen || id;
    is_chosen := is_chosen || jsonb_build_object(id, NULL);
  END LOOP;
  RETURN chosen;
END $$;

CREATE OR REPLACE FUNCTION ocean_claim_due(ask jsonb, is_alone boolean, now bigint) RETURNS json[] LANGUAGE plpgsql AS $$
DECLARE
  most bigint := (ask->>'limit')::bigint;
  slot bigint := (ask->>'slot')::bigint;
  wanted bigint;
  passed text[] := '{}';
  urgent text[];
  aged text[];
  chosen text[];
  id text;
  r runs;
  claim json;
  claims json[] := '{}';
BEGIN
  LOOP
    wanted := most - cardinality(claims);
    EXIT WHEN wanted <= 0 OR cardinality(passed) >= 1000;
    -- Ids in the order of their bytes, as in the index: what a function answers has lost its column's collation.
    SELECT array_agg(d.run_id ORDER BY d.priority, d.due_at, d.lock_epoch, d.run_id COLLATE "C"),
      array_agg(d.run_id ORDER BY d.due_at, d.lock_epoch, d.run_id COLLATE "C") INTO urgent, aged
    FROM ocean_due(ask, passed, wanted, now) d;
    EXIT WHEN urgent IS NULL;
    chosen := ocean_pick(urgent, aged, wanted, slot + cardinality(claims));
    passed := passed || chosen;
    IF NOT is_alone AND NOT ask ? 'lease' AND cardinality(chosen) > 1 THEN
      claims := claims || ocean_claim_plain(chosen, ask, now);
      EXIT WHEN cardinality(chosen) < wanted;
      CONTINUE;
    END IF;
    FOREACH id IN ARRAY chosen LOOP
      SELECT * INTO r FROM runs q WHERE q.run_id = id FOR UPDATE SKIP LOCKED;
      IF r.due_at <= now AND (is_alone OR ocean_is_plain(r, now)) THEN
        claim := ocean_claim_one(r, ask, now, cardinality(claims));
        IF claim IS NOT NULL THEN
          claims := claims || claim;
        END IF;
      END IF;
    END LOOP;
    -- There are others behind those that somebody else has, or that were parked.
    EXIT WHEN cardinality(chosen) < wanted;
  END LOOP;
  RETURN claims;
END $$;

-- Before anything is locked: whether the run named may be due.
CREATE OR REPLACE FUNCTION ocean_is_worth_claiming(ask jsonb, now bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
  r runs;
BEGIN
  SELECT * INTO r FROM runs q WHERE q.run_id = ask->>'run_id';
  RETURN coalesce(r.due_at <= now, false) AND (ocean_kernel_end(r, now) IS NOT NULL OR ocean_is_lapsed_lease(r, now)
    OR (ask->'clogs' ? r.clog_id AND ocean_full_key(r) IS NULL AND (r.ending IS NOT NULL
      OR NOT EXISTS (SELECT 1 FROM ocean_clogs c WHERE c.clog_id = r.clog_id AND c.paused))));
END $$;

CREATE OR REPLACE FUNCTION ocean_claim_named(ask jsonb, now bigint) RETURNS json[] LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_find(ask->>'run_id');
  claim json;
BEGIN
  IF r.run_id IS NOT NULL THEN
    PERFORM ocean_do_what_is_owed(r, now);
    claim := ocean_claim_one(ocean_find(r.run_id), ask, now, 0);
  END IF;
  RETURN CASE WHEN claim IS NULL THEN '{}' ELSE ARRAY[claim] END;
END $$;

-- Claim a run that is locked by this transaction, or do what it needs instead. `place` counts the claims before it.
CREATE OR REPLACE FUNCTION ocean_claim_one(r runs, ask jsonb, now bigint, place int) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  terms jsonb := ask->'clogs'->(r.clog_id);
  clog ocean_clogs;
BEGIN
  IF ocean_kernel_end(r, now) IS NOT NULL OR ocean_is_lapsed_lease(r, now) THEN
    PERFORM ocean_do_what_is_owed(r, now);
    RETURN NULL;
  END IF;
  SELECT * INTO clog FROM ocean_clogs c WHERE c.clog_id = r.clog_id;
  IF terms IS NULL OR (clog.paused AND r.ending IS NULL) OR coalesce(ocean_next_call_at(r) > now, true) THEN
    RETURN NULL;
  ELSIF ocean_full_key(r) IS NOT NULL AND r.parked_on IS NULL THEN
    PERFORM ocean_save(ocean_park_if_full(r, now));
    PERFORM ocean_flush(now);
    RETURN NULL;
  ELSIF r.parked_on IS NOT NULL THEN
    RETURN NULL;
  END IF;
  r := ocean_begin_call(r, ask, terms, now);
  PERFORM ocean_save(r);
  IF r.key_count > 0 THEN
    -- The slots are taken at once: the next candidate of this claim must see it.
    PERFORM ocean_flush(now);
  END IF;
  IF ask ? 'lease' THEN
    PERFORM ocean_add_lease(r, ask, terms, ask->'lease'->>place, now);
  END IF;
  RETURN ocean_claim_shown(r, (terms->>'lock_ms')::bigint);
END $$;

-- The lock, and a new tick with its inputs, for every call of it; or the same tick once more.
CREATE OR REPLACE FUNCTION ocean_begin_call(r runs, ask jsonb, terms jsonb, now bigint) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  before runs := r;
  holder text := ask->>'instance_id';
  t ocean_ticks;
  because text;
BEGIN
  r := ocean_claimed(r, holder, (terms->>'lock_ms')::bigint, ask ? 'lease', now);
  IF NOT before.tick_open THEN
    PERFORM ocean_begin_tick(r, terms, holder, now);
    RETURN r;
  END IF;
  UPDATE ocean_ticks k SET calls = k.calls + 1, conflicts = 0, epoch = r.lock_epoch, instance_id = holder,
    version = terms->>'version', claimed_at = now
  WHERE k.run_id = r.run_id AND k.tick = r.tick RETURNING k.* INTO t;
  because := CASE WHEN before.status = 'active' THEN 'crash' WHEN before.wake_at IS NULL THEN 'give_back' ELSE 'retry' END;
  RETURN ocean_event(r, ROW(now, t.tick, t.calls, NULL, t.caused_by)::ocean_origin, 'tick.restarted',
    json_build_object('because', because, 'attempt', r.attempt, 'previous', before.locked_by)::text);
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

-- A claim as its holder gets it: the run, the tick's identity and its inputs; for a worker outside the run's row too.
CREATE OR REPLACE FUNCTION ocean_claim_shown(r runs, lock_ms bigint) RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
  t ocean_ticks;
BEGIN
  SELECT * INTO t FROM ocean_ticks k WHERE k.run_id = r.run_id AND k.tick = r.tick;
  RETURN json_build_object('shown', ocean_shown(r), 'epoch', r.lock_epoch, 'lock_ms', lock_ms, 'tick', r.tick,
    'call', t.calls, 'reason', t.reason, 'claimed_at', t.claimed_at, 'lock_expires_at', r.lock_expires_at,
    'inputs', (SELECT coalesce(json_agg(i ORDER BY i.available_at, i.number), '[]') FROM ocean_inbox i
      WHERE i.run_id = r.run_id AND i.assigned_tick = r.tick AND i.consumed_tick IS NULL),
    'row', CASE WHEN r.leased THEN (SELECT json_build_array(s.version, s.value) FROM ocean_storage_run s
      WHERE s.run_id = r.run_id AND s.clog_id = r.clog_id) END);
END $$;
