#!/usr/bin/env bash
# Makes the virtual environment that everything in launch/ runs in.
#
#   launch/setup.sh [--dry-run] [VENV]      VENV: .venv in the checkout
#
# The first time: newest Python on PATH, packages at the versions that
# launch/requirements.txt pins, then this project in place. Later it returns at
# once, unless that file or setup.cfg has changed. May be interrupted at any
# moment and started twice at once. Settings, from the environment:
#
#   PYTHON=...         the Python to make VENV with; 3.11 or later
#   ACCELERATOR=...    cpu, cuda12, cuda13 or tpu, instead of what is found here
#
# --dry-run prints the commands that would install. Exits with 77 when the
# machine or the settings are not right, with pip's code when pip fails.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lock=$root/launch/requirements.txt
extras=analysis,data,test  # what experiments and tests need
dry_run=
if [ "${1:-}" = --dry-run ]; then
  dry_run=yes
  shift
fi
venv=${1:-$root/.venv}
state=$venv/rmc_jax-setup  # "unfinished", or what is installed, as in `wanted`

main() {
  check_settings
  if is_complete; then return; fi
  if [ -n "$dry_run" ]; then
    install
    return
  fi
  hold_lock
  if is_complete; then return; fi  # another process was quicker
  make_venv
  install
  wanted >"$state"
  say "ready: $venv"
}

check_settings() {
  local version='import sys; print(sys.version_info[:2])'
  case ${ACCELERATOR:-cpu} in
    cpu | cuda12 | cuda13 | tpu) ;;
    *) fail "ACCELERATOR=$ACCELERATOR is none of cpu, cuda12, cuda13, tpu" ;;
  esac
  if [ -z "${PYTHON:-}" ]; then return; fi
  if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    2>/dev/null; then
    fail "PYTHON=$PYTHON does not run or is older than Python 3.11"
  fi
  if [ -x "$venv/bin/python" ] &&
    [ "$("$PYTHON" -c "$version")" != \
      "$("$venv/bin/python" -c "$version")" ]; then
    fail "$venv was made with another Python than PYTHON=$PYTHON;" \
      'to change over, remove it first'
  fi
}

# Any accelerator will do that was chosen before, unless one is asked for now.
is_complete() {
  [ -x "$venv/bin/python" ] && [ -f "$state" ] &&
    [ "$(cat "$state")" = "$(wanted "$(sed -n 2p "$state")")" ]
}

# Two lines: a checksum of all that decides what is installed; the accelerator.
wanted() {
  (echo "$root $extras" && cat "$lock" "$root/setup.cfg") | cksum
  echo "${ACCELERATOR:-${1:-$(accelerator)}}"
}

# One set-up at a time for each environment. The kernel frees the lock when this
# process ends, however it ends, so nothing is left behind to be cleared.
hold_lock() {
  local python
  python=$(base_python)
  exec 9>"$venv.lock"
  "$python" - <<'PYTHON'
import fcntl
import sys

try:
  fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
  print('setup: waiting for another set-up to end', file=sys.stderr)
  fcntl.flock(9, fcntl.LOCK_EX)
PYTHON
}

# Leaves a VENV that runs, marked unfinished. One made by hand is not marked, so
# it is never removed.
make_venv() {
  local python
  if [ -e "$venv" ] && ! [ -e "$venv/pyvenv.cfg" ] && ! [ -e "$state" ]; then
    fail "$venv is there and is no virtual environment"
  fi
  # pip trusts what an interrupted pip left, so such a start begins again.
  if [ "$(cat "$state" 2>/dev/null)" = unfinished ]; then
    say "an earlier set-up did not end: making $venv again"
    rm -rf "$venv"
  elif [ -e "$venv" ] && ! "$venv/bin/python" -c '' 2>/dev/null; then
    say "the Python of $venv does not run any more: making it again"
    rm -rf "$venv"
  fi
  if [ -e "$venv" ]; then
    say "bringing $venv up to date"
    if [ -e "$state" ]; then echo unfinished >"$state"; fi
    return
  fi
  python=$(base_python)
  say "making $venv with $("$python" -V) ($python)"
  mkdir -p "$venv"
  echo unfinished >"$state"
  "$python" -m venv "$venv"
}

base_python() {
  if [ -n "${PYTHON:-}" ]; then
    echo "$PYTHON"
  elif ! "$root/launch/find_python.sh" 3.11 3.14; then
    fail 'found no Python 3.11 to 3.14 that runs and can make virtual' \
      'environments (on Debian and Ubuntu: apt install python3-venv);' \
      'install one or name it with PYTHON=/path/to/python'
  fi
}

install() {
  local chosen all=$extras
  chosen=${ACCELERATOR:-$(accelerator)}
  [ "$chosen" = cpu ] || all=$all,$chosen
  say "installing the pinned packages for $chosen (first time: a few minutes)"
  # The pinned setuptools, so that building the project downloads nothing else.
  pip_install setuptools
  pip_install --no-build-isolation --editable "${root}[$all]"
}

pip_install() {
  ${dry_run:+echo} "$venv/bin/python" -m pip install --quiet \
    --disable-pip-version-check --no-input --constraint "$lock" "$@" >&2
}

# Which of JAX's builds this machine can use.
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
    # Google's number, on its network cards too; then the TPUs, v2 to v7.
    [ "$(cat "$device/vendor" 2>/dev/null)" = 0x1ae0 ] || continue
    case $(cat "$device/device") in
      0x0027 | 0x0056 | 0x005e | 0x0062 | 0x0063 | 0x006f | 0x0076) return 0 ;;
    esac
  done
  return 1
}

say() {
  echo "setup: $*" >&2
}

fail() {
  say "$*"
  exit 77
}

main
