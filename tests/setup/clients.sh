# shellcheck shell=bash
# Python and Node packages for tests that speak to the server through the official clients. Sourced by ./dev: uses its
# begin, finish, say and apt_install.

NODE_MIN="20.19"

# A client that cannot be had is no failure: its test says why it skips.
ensure_clients() {
  [[ ! -f tests/clients/requirements.txt ]] || ensure_venv venv tests/clients/requirements.txt || true
  [[ ! -f tests/clients/package.json ]] || ensure_node || true
}

# ensure_venv NAME REQUIREMENTS: build/NAME holds exactly the pinned packages; HEADRACE_PYTHON points at its python.
ensure_venv() {
  local venv=$ROOT/build/$1 requirements=$2 log=$STAMPS/$1.log key
  key=$(sha256sum <"$requirements")
  if [[ ! -f $venv/.complete || $(<"$venv/.complete") != "$key" ]]; then
    begin "Python packages of $requirements"
    rm -rf "$venv"
    if ! { /usr/bin/python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check -r "$requirements"; } \
      >"$log" 2>&1; then
      tail -n 5 "$log" | sed 's/^/   | /' >&2
      finish "not to be had: pip failed (build/.setup/$1.log); what needs them says that it skips"
      return 1
    fi
    echo "$key" >"$venv/.complete"
    finish
  fi
  export HEADRACE_PYTHON=$venv/bin/python
}

# Node for the JavaScript clients: the machine's, else npm's node@22 on top of Debian's npm. HEADRACE_NODE points at it.
ensure_node() {
  local log=$STAMPS/node.log key clients=tests/clients
  key="$(cat $clients/package.json $clients/package-lock.json 2>/dev/null | sha256sum)"
  local complete=$ROOT/build/node/.complete
  [[ -d build/node/node_modules/.bin ]] && export PATH="$ROOT/build/node/node_modules/.bin:$PATH"
  if [[ ! -f $complete || $(<"$complete") != "$key" ]] || ! node_is_new_enough; then
    begin "Node $NODE_MIN or newer and the packages of $clients"
    mkdir -p build/node
    if ! install_node >"$log" 2>&1; then
      tail -n 5 "$log" | sed 's/^/   | /' >&2
      finish "not to be had (build/.setup/node.log); tests that need it say that they skip"
      return 1
    fi
    echo "$key" >"$complete"
    finish "node $(node --version)"
  fi
  HEADRACE_NODE=$(command -v node)
  export HEADRACE_NODE
}
install_node() {
  local clients=tests/clients
  if ! command -v npm >/dev/null && is_debian_12; then apt_install npm || return 1; fi
  if ! node_is_new_enough; then
    npm install --no-audit --no-fund --prefix "$ROOT/build/node" node@22 || return 1
    export PATH="$ROOT/build/node/node_modules/.bin:$PATH"
    hash -r
  fi
  node_is_new_enough || return 1
  if [[ -f $clients/package-lock.json ]]; then npm ci --no-audit --no-fund --prefix $clients
  else npm install --no-audit --no-fund --no-package-lock --prefix $clients; fi
}
node_is_new_enough() {
  local have
  have=$(node --version 2>/dev/null) && [[ $(printf '%s\n' "$NODE_MIN" "${have#v}" | sort -V | head -1) == "$NODE_MIN" ]]
}
