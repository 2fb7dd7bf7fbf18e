#!/usr/bin/env bash
# Makes the virtual environment of the project.
#
#   launch/setup.sh [--dry-run] [VENV]      VENV: .venv in the checkout
#
# The first time it uses the newest Python on PATH, installs the packages that
# launch/requirements.txt pins and then this project in editable mode. Later it
# does nothing unless that file or setup.cfg has changed. It may be interrupted
# at any time and run several times at once. Environment variables:
#
#   PYTHON=PATH        Python to make VENV with; 3.11 or later
#   ACCELERATOR=NAME   cpu, cuda12, cuda13 or tpu, instead of detecting it
#
# --dry-run prints the commands of the installation. Exits with 77 if a setting
# or the machine is unsuitable, and with pip's code if pip fails.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lock=$root/launch/requirements.txt
extras=analysis,data,rl,test  # needed by experiments and tests
dry_run=
if [ "${1:-}" = --dry-run ]; then
  dry_run=yes
  shift
fi
venv=${1:-$root/.venv}
state=$venv/rmc_jax-setup  # "unfinished", or the output of `wanted`

main() {
  check_settings
  if is_complete; then return; fi
  if [ -n "$dry_run" ]; then
    install
    return
  fi
  acquire_lock
  if is_complete; then return; fi  # another process was faster
  make_venv
  install
  wanted >"$state"
  log "$venv is ready"
}

check_settings() {
  local version='import sys; print(sys.version_info[:2])'
  case ${ACCELERATOR:-cpu} in
    cpu | cuda12 | cuda13 | tpu) ;;
    *) fail "ACCELERATOR=$ACCELERATOR must be cpu, cuda12, cuda13 or tpu" ;;
  esac
  if [ -z "${PYTHON:-}" ]; then return; fi
  if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    2>/dev/null; then
    fail "PYTHON=$PYTHON must run and be Python 3.11 or later"
  fi
  if [ -x "$venv/bin/python" ] &&
    [ "$("$PYTHON" -c "$version")" != \
      "$("$venv/bin/python" -c "$version")" ]; then
    fail "PYTHON=$PYTHON is another version than the Python of $venv;" \
      'remove the folder to change the version'
  fi
}

# Accepts the accelerator chosen earlier unless ACCELERATOR is set.
is_complete() {
  [ -x "$venv/bin/python" ] && [ -f "$state" ] &&
    [ "$(cat "$state")" = "$(wanted "$(sed -n 2p "$state")")" ]
}

# Prints a checksum of everything that determines the packages, then the
# accelerator.
wanted() {
  (echo "$root $extras" && cat "$lock" "$root/setup.cfg") | cksum
  echo "${ACCELERATOR:-${1:-$(accelerator)}}"
}

# The kernel releases the lock when this process ends, so no stale lock remains.
acquire_lock() {
  local python
  python=$(base_python)
  exec 9>"$venv.lock"
  "$python" - <<'PYTHON'
import fcntl
import sys

try:
  fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
  print('setup: waiting for another setup', file=sys.stderr)
  fcntl.flock(9, fcntl.LOCK_EX)
PYTHON
}

# Makes a working VENV, marked unfinished. One that the user made is not marked,
# so it is never removed.
make_venv() {
  local python
  if [ -e "$venv" ] && ! [ -e "$venv/pyvenv.cfg" ] && ! [ -e "$state" ]; then
    fail "$venv exists and is not a virtual environment"
  fi
  # pip does not detect the remains of an interrupted pip, so start over.
  if [ "$(cat "$state" 2>/dev/null)" = unfinished ]; then
    log "the last setup was interrupted: remaking $venv"
    rm -rf "$venv"
  elif [ -e "$venv" ] && ! "$venv/bin/python" -c '' 2>/dev/null; then
    log "the Python of $venv does not run: remaking $venv"
    rm -rf "$venv"
  fi
  if [ -e "$venv" ]; then
    log "updating $venv"
    if [ -e "$state" ]; then echo unfinished >"$state"; fi
    return
  fi
  python=$(base_python)
  log "making $venv with $("$python" -V) ($python)"
  mkdir -p "$venv"
  echo unfinished >"$state"
  "$python" -m venv "$venv"
}

base_python() {
  if [ -n "${PYTHON:-}" ]; then
    echo "$PYTHON"
  elif ! "$root/launch/find_python.sh" 3.11 3.14; then
    fail 'found no working Python 3.11 to 3.14 with venv; install one (on' \
      'Debian and Ubuntu: apt install python3-venv) or set PYTHON=PATH'
  fi
}

install() {
  local chosen all=$extras
  chosen=${ACCELERATOR:-$(accelerator)}
  [ "$chosen" = cpu ] || all=$all,$chosen
  log "installing the pinned packages for $chosen (first time: a few minutes)"
  # The pinned setuptools builds the project, without build isolation.
  pip_install setuptools
  pip_install --no-build-isolation --editable "${root}[$all]"
}

pip_install() {
  ${dry_run:+echo} "$venv/bin/python" -m pip install --quiet \
    --disable-pip-version-check --no-input --constraint "$lock" "$@" >&2
}

# Prints the build of JAX for this machine.
accelerator() {
  local gpus
  if has_tpu; then
    echo tpu
  elif gpus=$(nvidia-smi --query-gpu=driver_version,compute_cap \
    --format=csv,noheader 2>/dev/null); then
    # CUDA 13 needs driver 580 and GPUs of compute capability 7.5 or later.
    echo "$gpus" | awk -F '[., ]+' '
      NR == 1 { cuda = $1 + 0 >= 525 ? "cuda12" : "cpu" }
      NR == 1 && $1 + 0 >= 580 { cuda = "cuda13" }
      cuda == "cuda13" && $(NF - 1) * 10 + $NF < 75 { cuda = "cuda12" }
      END { print cuda }'
  else
    echo cpu
  fi
}

has_tpu() {
  local device
  for device in /sys/bus/pci/devices/*; do
    # Google also makes network cards; the devices below are TPU v2 to v7.
    [ "$(cat "$device/vendor" 2>/dev/null)" = 0x1ae0 ] || continue
    case $(cat "$device/device") in
      0x0027 | 0x0056 | 0x005e | 0x0062 | 0x0063 | 0x006f | 0x0076) return 0 ;;
    esac
  done
  return 1
}

log() {
  echo "setup: $*" >&2
}

fail() {
  log "$*"
  exit 77
}

main
