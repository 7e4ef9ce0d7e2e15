#!/usr/bin/env bash
# Goal: no data race in any room: every test of C++ under the thread sanitizer, the server's with its loop, compute
# threads and text threads included.
#
#   ./dev campaign tsan [REGEX]    REGEX: only the tests whose name matches it
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
BUILD=build/tsan
cmake --preset tsan >/dev/null
ninja -C "$BUILD" -j "${JOBS:-$(nproc)}" | tail -n 1
# tidy compiles every header, the laws compare bits of a model at a fiftieth of the speed, the tests of the planted bugs end
# by the clock and run in their rooms anyway, the servers of python are the release build's matter.
HEADRACE_SANITIZED=1 TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/campaign/tsan.supp ctest --test-dir "$BUILD" -j "${JOBS:-$(nproc)}" \
  ${1:+-R "$1"} -E '^(tidy|laws|planted_bugs|.*_client_test|rounds_test|soak_test)' --output-on-failure
