-- Counters: what a take is answered, and the counter after it. The arithmetic is ocean/state/counters.py's, in whole
-- numbers of any size; a test compares the two.

CREATE OR REPLACE FUNCTION ocean_ceil(a numeric, b numeric) RETURNS numeric LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN CASE WHEN a > 0 THEN div(a + b - 1, b) ELSE div(a, b) END;
END $$;

-- From when on a counter is worth as much as none; null for never.
CREATE OR REPLACE FUNCTION ocean_counter_expires_at(kind text, used bigint, at bigint, per_ms bigint, rate bigint)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN CASE kind
    WHEN 'steady' THEN at + ocean_ceil(used, rate)
    WHEN 'at_once' THEN (at / per_ms + 1) * per_ms
  END;
END $$;

CREATE OR REPLACE FUNCTION ocean_take_kind(t jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN CASE WHEN t->>'per_ms' IS NULL THEN 'total' ELSE t->>'refill' END;
END $$;

-- The counter that a take meets: none if it is over; of another kind it is refused.
CREATE OR REPLACE FUNCTION ocean_current_counter(c ocean_counters, t jsonb, now bigint) RETURNS ocean_counters
LANGUAGE plpgsql AS $$
BEGIN
  IF c.key IS NULL OR ocean_counter_expires_at(c.kind, c.used, c.at, c.per_ms, c.rate) <= now THEN
    RETURN NULL;
  END IF;
  IF c.kind <> ocean_take_kind(t) THEN
    PERFORM ocean_refuse('counter', json_build_object('counter', to_json(c), 'take', t, 'now', now));
  END IF;
  RETURN c;
END $$;

-- As of when, and how many units of a token that has `per_ms` of them, a steady counter owes.
CREATE OR REPLACE FUNCTION ocean_owed(c ocean_counters, per_ms bigint, now bigint) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN CASE WHEN c.key IS NULL THEN 0 ELSE ocean_ceil(
    greatest(c.used::numeric - greatest(now - c.at, 0)::numeric * c.rate, 0) * per_ms, c.per_ms) END;
END $$;

CREATE OR REPLACE FUNCTION ocean_decide(stored ocean_counters, t jsonb, now bigint) RETURNS ocean_taken
LANGUAGE plpgsql AS $$
DECLARE
  c ocean_counters := ocean_current_counter(stored, t, now);
  kind text := ocean_take_kind(t);
  n bigint := (t->>'n')::bigint;
  asked bigint := greatest((t->>'n')::bigint, 1);
  most bigint := (t->>'limit')::bigint;
  per_ms bigint := (t->>'per_ms')::bigint;
  at bigint := greatest(now, c.at);
  used bigint;
  owed numeric;
  room numeric;
BEGIN
  IF kind = 'total' THEN
    used := coalesce(c.used, 0);
    IF most IS NOT NULL AND used + asked > most THEN
      RETURN ROW(false, used, NULL, NULL, NULL, NULL, NULL, NULL)::ocean_taken;
    END IF;
    IF used + n > 9007199254740992 THEN
      PERFORM ocean_refuse('counter', json_build_object('counter', to_json(c), 'take', t, 'now', now));
    END IF;
    RETURN ROW(true, used + n, 0, kind, used + n, now, NULL, NULL)::ocean_taken;
  ELSIF kind = 'steady' THEN
    owed := ocean_owed(c, per_ms, now);
    room := (most - asked)::numeric * per_ms;
    IF c.key IS NOT NULL AND owed > room THEN
      RETURN ROW(false, ocean_ceil(owed, per_ms), c.at + ocean_ceil(c.used - div(room * c.per_ms, per_ms), c.rate) - now,
        NULL, NULL, NULL, NULL, NULL)::ocean_taken;
    END IF;
    owed := owed + n::numeric * per_ms;
    RETURN ROW(true, ocean_ceil(owed, per_ms), 0, kind, owed, at, per_ms, most)::ocean_taken;
  END IF;
  used := CASE WHEN c.at / per_ms = at / per_ms THEN c.used ELSE 0 END;
  IF used + asked > most THEN
    RETURN ROW(false, used, least((at / per_ms + 1) * per_ms,
      coalesce(ocean_counter_expires_at(c.kind, c.used, c.at, c.per_ms, c.rate), 0)) - now,
      NULL, NULL, NULL, NULL, NULL)::ocean_taken;
  END IF;
  RETURN ROW(true, used + n, 0, kind, used + n, at, per_ms, NULL)::ocean_taken;
END $$;

CREATE OR REPLACE FUNCTION ocean_put_counter(name text, kind text, owed bigint, at bigint, per_ms bigint, rate bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO ocean_counters (key, kind, used, at, per_ms, rate, expires_at)
  VALUES (name, kind, owed, at, per_ms, rate, ocean_counter_expires_at(kind, owed, at, per_ms, rate))
  ON CONFLICT (key) DO UPDATE SET kind = excluded.kind, used = excluded.used, at = excluded.at, per_ms = excluded.per_ms,
    rate = excluded.rate, expires_at = excluded.expires_at;
END $$;

CREATE OR REPLACE FUNCTION ocean_counter(name text) RETURNS ocean_counters LANGUAGE plpgsql AS $$
DECLARE
  c ocean_counters;
BEGIN
  SELECT * INTO c FROM ocean_counters k WHERE k.key = name;
  RETURN c;
END $$;

-- As it is answered: [ok, used, retry_after_ms].
CREATE OR REPLACE FUNCTION ocean_take(t jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  taken ocean_taken := ocean_decide(ocean_counter(t->>'key'), t, now);
BEGIN
  IF taken.ok AND (t->>'n')::bigint > 0 THEN
    PERFORM ocean_put_counter(t->>'key', taken.kind, taken.owed, taken.at, taken.per_ms, taken.rate);
  END IF;
  RETURN json_build_array(taken.ok, taken.used, taken.retry_after_ms);
END $$;

-- The keys of which not everything can be had that these takes ask for, one after another, in the order in which they
-- refused: [[key, [take, ok, used, retry]], …].
CREATE OR REPLACE FUNCTION ocean_refused_takes(takes jsonb, now bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  t jsonb;
  known jsonb := '{}';
  c ocean_counters;
  taken ocean_taken;
  refused jsonb := '[]';
BEGIN
  FOR t IN SELECT jsonb_array_elements(takes) LOOP
    IF known ? (t->>'key') THEN
      c := jsonb_populate_record(NULL::ocean_counters, nullif(known->(t->>'key'), 'null'));
    ELSE
      c := ocean_counter(t->>'key');
    END IF;
    taken := ocean_decide(c, t, now);
    IF taken.ok AND (t->>'n')::bigint > 0 THEN
      c := ROW(t->>'key', taken.kind, taken.owed, taken.at, taken.per_ms, taken.rate, NULL)::ocean_counters;
    ELSIF NOT taken.ok AND NOT refused @> jsonb_build_array(jsonb_build_array(t->>'key')) THEN
      refused := refused || jsonb_build_array(jsonb_build_array(t->>'key',
        jsonb_build_array(t, taken.ok, taken.used, taken.retry_after_ms)));
    END IF;
    known := known || jsonb_build_object(t->>'key', to_jsonb(c));
  END LOOP;
  RETURN refused;
END $$;

CREATE OR REPLACE FUNCTION ocean_by_key(refused jsonb) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN (SELECT json_object_agg(each->>0, each->1) FROM jsonb_array_elements(refused) each);
END $$;

-- Take tokens that may be free only later; answers when they are.
CREATE OR REPLACE FUNCTION ocean_promise(t jsonb, now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  c ocean_counters := ocean_current_counter(ocean_counter(t->>'key'), t, now);
  most bigint := (t->>'limit')::bigint;
  per_ms bigint := (t->>'per_ms')::bigint;
  at bigint := greatest(now, c.at);
  owed numeric := ocean_owed(c, per_ms, now) + (t->>'n')::numeric * per_ms;
  wait numeric := ocean_ceil(owed - most::numeric * per_ms, most);
BEGIN
  IF owed > 4611686018427387904 THEN
    PERFORM ocean_refuse('promise', json_build_object('counter', to_json(c), 'take', t, 'now', now));
  END IF;
  PERFORM ocean_put_counter(t->>'key', 'steady', owed::bigint, at, per_ms, most);
  RETURN CASE WHEN wait > 0 THEN at + wait ELSE now END;
END $$;
