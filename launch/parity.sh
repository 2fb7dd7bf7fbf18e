#!/usr/bin/env bash
# Compares our core with the authors' own Sonnet module, running beside it.
#
#   launch/parity.sh                  the whole suite; 15 minutes of processor time
#   launch/parity.sh FLAG...          flags of `python -m rmc_jax.parity`; --help
#   launch/parity.sh --setup-only     makes the environment of the original
#
# The first run makes that environment in .parity: Python 3.7 with untouched
# TensorFlow 1.15 and dm-sonnet 1.36 if the machine is an x86-64 with a Python 3.7
# (on PATH or among pyenv's); otherwise Python 3.11 to 3.13 with TensorFlow 2 and
# the shims of rmc_jax/parity/reference_runner.py. Later runs reuse it unless the
# pinned packages in launch/ or REFERENCE_PYTHON change. Environment variables:
#
#   REFERENCE_PYTHON=...   the Python for the original; 3.7, or 3.11 to 3.13
#   RMC_PARITY_HOME=...    where the environment goes, instead of .parity
#
# Exits with 0 only if every case passes, with 77 if the machine or the settings
# do not allow it, and with pip's code if pip fails.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export RMC_PARITY_HOME=${RMC_PARITY_HOME:-$root/.parity}
venv=$RMC_PARITY_HOME/reference
old_sonnet=$RMC_PARITY_HOME/sonnet-1.26
state=$RMC_PARITY_HOME/installed  # the output of `wanted` for the environment

main() {
  local python
  python=$(reference_python)
  if ! is_complete "$python"; then
    make_reference "$python"
    wanted "$python" >"$state"
    log "ready: $RMC_PARITY_HOME"
  fi
  if [ "${1:-}" = --setup-only ]; then return; fi

  "$root/launch/setup.sh"
  export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
  # The original has no build for accelerators here.
  JAX_PLATFORMS=cpu exec "$root/.venv/bin/python" -P -m rmc_jax.parity "$@"
}

reference_python() {
  local candidate
  if [ -n "${REFERENCE_PYTHON:-}" ]; then
    "$REFERENCE_PYTHON" -c '' ||
      fail "REFERENCE_PYTHON=$REFERENCE_PYTHON does not run"
    echo "$REFERENCE_PYTHON"
    return
  fi
  # The Python of the existing environment, if any.
  candidate=$(sed 's/ [0-9]* [0-9]*$//' "$state" 2>/dev/null || true)
  if [ -n "$candidate" ] && "$candidate" -c '' 2>/dev/null; then
    echo "$candidate"
    return
  fi
  if [ "$(uname -m)" = x86_64 ]; then
    while read -r candidate; do
      # A pyenv shim is on PATH even if its version is not selected.
      if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
        echo "$candidate"
        return
      fi
    done < <(type -aP python3.7)
    if "$root/launch/find_python.sh" 3.7 3.7; then return; fi
  fi
  "$root/launch/find_python.sh" 3.11 3.13 ||
    fail 'found neither a Python 3.7 nor a Python 3.11 to 3.13 that can make' \
      'virtual environments; install one or name it with' \
      'REFERENCE_PYTHON=/path/to/python'
}

is_complete() {
  [ -x "$venv/bin/python" ] && [ -d "$old_sonnet/sonnet" ] &&
    [ "$(cat "$state" 2>/dev/null)" = "$(wanted "$1")" ]
}

wanted() {
  echo "$1 $(cksum <"$(requirements "$1")")"
}

requirements() {
  case $("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])') in
    3.7) echo "$root/launch/parity_tensorflow1.txt" ;;
    3.11 | 3.12 | 3.13) echo "$root/launch/parity_tensorflow2.txt" ;;
    *) fail "$("$1" -V) runs neither TensorFlow 1.15 nor 2.21;" \
      'name a 3.7 or a 3.11 to 3.13 with REFERENCE_PYTHON' ;;
  esac
}

# Starts from scratch, so an interrupted run leaves no partial environment.
make_reference() {
  local python=$1 packages
  packages=$(requirements "$python")
  log "making $venv with $("$python" -V 2>&1) ($python)"
  mkdir -p "$RMC_PARITY_HOME"
  rm -rf "$state" "$venv" "$old_sonnet"
  "$python" -m venv "$venv"
  log 'installing TensorFlow and dm-sonnet (first time: a minute or more)'
  # The list is complete; dm-sonnet's own requirements are those of 2019.
  pip_install --requirement "$packages"
  pip_install --target "$old_sonnet" dm-sonnet==1.26
}

pip_install() {
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-input --no-deps "$@" >&2
}

log() {
  echo "parity: $*" >&2
}

fail() {
  log "$*"
  exit 77
}

main "$@"
