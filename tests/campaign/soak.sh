#!/usr/bin/env bash
# Goal: an hour at the edge of the KV pool loses nothing, computes little twice and takes no more memory at its end than at
# its beginning. (soak_test has a minute of it.)
#
#   soak.sh [SECONDS]     default 3600
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
[[ -n ${HEADRACE_TEST_MODEL:-} ]] || { echo "soak: no default model; ./dev setup fetches it" >&2; exit 1; }
./dev build release headrace
exec python3 tests/clients/soak.py "${1:-3600}"
