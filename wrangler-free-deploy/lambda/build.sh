#!/bin/sh
# Creates .build/ next to this script: this checkout and its dependencies, for Lambda's Python on x86_64.
# Add your own modules to .build/ afterwards.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
pip() { "${PYTHON:-python3}" -m pip --quiet --disable-pip-version-check "$@"; }

rm -rf "$here/.build"
pip wheel --no-deps --wheel-dir "$here/.build" "$here/../.."
pip install --target "$here/.build" --implementation cp --python-version 3.13 --only-binary=:all: --no-compile \
    --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 "$here"/.build/*.whl
rm "$here"/.build/*.whl
cp "$here/handler.py" "$here/run.sh" "$here/.build/"
