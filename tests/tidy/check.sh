#!/usr/bin/env bash
# Format, clang-tidy and house rules over changed or all files. ./dev check calls it after the release preset is configured.
#
#   check.sh [--all]   changed: since this branch left origin/main, else since the last commit, and new files
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
JOBS=${JOBS:-$(nproc)}
BUILD=build/release

main() {
  local files sources failed=0
  if [[ ${1:-} == --all ]]; then files=$(git ls-files -co --exclude-standard); else files=$(changed_files); fi
  files=$(grep -E '^(src|apps|tests|benchmarks)/.*\.(h|cc)$' <<<"$files" | existing || true)
  sources=$(grep -E '\.cc$' <<<"$files" | compiled || true)
  [[ -n $files ]] || echo "check: no C++ file changed (--all takes every file)"
  check_format "$files" || failed=1
  check_lint "$sources" || failed=1
  python3 tests/tidy/tidy.py --build "$BUILD" || failed=1
  return "$failed"
}

changed_files() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD)
  { git diff --name-only "$base"; git ls-files -o --exclude-standard; } | sort -u
}
existing() { while IFS= read -r file; do [[ ! -f $file ]] || printf '%s\n' "$file"; done; }
# clang-tidy needs a compile command: sources that the release build does not know are left out.
compiled() {
  while IFS= read -r file; do
    ! grep -qF "\"file\": \"$PWD/$file\"" "$BUILD/compile_commands.json" || printf '%s\n' "$file"
  done
}

check_format() {
  [[ -n $1 ]] || return 0
  local bad
  bad=$(xargs clang-format-19 --dry-run -Werror <<<"$1" 2>&1 | grep -oE '^[^ :]+:[0-9]+' | sort -u -t: -k1,1 || true)
  echo "check: clang-format: $(wc -l <<<"$1") files, $(grep -c . <<<"$bad" || true) to mend"
  [[ -z $bad ]] || { sed 's/^/  first at /' <<<"$bad"; return 1; }
}

check_lint() {
  [[ -n $1 ]] || return 0
  local log=build/tidy/clang-tidy.log status=0
  mkdir -p build/tidy
  xargs -P "$JOBS" -n 1 clang-tidy-19 -p "$BUILD" --quiet --warnings-as-errors='*' <<<"$1" >"$log" 2>/dev/null || status=1
  # A header's finding comes once for each source that includes it: show it once.
  grep -E '(warning|error): ' "$log" | sed "s|^$PWD/||" | sort -u || true
  echo "check: clang-tidy: $(wc -l <<<"$1") sources, $(grep -E '(warning|error): ' "$log" | sort -u | wc -l) findings"
  return "$status"
}

main "$@"
