#!/usr/bin/env bash
# Times one thing, beside its baselines:
#
#   launch/benchmark.sh                        the unroll, at one size
#   launch/benchmark.sh unroll --sizes=all --output=results.json
#   launch/benchmark.sh BENCHMARK [FLAG]...    see: BENCHMARK --help
#
# Sets up first, where that has not been done: .venv; for `unroll` and `train` the
# original, as launch/parity.sh does; for `unroll` PyTorch, in .benchmark, at the
# versions that launch/benchmark_torch.txt pins. A baseline that cannot be set up
# is reported and left out. Settings, from the environment, further to those of
# launch/setup.sh and launch/parity.sh:
#
#   RMC_BENCHMARK_HOME=...    where PyTorch goes, instead of .benchmark
#
# Exits with the benchmark's code; with 77 when the machine or the settings are
# not right.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export RMC_BENCHMARK_HOME=${RMC_BENCHMARK_HOME:-$root/.benchmark}
pins=$root/launch/benchmark_torch.txt
torch=$RMC_BENCHMARK_HOME/torch
state=$RMC_BENCHMARK_HOME/installed  # the checksum of what is in it

main() {
  local benchmark=unroll
  case ${1:-} in
    '' | -*) ;;
    *)
      benchmark=$1
      shift
      ;;
  esac
  if ! is_benchmark "$benchmark"; then
    say "there is no benchmark '$benchmark'. There are:"
    for page in "$root"/experiments/benchmarks/*.py; do
      page=$(basename "$page" .py)
      if is_benchmark "$page"; then echo "  $page" >&2; fi
    done
    exit 77
  fi

  "$root/launch/setup.sh"
  case $benchmark in unroll | train)
    "$root/launch/parity.sh" --setup-only || say 'going on without the original'
  esac
  case $benchmark in unroll)
    set_up_torch || say 'going on without PyTorch'
  esac
  # From any folder, and whatever that folder holds: -P keeps it off the import
  # path. `exec` hands signals straight to the benchmark.
  export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
  exec "$root/.venv/bin/python" -P -m "experiments.benchmarks.$benchmark" "$@"
}

# Those that can be run, and not what they share.
is_benchmark() {
  grep -qs "^if __name__ == '__main__':" "$root/experiments/benchmarks/$1.py"
}

set_up_torch() {
  [ "$(cat "$state" 2>/dev/null)" = "$(cksum <"$pins")" ] && return
  say "making $torch (first time: a few minutes)"
  # From nothing each time, so that an interrupted start leaves no half of one.
  mkdir -p "$RMC_BENCHMARK_HOME" && rm -rf "$state" "$torch" &&
    "$root/.venv/bin/python" -m venv "$torch" &&
    "$torch/bin/python" -m pip install --quiet --disable-pip-version-check \
      --no-input --constraint "$pins" torch numpy >&2 &&
    cksum <"$pins" >"$state" && say "ready: $torch"
}

say() {
  echo "benchmark: $*" >&2
}

main "$@"
