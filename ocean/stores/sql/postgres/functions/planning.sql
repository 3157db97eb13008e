-- How statements are planned: by what they say, not by statistics.
--
-- A plan is made once for a connection, maybe when the tables are empty, and kept for as long as it. By statistics that
-- are old or missing it may read a table from end to end, or walk along the wrong index. So only walks along indexes are
-- left to choose from, and where two tables meet, the statement says which is first (a LATERAL with OFFSET 0 stays behind
-- what it refers to).
--
-- Ocean's own connections are set up so when they are made (`PLANS` in options.py). To do it for each call, as the functions
-- below do for connections that are a pooler's, takes a tenth of a millisecond. Nobody else switches off sorting.
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
