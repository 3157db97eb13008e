#!/bin/sh
# A worker that needs only curl and sed: sh worker.sh URL CLAIM COMMAND..., where CLAIM is the body of POST /v1/leases.
# COMMAND reads the lease and prints the run's output, both as JSON; if it fails, the run is retried.
url=$1 claim=$2
shift 2

# Posts the second argument. The lease id is a secret: curl reads the address from a file, which `ps` does not show.
post() {
  printf '%s' "$2" | curl -fsS --max-time 90 --retry 5 --retry-connrefused -H 'Content-Type: application/json' \
    --data-binary @- --config /dev/fd/3 3<<URL
url = "$url/v1/leases$1"
URL
}

while :; do
  response=$(post "" "$claim") || { sleep 1 && continue; }
  id=$(printf '%s' "$response" | sed -n 's/^{"leases":\[{"leaseId":"\([A-Za-z0-9_-]*\)".*/\1/p')
  [ "$id" ] || continue
  # Renews until the worker ends, by whatever cause.
  while sleep "${RENEW_S:-10}" && kill -0 $$; do post "/$id/renew" '{}'; done >/dev/null 2>&1 &
  lease=${response#*\[}
  if output=$(printf '%s' "${lease%]?}" | "$@"); then
    outcome='{"type":"done","output":'$output'}'
  else
    outcome='{"type":"retry","error":"exit '$?'"}'
  fi
  kill $!
  post "/$id/complete" "{\"outcome\":$outcome}" >/dev/null || echo "worker.sh: the result was dropped" >&2
done
