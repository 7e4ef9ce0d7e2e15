#!/usr/bin/env bash
# Goal: the two commands of the README work on a machine that has nothing but Debian 12 and git, and in how many minutes.
#
#   fresh_root.sh [test|serve|all|packages|shell]     default: all; packages stops after ./dev setup
#
# Builds a minimal Debian 12 root with debootstrap, clones the last commit into it and runs ./dev there, in namespaces of
# its own for mounts and processes. Needs root. How this machine reaches the package registries (apt sources, proxies,
# certificate authorities, pip, cargo and npm settings) is carried over; nothing else is, and no file with credentials.
# Environment: FRESH_ROOT_DIR (default build/fresh_root; keeps the bare root for the next run), FRESH_ROOT_PORT.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
WORK=${FRESH_ROOT_DIR:-$PWD/build/fresh_root}
PORT=${FRESH_ROOT_PORT:-18321}
BARE=$WORK/bare
MACHINE=$WORK/machine
WHAT=${1:-all}
TIMES=()

main() {
  [[ $EUID == 0 ]] || { echo "fresh_root: needs root (debootstrap, chroot)" >&2; exit 1; }
  mkdir -p "$WORK"
  timed "bare Debian 12 (debootstrap)" make_bare
  timed "copy of it, settings, clone" make_machine
  case $WHAT in
    packages) timed "./dev setup" inside ./dev setup ;;
    test) timed "./dev test" inside ./dev test ;;
    serve) both_serves ;;
    all)
      both_serves
      timed "./dev test, after serve" inside ./dev test
      ;;
    shell) inside bash ;;
    *) echo "fresh_root: test, serve, all, packages or shell" >&2; exit 1 ;;
  esac
  printf '\n%s\n' "fresh root, $(nproc) cores:"
  printf '  %s\n' "${TIMES[@]}"
}

timed() {
  local name=$1 start=$EPOCHSECONDS status=0
  shift
  "$@" || status=$?
  TIMES+=("$(printf '%-36s %4d s%s' "$name" $((EPOCHSECONDS - start)) "$( ((status == 0)) || echo "  FAILED ($status)")")")
  if ((status != 0)); then
    printf '  %s\n' "${TIMES[@]}"
    exit "$status"
  fi
}

make_bare() {
  [[ ! -f $BARE/.complete ]] || return 0
  command -v debootstrap >/dev/null || apt-get install -q -y --no-install-recommends debootstrap >/dev/null || return 1
  local mirror
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | awk '$2 == "bookworm" {print $1; exit}')
  rm -rf "$BARE"
  debootstrap --variant=minbase --include=ca-certificates,git bookworm "$BARE" $mirror >"$WORK/debootstrap.log" 2>&1 || {
    tail -n 5 "$WORK/debootstrap.log"
    return 1
  }
  touch "$BARE/.complete"
}

make_machine() {
  rm -rf "$MACHINE" && cp -a --reflink=auto "$BARE" "$MACHINE" || return 1
  carry_settings || return 1
  git clone -q --no-hardlinks . "$MACHINE/srv/headrace"
}

# The package clients' own configuration, so that they reach in there what they reach out here.
carry_settings() {
  local file
  rm -rf "$MACHINE"/etc/apt/sources.list "$MACHINE"/etc/apt/sources.list.d/*
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources \
    /etc/apt/trusted.gpg.d/* /etc/apt/keyrings/* $(grep -ls 'Acquire::' /etc/apt/apt.conf.d/* /etc/apt/apt.conf) \
    /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/npmrc /usr/local/share/ca-certificates/*; do
    [[ -f $file ]] && install -D -m 644 "$file" "$MACHINE$file"
  done
  for file in .config/pip/pip.conf .pip/pip.conf .cargo/config.toml .cargo/config; do
    [[ -f $HOME/$file ]] && install -D -m 644 "$HOME/$file" "$MACHINE/root/$file"
  done
  chroot "$MACHINE" update-ca-certificates >/dev/null 2>&1
}

carried_environment() {
  env | grep -E '^([a-z]+_proxy|[A-Z]+_PROXY|PIP_(CERT|INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|DEFAULT_TIMEOUT|PROXY)|CARGO_HTTP_[A-Z_]+|SSL_CERT_(FILE|DIR)|CURL_CA_BUNDLE|REQUESTS_CA_BUNDLE|GIT_SSL_CAINFO|NODE_EXTRA_CA_CERTS|JOBS)=' || true
}

# inside COMMAND: in the clone, on the fresh root. Mounts and processes vanish with the namespace. In the background
# its process becomes unshare's, so that ending it ends all of them.
inside() {
  local settings become=()
  mapfile -t settings < <(carried_environment)
  [[ $BASHPID == "$$" ]] || become=(exec)
  "${become[@]}" unshare --mount --pid --fork --kill-child bash -c '
    root=$1; shift
    mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount --make-rslave "$root/dev" || exit 1
    exec chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
      "$@"' inside "$MACHINE" "${settings[@]}" bash -c 'cd /srv/headrace && exec "$@"' command "$@"
}

both_serves() {
  timed "./dev serve, first" serve_until_ready
  timed "./dev serve, unchanged second" serve_until_ready
}

# Starts ./dev serve, waits until it answers, asks one question, stops it.
serve_until_ready() {
  local pid status=1
  if curl -s -o /dev/null --noproxy '*' --max-time 2 "http://127.0.0.1:$PORT/"; then
    echo "fresh_root: something listens on port $PORT already: set FRESH_ROOT_PORT" >&2
    return 1
  fi
  inside ./dev serve --port "$PORT" &
  pid=$!
  local start=${EPOCHREALTIME/./}
  while kill -0 "$pid" 2>/dev/null && ((${EPOCHREALTIME/./} - start < 3600 * 1000000)); do
    if curl -sf -o /dev/null --noproxy '*' --max-time 2 "http://127.0.0.1:$PORT/ready"; then
      echo "fresh_root: ready after $(((${EPOCHREALTIME/./} - start) / 1000)) ms"
      ask && status=0
      break
    fi
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null || true  # unshare blocks SIGTERM; its children die with it
  wait "$pid" 2>/dev/null || true
  return "$status"
}

ask() {
  local answer model
  model=$(curl -sf --noproxy '*' --max-time 10 "http://127.0.0.1:$PORT/v1/models" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["data"][0]["id"])') || return 1
  answer=$(curl -sf --noproxy '*' --max-time 120 "http://127.0.0.1:$PORT/v1/chat/completions" -H 'Content-Type: application/json' -d '{
    "model": "'"$model"'", "temperature": 0, "max_tokens": 24, "messages": [
      {"role": "system", "content": "You are a helpful assistant."},
      {"role": "user", "content": "What is the capital of France?"}]}') || return 1
  echo "fresh_root: $answer"
  [[ $answer == *Paris* ]]
}

main
