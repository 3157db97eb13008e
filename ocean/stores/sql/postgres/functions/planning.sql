-- How statements are planned: by their form, not by statistics.
--
-- A plan is made once per connection, possibly while the tables are empty, and kept as long as the connection. With old
-- or missing statistics it might read a whole table, or scan the wrong index. So only index scans are enabled, and
-- where two tables are joined, the statement determines which comes first (a LATERAL with OFFSET 0 stays behind the
-- tables that it refers to).
--
-- Ocean's own connections get these settings when they are opened (`PLANS` in Python). To apply them to each call, as
-- the functions below do for the connections of a pooler, takes a tenth of a millisecond.

-- Returns whether the connection lacks these settings. Only they switch off sorting.
CREATE OR REPLACE FUNCTION ocean_needs_plan_settings() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN current_setting('enable_sort') = 'on';
END $$;

CREATE OR REPLACE FUNCTION ocean_write_planned(token text, items jsonb, must_notify boolean, ask jsonb) RETURNS json
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_hashagg = off SET enable_sort = off SET enable_incremental_sort = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN ocean_write(token, items, must_notify, ask);
END $$;

CREATE OR REPLACE FUNCTION ocean_claim_planned(token text, ask jsonb, must_notify boolean) RETURNS json
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_hashagg = off SET enable_sort = off SET enable_incremental_sort = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN ocean_claim(token, ask, must_notify);
END $$;

CREATE OR REPLACE FUNCTION ocean_read_planned(verb text, given jsonb) RETURNS json
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_hashagg = off SET enable_sort = off SET enable_incremental_sort = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN ocean_read(verb, given);
END $$;

CREATE OR REPLACE FUNCTION ocean_walk_planned(statement text, given jsonb) RETURNS SETOF json
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_hashagg = off SET enable_sort = off SET enable_incremental_sort = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN QUERY SELECT * FROM ocean_walk(statement, given);
END $$;
