#!/usr/bin/env bash
# A task of the job that launch/slurm.py submits: runs the trainer.
#
#   launch/slurm_task.sh COMMAND...
#
# Adds 125 to the exit codes of a run that must not be restarted, 76 and 77: srun
# returns the highest code of its tasks, and JAX aborts the peers of a task that
# exits, with 134. Signals have codes of at most 192.

# A single process has no peers, and a second SIGTERM would end it.
if [ "$SLURM_NTASKS" = 1 ]; then exec "$@"; fi

"$@" &
# Slurm may signal only this shell (proctrack/cgroup) or also its child; JAX
# ignores the second SIGTERM. A signal also ends wait.
trap 'signalled=yes; kill -TERM $!' TERM
signalled=yes
while [ -n "$signalled" ]; do
  signalled=
  wait $!
  code=$?
done
case $code in
  76 | 77) code=$((code + 125)) ;;
esac
exit "$code"
