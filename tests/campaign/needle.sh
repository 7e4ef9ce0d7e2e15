#!/usr/bin/env bash
# Goal: long context is served exactly: numbers hidden in texts of 4,096 and 16,384 tokens are found by Gemma 3 270M, five
# layers of six with a window of 512, and ranked as the fp32 oracle ranks them.
#
#   ./dev campaign needle [TOKENS ...]    default 4096 16384; the oracle takes minutes of 16384
#
# HEADRACE_GEMMA_MODEL names the file; without it benchmarks/peers/fetch_models.sh brings it.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
GEMMA=${HEADRACE_GEMMA_MODEL:-build/peers/models/gemma3-270m-base/gemma-3-270m-q4_k_m.gguf}
VENV=build/venv-oracle

main() {
  [[ -f $GEMMA ]] || bash benchmarks/peers/fetch_models.sh gemma3 || { echo "needle: no Gemma 3 270M; HEADRACE_GEMMA_MODEL names a file of yours" >&2; exit 1; }
  if [[ ! -f $VENV/.complete ]]; then
    python3 -m venv "$VENV" && "$VENV/bin/pip" install -q --disable-pip-version-check -r tests/oracle/requirements.txt
    touch "$VENV/.complete"
  fi
  ./dev build release headrace_logits
  mkdir -p build/campaign
  exec "$VENV/bin/python" tests/campaign/needle.py "$GEMMA" --dump-logits build/release/headrace_logits --json build/campaign/needle.json \
    ${1:+--tokens "$@"}
}

main "$@"
