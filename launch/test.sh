#!/usr/bin/env bash
# Runs all checks; makes the virtual environment first if needed.
#
#   launch/test.sh                    all checks; an hour on two cores
#   launch/test.sh PYTEST_ARG...      only pytest, such as: tests/cores -k gate
#
# The checks are format, lint, types, the quick tests, the slow tests, those with
# several processes, then the quick tests of the package under a second Python, if
# one is found: 3.11, which gets JAX 0.10, or 3.12 and later, which get the newest.
# SECOND_PYTHON=PATH selects it and SECOND_PYTHON=none skips it. launch/parity.sh
# runs the comparison with the authors' module.
#
# Prints one line for each section at the end. Exits with 0 if all passed.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
slow='slow or multiprocess or live'
summary=
failed=0

main() {
  launch/setup.sh
  if [ $# -gt 0 ]; then
    exec .venv/bin/python -m pytest "$@"
  fi

  section format .venv/bin/python -m ruff format --check
  section lint .venv/bin/python -m ruff check
  section types .venv/bin/python -m pyright --pythonpath .venv/bin/python
  section tests .venv/bin/python -m pytest -q -n 2 -m "not ($slow)"
  section 'slow tests' .venv/bin/python -m pytest -q -n 2 \
    -m 'slow and not (multiprocess or live)'
  # One at a time, as a test has several processes.
  section 'multiprocess tests' .venv/bin/python -m pytest -q \
    -m 'multiprocess and not live'
  second_python

  echo
  echo '=== summary'
  printf '%s' "$summary"
  exit "$failed"
}

# section NAME COMMAND...: adds the last line of the command to the summary.
section() {
  local name=$1 log result=ok
  shift
  log=$(mktemp)
  echo
  echo "=== $name"
  "$@" 2>&1 | tee "$log" || {
    result=FAILED
    failed=1
  }
  summary+=$(printf '%-8s%-28s%s' "$result" "$name" "$(tail -n 1 "$log")")$'\n'
  rm "$log"
}

# JAX 0.10 is the newest JAX for Python 3.11.
second_python() {
  local python=${SECOND_PYTHON:-} version venv oldest=3.11 newest=3.11
  if [ -z "$python" ]; then
    if .venv/bin/python -c 'import sys; exit(sys.version_info >= (3, 12))'; then
      oldest=3.12 newest=3.14
    fi
    python=$(launch/find_python.sh "$oldest" "$newest" || echo none)
  fi
  if [ "$python" = none ]; then
    summary+=$(printf '%-8s%s' '-' 'second Python: none')$'\n'
    return
  fi
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  venv=.venv-$version
  PYTHON=$python launch/setup.sh "$root/$venv"
  section "tests, Python $version" \
    "$venv/bin/python" -m pytest -q -n 2 -m "not ($slow)" \
    --ignore=tests/experiments --ignore=tests/launch
}

main "$@"
