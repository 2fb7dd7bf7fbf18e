"""Runs a real Slurm of several nodes on this machine.

Needs Debian's packages slurm-wlm and munge, and root. All files are in one
folder, except for the names of the nodes, which are in /etc/hosts until the
context ends.
"""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import time

_PROGRAMS = ('munged', 'slurmctld', 'slurmd', 'sbatch', 'scontrol')
_HOSTS = pathlib.Path('/etc/hosts')

_CONF = """\
ClusterName=drill
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=60
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
{nodes}
PartitionName=DEFAULT Nodes=ALL MaxTime=INFINITE State=UP
PartitionName=all Default=YES PriorityTier=2 PreemptMode=OFF
PartitionName=low PriorityTier=1 GraceTime=60
"""


def obstacle() -> str | None:
  """Returns why no cluster can run here, or None."""
  missing = [name for name in _PROGRAMS if not shutil.which(name)]
  if missing:
    return (
      f'{", ".join(missing)} not installed '
      '(on Debian: apt install slurm-wlm munge)'
    )
  if os.geteuid() != 0:
    return 'Slurm must be started as root'
  return None


@contextlib.contextmanager
def running(folder: pathlib.Path, nodes: int) -> Iterator[dict[str, str]]:
  """Yields the environment in which sbatch and scontrol find the cluster."""
  ports = _unused_ports(nodes + 1)
  names = [f'drill{i}' for i in range(1, nodes + 1)]
  conf = folder / 'slurm.conf'
  conf.write_text(
    _CONF.format(
      folder=folder,
      host=socket.gethostname().split('.')[0],
      ports=ports,
      nodes='\n'.join(
        f'NodeName={name} NodeAddr=127.0.0.1 Port={port} CPUs=2'
        for name, port in zip(names, ports[1:], strict=True)
      ),
    )
  )
  (folder / 'state').mkdir()
  key = folder / 'munge.key'
  key.write_bytes(secrets.token_bytes(128))
  key.chmod(0o400)
  environment = os.environ | {'SLURM_CONF': str(conf)}
  daemons = []

  def start(name, *arguments):
    with (folder / f'{name}.out').open('a') as log:
      daemons.append(
        subprocess.Popen(
          [shutil.which(name) or name, *arguments],
          env=environment,
          stdout=log,
          stderr=subprocess.STDOUT,
        )  # fmt: skip
      )

  hosts = _HOSTS.read_text()
  _HOSTS.write_text(hosts.rstrip('\n') + f'\n127.0.0.1 {" ".join(names)}\n')
  try:
    start(
        'munged', '--foreground', '--force', f'--key-file={key}',
        f'--socket={folder}/munge.socket', f'--pid-file={folder}/munge.pid',
        f'--log-file={folder}/munge.log', f'--seed-file={folder}/munge.seed',
    )  # fmt: skip
    _wait(lambda: (folder / 'munge.socket').exists(), folder)
    start('slurmctld', '-D')
    for name in names:
      start('slurmd', '-D', '-N', name)
    _wait(lambda: _idle_nodes(environment) == nodes, folder)
    yield environment
  finally:
    for daemon in reversed(daemons):
      daemon.terminate()
    for daemon in daemons:
      try:
        daemon.wait(20)
      except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
    _HOSTS.write_text(hosts)


def processes(*words: str) -> list[int]:
  """Returns the processes with these arguments or environment variables."""
  found = []
  for folder in pathlib.Path('/proc').glob('[0-9]*'):
    with contextlib.suppress(OSError):
      files = [(folder / name).read_bytes() for name in ('cmdline', 'environ')]
      if {*words} <= {*b'\0'.join(files).decode(errors='replace').split('\0')}:
        found.append(int(folder.name))
  return found


def kill_node(name: str) -> None:
  """Kills all processes of a node at once."""
  for pid in processes(name) + processes(f'SLURMD_NODENAME={name}'):
    os.kill(pid, signal.SIGKILL)


def _idle_nodes(environment) -> int:
  shown = subprocess.run(
      ['sinfo', '--noheader', '--Node', '--partition=all', '--format=%T'],
      env=environment, capture_output=True, text=True, check=False,
  )  # fmt: skip
  return shown.stdout.split().count('idle')


def _unused_ports(count: int) -> list[int]:
  with contextlib.ExitStack() as stack:
    probes = [stack.enter_context(socket.socket()) for _ in range(count)]
    for probe in probes:
      probe.bind(('localhost', 0))
    return [probe.getsockname()[1] for probe in probes]


def _wait(condition, folder: pathlib.Path, seconds: float = 60) -> None:
  deadline = time.monotonic() + seconds
  while not condition():
    if time.monotonic() > deadline:
      logs = '\n'.join(
        f'{path.name}:\n{path.read_text(errors="replace")[-2000:]}'
        for path in sorted(folder.glob('*.log'))
      )
      raise TimeoutError(f'Slurm did not start:\n{logs}')
    time.sleep(0.2)
