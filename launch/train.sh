#!/usr/bin/env bash
# Trains an experiment, setting up first where that has not been done.
#
#   launch/train.sh                                  Nth Farthest, sized to fit
#   launch/train.sh nth_farthest --preset=quick_lstm
#   launch/train.sh EXPERIMENT [FLAG]...             see: EXPERIMENT --help
#
# Exits with the trainer's code: 0 done, 75 preempted and resumable, 76 diverged
# and 77 configuration error; anything else is a crash.

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
  echo "train.sh: there is no experiment '$experiment'. There are:" >&2
  for page in "$root"/experiments/*/sweep.py; do
    echo "  $(basename "$(dirname "$page")")" >&2
  done
  exit 77
fi

"$root/launch/setup.sh"

# From any folder, and whatever that folder holds: -P keeps it off the import
# path. `exec` hands signals straight to the trainer.
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
# Large pages, which make training on a CPU up to a fifth faster; glibc reads this
# when a program starts, anything else ignores it.
export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}
exec "$root/.venv/bin/python" -P -m "experiments.$experiment.train" "$@"
