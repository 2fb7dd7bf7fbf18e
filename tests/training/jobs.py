"""Runs test programs in subprocesses, alone or as a job."""

from collections.abc import Sequence
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(
  program: Sequence[str],
  arguments: Sequence[Sequence],
  *,
  devices: int,
  timeout: float = 300,
) -> list[tuple[int, str]]:
  """Runs a program once for each of `arguments`; several form a job.

  Each process of a job gets HOST:PORT COUNT ID after its own arguments. A
  process that runs longer than `timeout` seconds is killed (exit code -9).

  Returns:
    Exit code and output of each process.
  """
  ended = _run(program, arguments, devices, timeout)
  if _port_was_taken(ended):  # Since `unused_port` found it free.
    ended = _run(program, arguments, devices, timeout)
  return ended


_TRAIN = """
import importlib
import sys

from experiments import command_line

name, count, *flags = sys.argv[1:]
if count != '1':
  *flags, address, _, index = flags
  flags += [f'--coordinator_address={address}', f'--num_processes={count}',
            f'--process_id={index}']
train, sweep = (
    importlib.import_module(f'experiments.{name}.{module}')
    for module in ('train', 'sweep'))
command_line.main(train.train, train.Config, sweep.PRESETS, experiment=name,
                  argv=[name, *flags])
"""


def train(
  name: str, flags: Sequence[str], num_processes: int
) -> list[tuple[int, str]]:
  """Runs an experiment on two devices, in one process or in two.

  Returns:
    As `run`; all exit codes are 0.
  """
  arguments = [[name, num_processes, *flags]] * num_processes
  ended = run(['-c', _TRAIN], arguments, devices=2 // num_processes)
  assert [code for code, _ in ended] == [0] * num_processes, ended
  return ended


def _run(program, arguments, devices, timeout):
  # Other flags would compile code that differs in the last bit. The last device
  # count applies.
  flags = os.environ['XLA_FLAGS']
  flags += f' --xla_force_host_platform_device_count={devices}'
  environment = os.environ | {'XLA_FLAGS': flags, 'PYTHONPATH': str(ROOT)}
  job = [f'localhost:{unused_port()}', str(len(arguments))]
  children = []
  with tempfile.TemporaryDirectory() as folder:
    outputs = [pathlib.Path(folder, str(i)) for i in range(len(arguments))]

    def ended():
      return [
        (child.poll(), output.read_text(errors='replace'))
        for child, output in zip(children, outputs, strict=True)
      ]

    try:
      for index, (own, output) in enumerate(
        zip(arguments, outputs, strict=True)
      ):
        place = [*job, str(index)] if len(arguments) > 1 else []
        with output.open('w') as file:
          children.append(
            subprocess.Popen(
              [sys.executable, *program, *map(str, own), *place],
              env=environment,
              stdout=file,
              stderr=subprocess.STDOUT,
            )
          )
      deadline = time.monotonic() + timeout
      while any(code is None for code, _ in ended()):
        # The others would wait for a process 0 that has no port.
        if time.monotonic() > deadline or _port_was_taken(ended()):
          break
        time.sleep(0.1)
    finally:
      # SIGKILL: a process that has joined a job ignores SIGTERM.
      for child in children:
        child.kill()
        child.wait()
    return ended()


def _port_was_taken(ended):
  return any(
    code and 'Failed to start RPC server' in output for code, output in ended
  )


def unused_port():
  with socket.socket() as probe:
    probe.bind(('localhost', 0))
    return probe.getsockname()[1]
