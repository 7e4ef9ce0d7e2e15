#!/usr/bin/env bash
# Goal: the first law on the default model against the scalar reference too: the same tokens and logits for every
# instruction set, chunk size, thread count and arrival order. CI has the fast instruction sets and seeded models.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
[[ -n ${HEADRACE_TEST_MODEL:-} ]] || { echo "laws: no default model; ./dev setup fetches it" >&2; exit 1; }
./dev build release laws_test
HEADRACE_LAWS=whole exec build/release/tests/laws_test --gtest_filter='*DefaultModel*'
