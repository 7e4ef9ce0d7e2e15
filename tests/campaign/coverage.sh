#!/usr/bin/env bash
# Line coverage of src/ and apps/ by all of ctest, tests themselves left out: a table per room and the worst files.
#
#   ./dev campaign coverage [REGEX]    REGEX: only the tests whose name matches it
#
# Fails when a test fails or fewer than 85 % of the lines are run.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
BUILD=build/coverage
PROFILES=$PWD/$BUILD/profiles
LINES_PERCENT_MIN=85

main() {
  local status=0
  cmake --preset coverage >/dev/null
  ninja -C "$BUILD" -j "${JOBS:-$(nproc)}" | tail -n 1
  rm -rf "$PROFILES"
  mkdir -p "$PROFILES"
  # Many processes run the same binary: %4m lets them share four files, which they merge as they end. The house rules
  # run nothing of ours, and would compile every header with these flags.
  LLVM_PROFILE_FILE=$PROFILES/%4m.profraw ctest --test-dir "$BUILD" -j "${JOBS:-$(nproc)}" ${1:+-R "$1"} -E '^tidy' \
    --output-on-failure || status=$?
  llvm-profdata-19 merge -sparse "$PROFILES"/*.profraw -o "$BUILD/all.profdata"
  mapfile -t binaries < <(instrumented)
  # shellcheck disable=SC2046  # one word for each binary
  llvm-cov-19 export -summary-only -instr-profile "$BUILD/all.profdata" "${binaries[0]}" \
    $(printf -- '-object %s ' "${binaries[@]:1}") >"$BUILD/coverage.json"
  python3 tests/campaign/coverage_table.py "$BUILD/coverage.json" --percent-min "$LINES_PERCENT_MIN" || status=1
  return "$status"
}

# The program and the tests of the rooms: what has coverage data in it.
instrumented() {
  find "$BUILD" -maxdepth 4 -type f -perm -u+x \( -name headrace -o -name '*_test' \) -not -path '*/CMakeFiles/*' | sort
}

main "$@"
