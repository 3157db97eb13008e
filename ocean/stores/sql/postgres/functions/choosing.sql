-- Choosing among the due runs: a bounded probe per lane, and the order. These functions only read.

-- Returns the due runs of the clogs in `ask`, at most `most` of each lane, except those in `passed`.
CREATE OR REPLACE FUNCTION ocean_due(ask jsonb, passed text[], most bigint, now bigint)
RETURNS TABLE (run_id text, priority smallint, due_at bigint, lock_epoch bigint, is_plain boolean, lane_number int)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  clog ocean_clogs;
  lane smallint;
  queue_name text;
  lanes int := 0;
BEGIN
  FOR clog IN SELECT c.* FROM jsonb_object_keys(ask->'clogs') k JOIN ocean_clogs c ON c.clog_id = k ORDER BY c.clog_id LOOP
    IF ask->'queues' <> '[]' THEN
      FOR queue_name IN SELECT jsonb_array_elements_text(ask->'queues') LOOP
        FOR lane IN 0..9 LOOP
          CONTINUE WHEN clog.paused;
          lanes := lanes + 1;
          RETURN QUERY SELECT r.run_id, r.priority, r.due_at, r.lock_epoch, ocean_is_plain_claim(r, now), lanes FROM (
            SELECT * FROM runs q WHERE q.clog_id = clog.clog_id AND q.queue = queue_name AND q.priority = lane
              AND q.due_at <= now AND NOT q.run_id = ANY (passed)
            ORDER BY q.due_at, q.lock_epoch, q.run_id LIMIT most) r;
        END LOOP;
      END LOOP;
    ELSIF clog.paused THEN
      lanes := lanes + 1;
      RETURN QUERY SELECT r.run_id, r.priority, r.due_at, r.lock_epoch, ocean_is_plain_claim(r, now), lanes FROM (
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
        lanes := lanes + 1;
        RETURN QUERY SELECT r.run_id, r.priority, r.due_at, r.lock_epoch, ocean_is_plain_claim(r, now), lanes FROM (
          SELECT * FROM runs q WHERE q.clog_id = clog.clog_id AND q.priority = lane AND q.due_at <= now
            AND NOT q.run_id = ANY (passed)
          ORDER BY q.due_at, q.lock_epoch, q.run_id LIMIT most) r;
      END LOOP;
    END IF;
  END LOOP;
END $$;

-- Returns the due runs by urgency and by age, and whether all are plain. Ids are ordered by their bytes, as in the
-- index: a value that a function returns has lost the collation of its column.
CREATE OR REPLACE FUNCTION ocean_candidates(ask jsonb, passed text[], most bigint, now bigint, OUT urgent text[],
  OUT aged text[], OUT are_plain boolean) LANGUAGE plpgsql STABLE AS $$
DECLARE
  is_one_lane boolean;
BEGIN
  SELECT array_agg(d.run_id), coalesce(bool_and(d.is_plain), true), min(d.lane_number) = max(d.lane_number)
  INTO urgent, are_plain, is_one_lane FROM ocean_due(ask, passed, most, now) d;
  IF is_one_lane THEN
    -- They were found in the order of the lane.
    aged := urgent;
  ELSIF urgent IS NOT NULL THEN
    SELECT array_agg(d.run_id ORDER BY d.priority, d.due_at, d.lock_epoch, d.run_id COLLATE "C"),
      array_agg(d.run_id ORDER BY d.due_at, d.lock_epoch, d.run_id COLLATE "C")
    INTO urgent, aged FROM ocean_due(ask, passed, most, now) d;
  END IF;
END $$;

-- Returns the runs to claim: by priority, then the longest due; one in eight is the longest due run of any priority.
CREATE OR REPLACE FUNCTION ocean_pick(urgent text[], aged text[], most bigint, slot bigint) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  chosen text[] := '{}';
  is_chosen jsonb := '{}';
  next_urgent int := 1;
  next_aged int := 1;
  id text;
BEGIN
  IF urgent = aged THEN
    RETURN urgent[:most::int];
  END IF;
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
