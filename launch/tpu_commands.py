"""Builds the gcloud commands for a slice of Cloud TPU VMs."""

import argparse
import shlex

from launch import job
from launch import resources

# Without these, ssh does not notice that a worker is gone.
_SSH_OPTIONS = ('-oServerAliveInterval=30', '-oConnectTimeout=20')


class Gcloud:
  """The gcloud commands for one slice."""

  def __init__(self, options: argparse.Namespace):
    tpu = resources.TPUS[options.tpu]
    self.options = options
    self.name = options.name
    self.accelerator_type = tpu.accelerator_type
    self.hosts = tpu.hosts
    self.archive = f'runs/tpu_vm/{self.name}.tar.gz'
    self._runtime = tpu.runtime
    self._project = [f'--project={options.project}'] * bool(options.project)
    self._place = [f'--zone={options.zone}', *self._project]

  def bucket(self) -> list[str]:
    """Prints True if the bucket has a hierarchical namespace."""
    return [
        'gcloud', 'storage', 'buckets', 'describe',
        f'gs://{self.options.bucket}', '--raw',
        '--format=value(hierarchicalNamespace.enabled)',
        *self._project, '--quiet',
    ]  # fmt: skip

  def describe(self) -> list[str]:
    """Prints the request for the slice as JSON."""
    return self._tpus('queued-resources', 'describe', '--format=json')

  def describe_node(self) -> list[str]:
    """Prints the machines of the slice as JSON."""
    return self._tpus('tpu-vm', 'describe', '--format=json')

  def create(self) -> list[str]:
    """Requests the slice without waiting for it."""
    return self._tpus(
        'queued-resources', 'create',
        f'--node-id={self.name}',
        f'--accelerator-type={self.accelerator_type}',
        f'--runtime-version={self._runtime}',
        *['--spot'] * self.options.spot,
        *self.options.gcloud,
    )  # fmt: skip

  def send(self) -> list[str]:
    """Copies the packed checkout to all workers."""
    return self._scp(
      self.archive, f'{self.name}:rmc_jax.tar.gz', '--worker=all'
    )

  def install(self) -> list[str]:
    """Sets up the workers unless a run is active there."""
    mount = self.options.bucket is not None
    return self._ssh(_INSTALL + _INSTALL_GCSFUSE * mount)

  def train(self, run: job.Run, attempt: int) -> list[str]:
    """Starts the trainers, or finds them, and prints their output."""
    bucket = self.options.bucket
    mount = _MOUNT.format(bucket=shlex.join([bucket])) if bucket else _FOLDER
    return self._ssh(
      _TRAIN.format(
        attempt=attempt,
        mount=mount,
        preempted=job.PREEMPTED,
        error=job.CONFIGURATION_ERROR,
        # Without the Python, whose path differs by worker.
        command=shlex.join(run.command('')[1:]),
      )
    )

  def signal(self, name: str) -> list[str]:
    """Sends a signal to the trainers."""
    return self._ssh(_SIGNAL.format(name=name))

  def fetch(self) -> list[str]:
    """Copies the workdirs of all runs from the only worker."""
    return self._scp(f'{self.name}:rmc_jax_work/runs', '.', '--recurse')

  def delete(self) -> list[str]:
    """Deletes the request and the machines, and waits until it is done."""
    return self._tpus('queued-resources', 'delete', '--force')

  def _tpus(self, kind: str, verb: str, *flags: str) -> list[str]:
    return [
        'gcloud', 'compute', 'tpus', kind, verb, self.name, *self._place,
        *flags, '--quiet',
    ]  # fmt: skip

  def _ssh(self, script: str) -> list[str]:
    ssh_options = [f'--ssh-flag={flag}' for flag in _SSH_OPTIONS]
    return self._tpus(
      'tpu-vm', 'ssh', '--worker=all', *ssh_options, f'--command={script}'
    )

  def _scp(self, source: str, target: str, flag: str) -> list[str]:
    ssh_options = [f'--scp-flag={flag}' for flag in _SSH_OPTIONS]
    return [
        'gcloud', 'compute', 'tpus', 'tpu-vm', 'scp', source, target, flag,
        *self._place, *ssh_options, '--quiet',
    ]  # fmt: skip


# Scripts for the workers. In the home folder, rmc_jax holds the code and
# rmc_jax_job the state of the run; the trainer runs in rmc_jax_work. gcloud
# repeats a script after a broken connection, so each may run at any time.

