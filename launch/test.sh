#!/usr/bin/env bash
# Checks everything that must hold, setting up first where that is needed.
#
#   launch/test.sh                    all of it; half an hour on two cores
#   launch/test.sh PYTEST_ARG...      only pytest, as in: tests/cores -k gate
#
# All of it: format, lint, types, the tests that take seconds (the import contracts are
# one), then the slow ones; and the quick tests again on the other side of the
# support matrix (Python 3.11 with its last JAX, or 3.12 and later with the
# newest) where such a Python is found. SECOND_PYTHON=... names it;
# SECOND_PYTHON=none leaves it out. The comparison with the authors' own module
# is launch/parity.sh.
#
# Ends with one line a section. Exits with 0 only when all of them passed.

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
  section 'slow tests' .venv/bin/python -m pytest -q -m "($slow) and not live"
  second_python

  echo
  echo '=== summary'
  printf '%s' "$summary"
  exit "$failed"
}

# Runs the rest of the arguments under the name $1, and keeps its last line.
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

second_python() {
  local python version venv
  python=${SECOND_PYTHON:-$(other_python)}
  if [ "$python" = none ]; then
    summary+=$(printf '%-8s%s' '-' 'second Python: none')$'\n'
    return
  fi
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  venv=.venv-$version
  PYTHON=$python launch/setup.sh "$root/$venv"
  section "tests, Python $version" \
    "$venv/bin/python" -m pytest -q -n 2 -m "not ($slow)"
}

# Python 3.11 is the last for which JAX 0.10 is the newest.
other_python() {
  local is_311='import sys; sys.exit(sys.version_info[:2] != (3, 11))'
  if .venv/bin/python -c "$is_311"; then
    launch/find_python.sh 3.12 3.14 || echo none
  else
    launch/find_python.sh 3.11 3.11 || echo none
  fi
}

main "$@"
