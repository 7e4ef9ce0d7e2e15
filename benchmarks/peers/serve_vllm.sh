#!/usr/bin/env bash
# Serves a Hugging Face folder (see gguf_to_hf.py for GGUF files) with vLLM's CPU build, in the foreground, on the loopback address.
# Usage: serve_vllm.sh MODEL_DIR [--port N] [--parallel N] [--threads N] [--ctx N] [more vllm options]
# VLLM_VENV names the virtual environment that install_peers.sh made, build/peers/venv-vllm by default.
# --ctx is the longest one request may get (prompt + output).
set -euo pipefail
model=${1:?usage: serve_vllm.sh MODEL_DIR [--port N] [--parallel N] [--threads N] [--ctx N]}
shift
port=8002 parallel=32 threads=$(nproc) ctx=4096 more=()
while (($#)); do
  case $1 in
    --port) port=$2; shift 2 ;;
    --parallel) parallel=$2; shift 2 ;;
    --threads) threads=$2; shift 2 ;;
    --ctx) ctx=$2; shift 2 ;;
    *) more+=("$1"); shift ;;
  esac
done
VLLM_VENV=${VLLM_VENV:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/build/peers/venv-vllm}
[[ -x $VLLM_VENV/bin/vllm ]] || { echo "serve_vllm: no vllm in $VLLM_VENV: install_peers.sh vllm" >&2; exit 1; }
# Intel's OpenMP and tcmalloc are what vLLM's CPU guide asks for; each is taken only where it is installed.
preload=()
for lib in "$VLLM_VENV/lib/libiomp5.so" "$(ldconfig -p | awk '/libtcmalloc_minimal.so.4/ { print $NF; exit }')"; do
  if [[ -e $lib ]]; then preload+=("$lib"); fi
done
export LD_PRELOAD=$(IFS=:; echo "${preload[*]}")
export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-3} # GiB
export VLLM_CPU_OMP_THREADS_BIND=${VLLM_CPU_OMP_THREADS_BIND:-0-$((threads - 1))}
export VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_LOGGING_LEVEL=${VLLM_LOGGING_LEVEL:-WARNING}
export PATH=$VLLM_VENV/bin:$PATH # torch.compile calls ninja
exec "$VLLM_VENV/bin/vllm" serve "$model" --host 127.0.0.1 --port "$port" --served-model-name model --dtype bfloat16 \
  --max-model-len "$ctx" --max-num-seqs "$parallel" --enable-prefix-caching --disable-uvicorn-access-log "${more[@]}"
