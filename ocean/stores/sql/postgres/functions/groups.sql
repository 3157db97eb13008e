-- Groups of changes: how every write arrives, and how the fate of a group is found whose result was lost.
--
-- Short names in all these files: r a run, t a tick, o the origin of a change, e effects, i an input, s a signal, n a
-- new run, a the arguments of a verb.

-- Takes the writers' lock. Writers run one after another: so the order of cursors is the order of commits, no writer
-- waits for a lock while it holds one that another needs, and a group does what its items would do one by one. A writer
-- that has waited must see what was written meanwhile. Behind a pooler only the database can be configured for that.
CREATE OR REPLACE FUNCTION ocean_lock() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'transactions must be read committed, got %: set default_transaction_isolation',
      current_setting('transaction_isolation');
  END IF;
  PERFORM pg_advisory_xact_lock(1328960853, 'events'::regclass::oid::int);
END $$;

-- Refuses an item: a result, not an error of the database. What the item has changed is undone.
CREATE OR REPLACE FUNCTION ocean_refuse(code text, facts json DEFAULT '{}') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'OC001', MESSAGE = code, DETAIL = facts::text;
END $$;

-- Commits a group. Items are [verb, arguments, request or null]; `ask` is a claim to be made in the same transaction.
-- Returns the time, whether anything has changed, one result per item, and the claims if `ask` is given.
CREATE OR REPLACE FUNCTION ocean_write(token text, items jsonb, must_notify boolean, ask jsonb DEFAULT NULL) RETURNS json
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  early jsonb[] := '{}';
  early_at bigint;
  cursor bigint;
  is_void boolean;
  now bigint;
  made record;
  claimed record;
  done json;
BEGIN
  IF ocean_needs_plan_settings() THEN
    RETURN ocean_write_planned(token, items, must_notify, ask);
  END IF;
  IF items->0->>0 = 'create_run' AND jsonb_array_length(items) > 1 THEN
    early_at := ocean_now();
    early := ocean_create_early(items, early_at);
  END IF;
  PERFORM ocean_lock();
  SELECT c.last_value, EXISTS (SELECT 1 FROM ocean_groups g WHERE g.token = ocean_write.token) INTO cursor, is_void
  FROM ocean_cursor c;
  IF is_void THEN
    RAISE EXCEPTION 'group % was given up', token;
  END IF;
  now := ocean_now();
  made := ocean_perform_group(items, ask, early, early_at, cursor, now);
  IF ask IS NULL OR NOT made.has_changed THEN
    done := json_build_object('now', ocean_now(), 'changed', made.has_changed, 'results', to_json(made.results));
    IF made.has_changed THEN
      PERFORM ocean_store_result(token, done, must_notify);
    END IF;
    RETURN done;
  END IF;
  claimed := made;
  IF made.claims IS NULL THEN
    claimed := ocean_claim_after_write(ask, now);
  END IF;
  done := json_build_object('now', ocean_now(), 'changed', true, 'results', to_json(made.results),
    'receipts', claimed.receipts);
  PERFORM ocean_store_result(token, done, must_notify);
  RETURN json_build_object('now', ocean_now(), 'changed', true, 'results', to_json(made.results), 'claims', claimed.claims);
END $$;

-- Performs the items of a group. Refusals are rare: all items are performed together, and only if one fails, each in a
-- subtransaction of its own. Returns claims only if the items made them (`ocean_signal_and_claim`).
CREATE OR REPLACE FUNCTION ocean_perform_group(items jsonb, ask jsonb, early jsonb[], early_at bigint, cursor bigint,
  now bigint, OUT results json[], OUT claims json[], OUT receipts json[], OUT has_changed boolean) LANGUAGE plpgsql AS $$
DECLARE
  has_failed boolean := false;
  made record;
BEGIN
  BEGIN
    IF ask IS NOT NULL AND jsonb_array_length(items) = 1 AND items->0->>0 = 'deliver_signal' AND items->0->>2 IS NULL THEN
      made := ocean_signal_and_claim(items->0->1, ask, now);
      IF made.answer IS NOT NULL THEN
        results := ARRAY[json_build_object('answer', made.answer)];
        claims := made.claims;
        receipts := made.receipts;
      END IF;
    END IF;
    IF results IS NULL THEN
      results := ocean_perform_together(items, early, early_at, now);
    END IF;
  EXCEPTION WHEN OTHERS THEN
    has_failed := true;
  END;
  IF has_failed THEN
    results := ocean_perform_apart(items, early, cursor, now);
  END IF;
  -- A subtransaction that was rolled back leaves a transaction id behind, and nothing else.
  has_changed := pg_current_xact_id_if_assigned() IS NOT NULL;
  IF has_changed AND has_failed THEN
    has_changed := EXISTS (SELECT 1 FROM unnest(results) result WHERE result->'answer' IS NOT NULL);
  END IF;
