#!/bin/sh
# A worker of curl and sed: sh worker.sh URL CLAIM COMMAND..., where CLAIM is the body of POST /v1/leases.
# COMMAND reads the lease and prints the run's output, both as JSON; if it fails, the run is tried again.
url=$1 ask=$2
shift 2

# Posts its second word. The id of a lease is a secret: curl reads the address from where no `ps` shows it.
post() {
  printf '%s' "$2" | curl -fsS --max-time 90 --retry 5 --retry-connrefused -H 'Content-Type: application/json' \
    --data-binary @- --config /dev/fd/3 3<<URL
url = "$url/v1/leases$1"
URL
}

while :; do
  answer=$(post "" "$ask") || { sleep 1 && continue; }
  id=$(printf '%s' "$answer" | sed -n 's/^{"leases":\[{"leaseId":"\([A-Za-z0-9_-]*\)".*/\1/p')
  [ "$id" ] || continue
  # Ends with the worker, however that ends: nobody keeps a lease for the dead.
  while sleep "${RENEW_S:-10}" && kill -0 $$; do post "/$id/renew" '{}'; done >/dev/null 2>&1 &
  lease=${answer#*\[}
  if output=$(printf '%s' "${lease%]?}" | "$@"); then
    outcome='{"type":"done","output":'$output'}'
  else
    outcome='{"type":"retry","error":"exit '$?'"}'
  fi
  kill $!
  post "/$id/complete" "{\"outcome\":$outcome}" >/dev/null || echo "worker.sh: dropped what it did" >&2
done
