#!/bin/sh
# Started by the Lambda Web Adapter, which forwards requests once /healthz responds. The process is frozen between
# requests, so it runs no ticker and does no work after a response.
set -eu
cd "$(dirname "$0")"
exec python3 -m ocean serve --host 127.0.0.1 --no-ticker --poke 0s
