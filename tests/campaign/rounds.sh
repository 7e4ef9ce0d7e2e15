#!/usr/bin/env bash
# Goal: the long form of field fault O-04: visitors that connect, leave and cancel leave nothing behind on the real program
# with the default model. (serve_test has the 200 rounds that the fault asks for on a script, rounds_test 100 on the model.)
#
#   rounds.sh [ROUNDS]     default 1000
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
[[ -n ${HEADRACE_TEST_MODEL:-} ]] || { echo "rounds: no default model; ./dev setup fetches it" >&2; exit 1; }
./dev build release headrace
exec python3 tests/clients/rounds.py "${1:-1000}"
