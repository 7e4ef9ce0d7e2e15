#!/usr/bin/env bash
# Goal: the NEON kernels equal the scalar reference to the last bit, shown without an AArch64 machine: the kernels' tests,
# built by the cross compiler, run under qemu-user. Also: no object of theirs holds a symbol that the linker could merge.
#
#   neon.sh [--gtest_filter=…]
#
# Needs Debian's qemu-user, libstdc++-12-dev-arm64-cross, libc6-dev-arm64-cross and googletest; root installs what is missing.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
build=build/neon
packages=(qemu-user libstdc++-12-dev-arm64-cross libc6-dev-arm64-cross googletest lld-19 llvm-19)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if ((${#missing[@]} > 0)); then
  ((EUID == 0)) || { echo "neon: install ${missing[*]}" >&2; exit 1; }
  apt-get install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

cmake -G Ninja -S tests/neon -B "$build" -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_FLAGS_RELEASE=-O2 >/dev/null
ninja -C "$build" kernels_test usable_kernels | tail -n 1
objects=("$build"/src/kernels/CMakeFiles/headrace_kernels.dir/neon/*.o)
if llvm-nm-19 -C "${objects[@]}" | grep -E '^[0-9a-f ]* [WVu] '; then
  echo "neon: the symbols above could be merged with other objects' copies" >&2
  exit 1
fi
# As qemu's processor with dot products, then as one without them, where the reference alone is usable.
emulate() { qemu-aarch64 -cpu "$1" -L /usr/aarch64-linux-gnu "${@:2}"; }
for cpu in max cortex-a72; do
  tables=$(emulate "$cpu" "$build/usable_kernels" | paste -sd ' ')
  echo "qemu's $cpu: $tables"
  [[ $cpu != max || $tables == 'reference neon' ]] || { echo "neon: the table is not in use" >&2; exit 1; }
  emulate "$cpu" "$build/src/kernels/kernels_test" --gtest_brief=1 "$@"
done
