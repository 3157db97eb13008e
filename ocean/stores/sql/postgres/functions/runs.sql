-- A run and all that its readers see of it.
CREATE OR REPLACE FUNCTION ocean_shown(r runs) RETURNS json LANGUAGE sql STABLE AS $$
  SELECT json_build_object(
    'run', row_to_json(r),
    'details', (SELECT json_build_object('output', d.output, 'error', d.error, 'dedupe_key', d.dedupe_key,
      'retry_of', d.retry_of) FROM ocean_run_details d WHERE d.run_id = r.run_id),
    'attributes', coalesce((SELECT json_agg(json_build_array(a.name, a.value) ORDER BY a.name)
      FROM ocean_attributes a WHERE a.run_id = r.run_id), '[]'),
    'keys', coalesce((SELECT json_agg(json_build_array(k.key, k.hold) ORDER BY k.place)
      FROM ocean_run_keys k WHERE k.run_id = r.run_id), '[]'))
$$;