END $$;

-- Performs the items in order, plain ones in bulk. `early` are those that `ocean_create_early` has begun.
CREATE OR REPLACE FUNCTION ocean_perform_together(items jsonb, early jsonb[], early_at bigint, now bigint) RETURNS json[]
LANGUAGE plpgsql AS $$
DECLARE
  count int := jsonb_array_length(items);
  results json[] := '{}';
  item jsonb;
  plain jsonb[];
  bulk_results json[];
  tried int := 0;
BEGIN
  IF cardinality(early) > 0 THEN
    results := ocean_create_plain(early, true, early_at);
  END IF;
  WHILE cardinality(results) < count LOOP
    item := items->(cardinality(results));
    bulk_results := NULL;
    IF count > 1 AND cardinality(results) >= tried THEN
      plain := ocean_plain_prefix(items, cardinality(results));
      tried := cardinality(results) + cardinality(plain);
      bulk_results := CASE WHEN cardinality(plain) > 1 THEN ocean_perform_plain(item->>0, plain, now) END;
    END IF;
    results := results || coalesce(bulk_results,
      ARRAY[json_build_object('answer', ocean_perform(item->>0, item->1, item->2, now))]);
  END LOOP;
  RETURN results;
END $$;

-- Performs each item in a subtransaction of its own, after the group has been rolled back to `cursor`.
CREATE OR REPLACE FUNCTION ocean_perform_apart(items jsonb, early jsonb[], cursor bigint, now bigint) RETURNS json[]
LANGUAGE plpgsql AS $$
DECLARE
  results json[] := '{}';
  item jsonb;
BEGIN
  -- A rollback does not reset a sequence; no other process can have drawn from it. A server that is no longer the
  -- primary fails here for all items: none of them caused the failure, and another server may accept the group.
  PERFORM setval('ocean_cursor', cursor);
  IF cardinality(early) > 0 THEN
    PERFORM ocean_delete_early(early);
  END IF;
  FOR item IN SELECT jsonb_array_elements(items) LOOP
    results := results || ocean_perform_alone(item, now);
  END LOOP;
  RETURN results;
END $$;

-- Returns the result of an item, its refusal, or the error it caused.
CREATE OR REPLACE FUNCTION ocean_perform_alone(item jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  facts text;
  cursor bigint := (SELECT last_value FROM ocean_cursor);
BEGIN
  RETURN json_build_object('answer', ocean_perform(item->>0, item->1, item->2, now));
EXCEPTION
  WHEN SQLSTATE 'OC001' THEN
    PERFORM setval('ocean_cursor', cursor);
    GET STACKED DIAGNOSTICS facts = PG_EXCEPTION_DETAIL;
    RETURN json_build_object('refused', SQLERRM, 'facts', facts::json);
  WHEN OTHERS THEN
    PERFORM setval('ocean_cursor', cursor);
    RETURN json_build_object('failed', SQLERRM, 'state', SQLSTATE);
END $$;

-- Stores the result of a group, and notifies the processes that wait for a commit. Results are kept for ten minutes,
-- which is longer than a sender asks for one and than a request can be in flight. If the group was given up, its token
-- is taken: the INSERT fails and rolls the group back.
CREATE OR REPLACE FUNCTION ocean_store_result(token text, result json, must_notify boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  seconds bigint := floor(extract(epoch FROM clock_timestamp()));
BEGIN
  IF pg_current_xact_id_if_assigned() IS NULL THEN
    RETURN;
  END IF;
  INSERT INTO ocean_groups (token, at, answer) VALUES (token, seconds, result::text);
  DELETE FROM ocean_groups WHERE ocean_groups.token = ANY (ARRAY(
    SELECT g.token FROM ocean_groups g WHERE g.at < seconds - 600 ORDER BY g.at LIMIT 3 FOR UPDATE SKIP LOCKED));
  IF must_notify THEN
    NOTIFY ocean;
  END IF;
END $$;

-- Returns the stored result of a group that its sender has lost. If there is none, the group is given up: it can no
-- longer commit. Waits for a group in progress. A claim may be in progress without the writers' lock; then this
-- function or the claim finds the token taken.
CREATE OR REPLACE FUNCTION ocean_settle(given text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  stored text;
BEGIN
  PERFORM ocean_lock();
  INSERT INTO ocean_groups (token, at) VALUES (given, floor(extract(epoch FROM clock_timestamp())))
  ON CONFLICT DO NOTHING;
  SELECT g.answer INTO stored FROM ocean_groups g WHERE g.token = given;
  RETURN stored;
END $$;
