#!/usr/bin/env bash
# Trains an experiment; makes the virtual environment first if needed.
#
#   launch/train.sh                       Nth Farthest, sized for the machine
#   launch/train.sh nth_farthest --preset=quick_lstm
#   launch/train.sh EXPERIMENT [FLAG]...  to list the flags: EXPERIMENT --help
#
# Exits with the trainer's code: 0 done, 75 preempted and resumable, 76 diverged
# and 77 configuration error; any other code is a crash.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

experiment=nth_farthest
case ${1:-} in
  '' | -*) ;;
  *)
    experiment=$1
    shift
    ;;
esac

if ! [ -f "$root/experiments/$experiment/sweep.py" ]; then
  echo "train.sh: unknown experiment '$experiment'; choose from:" >&2
  for page in "$root"/experiments/*/sweep.py; do
    echo "  $(basename "$(dirname "$page")")" >&2
  done
  exit 77
fi

"$root/launch/setup.sh"

# -P keeps the current folder off the import path. `exec` makes signals reach
# the trainer directly.
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
# Makes glibc use large pages, with which training on a CPU is up to a fifth
# faster.
export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}
exec "$root/.venv/bin/python" -P -m "experiments.$experiment.train" "$@"