# A running trainer holds the lock.
_INSTALL = """\
set -eu
mkdir -p rmc_jax rmc_jax_job rmc_jax_work
if ! flock --nonblock rmc_jax_job/lock true; then
  echo 'a run is active here; keeping its code'
  exit
fi
rm -f rmc_jax_job/attempt
find rmc_jax -mindepth 1 -maxdepth 1 ! -name '.venv*' -exec rm -rf {} +
tar -xzf rmc_jax.tar.gz -C rmc_jax
apt() {
  sudo DEBIAN_FRONTEND=noninteractive \\
    apt-get -qq -o DPkg::Lock::Timeout=600 "$@" >/dev/null
}
# The TPU images have an older Python.
if ! rmc_jax/launch/find_python.sh 3.11 3.14 >/dev/null; then
  sudo add-apt-repository -y ppa:deadsnakes/ppa >/dev/null
  apt update
  apt install -y python3.12-venv
fi
ACCELERATOR=tpu rmc_jax/launch/setup.sh
"""

# The newest release, for its flags.
_INSTALL_GCSFUSE = """\
keys=/usr/share/keyrings/cloud.google.asc
source=https://packages.cloud.google.com/apt
curl -fsS "$source/doc/apt-key.gpg" | sudo tee "$keys" >/dev/null
echo "deb [signed-by=$keys] $source gcsfuse-$(lsb_release -cs) main" |
  sudo tee /etc/apt/sources.list.d/gcsfuse.list >/dev/null
apt update
apt install -y gcsfuse
"""

# Without caches, every worker sees immediately what another wrote; without
# streaming, synced data is in the bucket. gcsfuse must not inherit the lock.
_MOUNT = """\
    if ! mountpoint -q "$HOME/rmc_jax_work"; then
      fusermount -uz "$HOME/rmc_jax_work" 2>/dev/null || true
      if ! gcsfuse --metadata-cache-ttl-secs=0 \\
        --metadata-cache-negative-ttl-secs=0 --kernel-list-cache-ttl-secs=0 \\
        --enable-streaming-writes=false \\
        {bucket} "$HOME/rmc_jax_work" 9>&- 2>&1; then
        ended 1
        exit
      fi
    fi
"""

_FOLDER = """\
    mkdir -p ../rmc_jax_work/runs
"""

# One attempt: the first connection starts the trainer, every connection follows
# its log. A trainer that left no exit code ended with its machine, so it counts
# as preempted.
_TRAIN = """\
set -eu
set -- {command}
attempt={attempt}
ended() {{ echo "rmc_jax: attempt $attempt on $(hostname) ended with $1"; }}
cd rmc_jax_job
lines=10
exec 9>>lock
if [ "$(cat attempt flags 2>/dev/null)" != "$attempt
$*" ]; then
  if flock --nonblock 9; then
{mount}    rm -f code pid
    echo "$*" >flags
    echo "$attempt" >attempt
    : >log  # Must exist before it is followed.
    lines=+1
    # shellcheck disable=SC2016
    setsid sh -c '
      trap : TERM  # Outlive the trainer to write its exit code.
      sh -c "echo \\$\\$ >pid; cd ../rmc_jax_work; exec \\"\\$@\\"" trainer "$@"
      echo $? >code
    ' wrapper env PYTHONPATH="$HOME/rmc_jax" \\
      "$HOME/rmc_jax/.venv/bin/python" "$@" >>log 2>&1 </dev/null &
    echo $! >wrapper
  elif [ "$(cat flags)" = "$*" ]; then
    echo "$attempt" >attempt  # Started by an earlier launcher.
  else
    echo "another run is active here: $(cat flags)"
    ended {error}
    exit
  fi
fi
exec 9>&-
worker=$(hostname)
if ! flock --nonblock lock true; then
  tail --pid="$(cat wrapper)" -s 0.2 -n "$lines" -f log
else
  tail -n "$lines" log
fi | sed -u "s/^/[${{worker##*-}}] /"
ended "$(cat code 2>/dev/null || echo {preempted})"
"""

_SIGNAL = """\
cd rmc_jax_job || exit 0
if [ -s pid ] && ! flock --nonblock lock true; then
  kill -s {name} "$(cat pid)"
fi
"""
