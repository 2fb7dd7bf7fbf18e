#!/usr/bin/env bash
# Runs a benchmark against its baselines:
#
#   launch/benchmark.sh                        the unroll, at one size
#   launch/benchmark.sh unroll --sizes=all --output=results.json
#   launch/benchmark.sh BENCHMARK [FLAG]...    see: BENCHMARK --help
#
# The first run installs .venv; for `unroll` and `train` the original, as
# launch/parity.sh does; and for `unroll` and `babi` PyTorch, in .benchmark, at
# the versions that launch/benchmark_torch.txt pins. A baseline that cannot be
# installed is reported and left out. Environment variables, besides those of
# launch/setup.sh and launch/parity.sh:
#
#   RMC_BENCHMARK_HOME=...    where to install PyTorch, instead of .benchmark
#
# Exits with the code of the benchmark, or with 77 for a wrong setting or an
# unsuitable machine.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export RMC_BENCHMARK_HOME=${RMC_BENCHMARK_HOME:-$root/.benchmark}
pins=$root/launch/benchmark_torch.txt
torch=$RMC_BENCHMARK_HOME/torch
state=$RMC_BENCHMARK_HOME/installed  # the checksum of the installed pins

main() {
  local benchmark=unroll
  case ${1:-} in
    '' | -*) ;;
    *)
      benchmark=$1
      shift
      ;;
  esac
  if ! benchmarks | grep -Fx -e "$benchmark" >/dev/null; then
    log "unknown benchmark '$benchmark'. Choose one of:"
    benchmarks | sed 's/^/  /' >&2
    exit 77
  fi

  "$root/launch/setup.sh"
  case $benchmark in unroll | train)
    "$root/launch/parity.sh" --setup-only || log 'the original will be left out'
  esac
  case $benchmark in unroll | babi)
    set_up_torch || log 'PyTorch will be left out'
  esac
  # -P keeps the current folder off the import path. `exec` passes signals to
  # the benchmark.
  export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
  exec "$root/.venv/bin/python" -P -m "experiments.benchmarks.$benchmark" "$@"
}

# Lists the modules that are programs, not shared by programs.
benchmarks() {
  grep -l "^if __name__ == '__main__':" "$root"/experiments/benchmarks/*.py |
    sed 's|.*/||; s|\.py$||'
}

set_up_torch() {
  [ "$(cat "$state" 2>/dev/null)" = "$(cksum <"$pins")" ] && return
  log "installing $torch (a few minutes)"
  # Start afresh: an interrupted installation may have left a part.
  mkdir -p "$RMC_BENCHMARK_HOME" && rm -rf "$state" "$torch" &&
    "$root/.venv/bin/python" -m venv "$torch" &&
    "$torch/bin/python" -m pip install --quiet --disable-pip-version-check \
      --no-input --constraint "$pins" torch numpy >&2 &&
    cksum <"$pins" >"$state" && log "ready: $torch"
}

log() {
  echo "benchmark: $*" >&2
}

main "$@"
