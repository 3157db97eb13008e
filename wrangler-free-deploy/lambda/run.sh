#!/bin/sh
# Started by the Lambda Web Adapter, which hands it requests once /healthz answers. The process is frozen between
# requests, so it does nothing by itself and nothing behind an answer.
set -eu
cd "$(dirname "$0")"
exec python3 -m ocean serve --host 127.0.0.1 --no-ticker --poke 0s
