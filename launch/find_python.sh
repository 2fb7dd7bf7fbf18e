#!/usr/bin/env bash
# Prints the path of the newest Python from version $1 to version $2, inclusive:
#
#   launch/find_python.sh 3.11 3.14
#
# Searches PATH, then pyenv. A Python qualifies if it runs, which a pyenv shim
# may not, and can make virtual environments. Without one, prints nothing and
# exits with 1.

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
  local name
  for name in python3.{14,13,12,11} python3 python; do
    type -aP "$name" || true
  done
}

in_pyenv() {
  local root=${PYENV_ROOT:-}
  [ -n "$root" ] || root=$(pyenv root 2>/dev/null || echo "${HOME:-}/.pyenv")
  ls -d "$root"/versions/3.*/bin/python3 2>/dev/null || true
}

# Reads candidates and prints the newest that qualifies.
newest_of() {
  local candidate
  while read -r candidate; do
    "$candidate" - "$lowest" "$newest" 2>/dev/null <<'PYTHON' || true
import ensurepip, sys, sysconfig, venv

lowest, newest = (tuple(map(int, v.split('.'))) for v in sys.argv[1:])
ours = sys.version_info[:2]
# The dependencies have no wheels for free-threaded builds.
if lowest <= ours <= newest and not sysconfig.get_config_var('Py_GIL_DISABLED'):
  # In a virtual environment, print the Python that it was made from.
  print('%03d' % ours[1], getattr(sys, '_base_executable', sys.executable))
PYTHON
  done | sort -s -r -k1,1 | head -n 1 | cut -d' ' -f2-
}

main
