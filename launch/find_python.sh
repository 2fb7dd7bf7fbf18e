#!/usr/bin/env bash
# Prints the newest working Python from version $1 to version $2, both included:
#
#   launch/find_python.sh 3.11 3.14
#
# Looks at every Python on PATH and, if none will do, at pyenv's. A
# candidate must really run (a pyenv shim may not) and be able to make virtual
# environments. Prints nothing and exits with 1 when there is none.

set -euo pipefail

lowest=${1:?usage: find_python.sh LOWEST NEWEST, for example 3.11 3.14}
newest=${2:?usage: find_python.sh LOWEST NEWEST, for example 3.11 3.14}

main() {
  local found
  found=$(on_path | newest_of)
  [ -n "$found" ] || found=$(in_pyenv | newest_of)
  [ -n "$found" ] || exit 1
  echo "$found"
}

on_path() {
  local minor
  for minor in 14 13 12 11; do
    type -aP "python3.$minor" || true
  done
  type -aP python3 || true
  type -aP python || true
}

in_pyenv() {
  local root=${PYENV_ROOT:-}
  [ -n "$root" ] || root=$(pyenv root 2>/dev/null || echo "${HOME:-}/.pyenv")
  ls -d "$root"/versions/3.*/bin/python3 2>/dev/null || true
}

# Reads candidates, writes the path of the newest that passes.
newest_of() {
  local candidate
  while read -r candidate; do
    "$candidate" - "$lowest" "$newest" 2>/dev/null <<'PYTHON' || true
import ensurepip, sys, sysconfig, venv

lowest, newest = (tuple(map(int, v.split('.'))) for v in sys.argv[1:])
ours = sys.version_info[:2]
# Our dependencies have no wheels for the builds without the global lock.
if lowest <= ours <= newest and not sysconfig.get_config_var('Py_GIL_DISABLED'):
  # In an active virtual environment: the Python it was made from.
  print('%03d' % ours[1], getattr(sys, '_base_executable', sys.executable))
PYTHON
  done | sort -s -r -k1,1 | head -n 1 | cut -d' ' -f2-
}

main
