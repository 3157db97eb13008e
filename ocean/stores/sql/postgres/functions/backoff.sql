-- Retries: whether there is another attempt, and when. See the Python module `backoff`.

CREATE OR REPLACE FUNCTION ocean_is_spent(attempt bigint, max_attempts bigint) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN max_attempts IS NOT NULL AND attempt >= max_attempts;
END $$;

-- Returns the delay after the `attempt`-th failure. Jitter comes from a hash, spread evenly over runs, ticks and
-- attempts.
CREATE OR REPLACE FUNCTION ocean_delay_for(policy jsonb, run_id text, tick bigint, attempt bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  delays jsonb := policy->'delays_ms';
  base bigint;
  digest bytea := sha256(convert_to(run_id || chr(31) || tick || chr(31) || attempt, 'UTF8'));
  roll double precision := ('x' || encode(substr(digest, 1, 6), 'hex'))::bit(48)::bigint / 281474976710656.0::double precision;
BEGIN
  IF jsonb_typeof(delays) = 'array' THEN
    base := (delays->>(least(attempt, jsonb_array_length(delays)) - 1)::int)::bigint;
  ELSE
    base := least((policy->>'backoff_ms')::numeric * 2::numeric ^ least(attempt - 1, 40)::numeric,
      (policy->>'backoff_max_ms')::numeric)::bigint;
  END IF;
  RETURN base + trunc(base::double precision * (policy->>'jitter')::double precision * roll)::bigint;
END $$;
