#!/usr/bin/env bash
# Goal: the policies on recorded traffic, on virtual time. Mooncake's conversation hour at a quarter of its speed, with
# spread and with recorded arrivals: the order of the line beside first come, first served; and how fast it is simulated.
# Then 2,000 seeds of faults with every invariant checked, and the planted bugs. Needs the traces in
# HEADRACE_TRACES (default: ../shared/data/traces); without them that part is left out.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
cmake --preset release >/dev/null
ninja -C build/release headrace simulate_test planted_bugs >/dev/null
status=0
traces=${HEADRACE_TRACES:-../shared/data/traces}
if [[ -f $traces/mooncake_conversation.jsonl ]]; then
  python3 tests/campaign/simulate.py build/release/headrace "$traces/mooncake_conversation.jsonl" || status=1
else
  echo "no $traces/mooncake_conversation.jsonl: the policies on recorded traffic are left out"
fi
HEADRACE_SEEDS=2000 build/release/src/simulate/simulate_test --gtest_filter='*ManySeeds*' --gtest_brief=1 || status=1
build/release/tests/planted/planted_bugs || status=1
exit "$status"
