-- Groups of changes: how every write arrives, and how it is found out what became of one whose answer was lost.

-- Writers go one after another: the order of cursors is the order of commits, nobody waits for a lock while holding
-- one that is wanted, and a group does what its items would do one by one. Whoever has waited must see what was written
-- meanwhile; behind a pooler only the database itself can be told so.
CREATE OR REPLACE FUNCTION ocean_lock() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'transactions are %, and must be read committed: set default_transaction_isolation',
      current_setting('transaction_isolation');
  END IF;
  PERFORM pg_advisory_xact_lock(1328960853, 'events'::regclass::oid::int);
END $$;

-- A refusal: an answer, not an error of the database. What was changed on the way to it is undone.
CREATE OR REPLACE FUNCTION ocean_refuse(code text, facts json DEFAULT '{}') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'OC001', MESSAGE = code, DETAIL = facts::text;
END $$;

-- Items are [verb, arguments, request or null]. Mostly nobody is refused: so all are tried in one go, and each alone
-- only if one was. Answers the time, whether anything has changed, and an answer per item; and the claims, if one is asked
-- for besides.
CREATE OR REPLACE FUNCTION ocean_write(token text, items jsonb, is_told boolean, ask jsonb DEFAULT NULL) RETURNS json
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  item jsonb;
  early jsonb[] := '{}';
  began bigint;
  stretch jsonb[];
  tried int := 0;
  together json[];
  answers json[] := '{}';
  count int := jsonb_array_length(items);
  is_void boolean;
  is_alone boolean := false;
  has_changed boolean;
  made record;
  claims json[];
  receipts json[];
  done json;
  now bigint;
  cursor bigint;
BEGIN
  IF ocean_has_other_plans() THEN
    RETURN ocean_write_planned(token, items, is_told, ask);
  END IF;
  IF count > 1 AND items->0->>0 = 'create_run' THEN
    began := ocean_now();
    early := ocean_create_early(items, began);
  END IF;
  PERFORM ocean_lock();
  SELECT c.last_value, EXISTS (SELECT 1 FROM ocean_groups g WHERE g.token = ocean_write.token) INTO cursor, is_void
  FROM ocean_cursor c;
  IF is_void THEN
    RAISE EXCEPTION 'group % was given up', token;
  END IF;
  now := ocean_now();
  BEGIN
    IF count = 1 AND ask IS NOT NULL AND items->0->>0 = 'deliver_signal' AND items->0->>2 IS NULL THEN
      made := ocean_signal_and_claim(items->0->1, ask, now);
      IF made.answer IS NOT NULL THEN
        answers := ARRAY[json_build_object('answer', made.answer)];
        claims := made.claims;
        receipts := made.receipts;
      END IF;
    END IF;
    IF cardinality(early) > 0 THEN
      answers := ocean_create_plain(early, true, began);
    END IF;
    WHILE cardinality(answers) < count LOOP
      item := items->(cardinality(answers));
      together := NULL;
      IF count > 1 AND cardinality(answers) >= tried THEN
        stretch := ocean_plain_stretch(items, cardinality(answers));
        tried := cardinality(answers) + cardinality(stretch);
        -- One alone gains nothing.
        together := CASE WHEN cardinality(stretch) > 1 THEN ocean_perform_plain(item->>0, stretch, now) END;
      END IF;
      answers := answers || coalesce(together,
        ARRAY[json_build_object('answer', ocean_perform(item->>0, item->1, item->2, now))]);
    END LOOP;
  EXCEPTION WHEN OTHERS THEN
    is_alone := true;
  END;
  IF is_alone THEN
    -- A sequence is not undone by itself. Nobody else can have drawn from it. A server that is not the primary any more
    -- fails here for all of them: it was no item's fault, and another server may do.
    PERFORM setval('ocean_cursor', cursor);
    IF cardinality(early) > 0 THEN
      PERFORM ocean_take_back_early(early);
    END IF;
    answers := '{}';
    FOR item IN SELECT jsonb_array_elements(items) LOOP
      answers := answers || ocean_perform_alone(item, now);
    END LOOP;
  END IF;
  -- What was undone has left a transaction id behind, and nothing else.
  has_changed := pg_current_xact_id_if_assigned() IS NOT NULL;
  IF has_changed AND is_alone THEN
    has_changed := EXISTS (SELECT 1 FROM unnest(answers) a WHERE a->'answer' IS NOT NULL);
  END IF;
  IF ask IS NOT NULL AND has_changed THEN
    IF claims IS NULL THEN
      made := ocean_claim_along(ask, now);
      claims := made.claims;
      receipts := made.receipts;
    END IF;
    done := json_build_object('now', ocean_now(), 'changed', true, 'answers', to_json(answers), 'receipts', receipts);
    PERFORM ocean_keep(token, done, is_told);
    RETURN json_build_object('now', ocean_now(), 'changed', true, 'answers', to_json(answers), 'claims', claims);
  END IF;
  done := json_build_object('now', ocean_now(), 'changed', has_changed, 'answers', to_json(answers));
  IF has_changed THEN
    PERFORM ocean_keep(token, done, is_told);
  END IF;
  RETURN done;
END $$;

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

-- The answer of a group stays for ten minutes, which is longer than anybody goes on asking for it, or than a request
-- may be on its way; and whoever waits is told of the commit. If the group was given up, its token is taken: that
-- undoes it.
CREATE OR REPLACE FUNCTION ocean_keep(token text, answer json, is_told boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  seconds bigint := floor(extract(epoch FROM clock_timestamp()));
BEGIN
  IF pg_current_xact_id_if_assigned() IS NULL THEN
    RETURN;
  END IF;
  INSERT INTO ocean_groups (token, at, answer) VALUES (token, seconds, answer::text);
  DELETE FROM ocean_groups WHERE ocean_groups.token = ANY (ARRAY(
    SELECT g.token FROM ocean_groups g WHERE g.at < seconds - 600 ORDER BY g.at LIMIT 3 FOR UPDATE SKIP LOCKED));
  IF is_told THEN
    NOTIFY ocean;
  END IF;
END $$;

-- What became of a group whose answer was lost. If nothing, then nothing will: it is void from now on. One that is
-- still at work is waited for; a claim may be at work without the lock, and then either this or that finds the token
-- taken.
CREATE OR REPLACE FUNCTION ocean_settle(given text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  kept text;
BEGIN
  PERFORM ocean_lock();
  INSERT INTO ocean_groups (token, at) VALUES (given, floor(extract(epoch FROM clock_timestamp())))
  ON CONFLICT DO NOTHING;
  SELECT g.answer INTO kept FROM ocean_groups g WHERE g.token = given;
  RETURN kept;
END $$;
