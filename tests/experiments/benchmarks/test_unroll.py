"""Tests experiments/benchmarks/unroll.py: fakes, then the real contestants."""

import dataclasses
import json
import pathlib
import sys

import pytest

from experiments.benchmarks import contestants
from experiments.benchmarks import unroll
from experiments.benchmarks.contestants import Contestant
from experiments.benchmarks.sizes import Size
from rmc_jax.parity import reference

FAKE = pathlib.Path(__file__).with_name('fake_worker.py')
SIZE = Size(
  steps=5, batch=2, features=13, mem_slots=3, head_size=7, num_heads=11,
  key_size=17, mlp_layers=3, gpu_batch=19, source='primes',
)  # fmt: skip
MEMORY_GATES = Size(
  steps=3, batch=7, features=5, mem_slots=2, head_size=13, num_heads=3,
  gate_style='memory', source='other primes',
)  # fmt: skip


@pytest.fixture
def fakes(monkeypatch):
  """Has contestants of these names take part, played by FAKE."""

  def take_part(**known):
    for module in (contestants, unroll):
      monkeypatch.setattr(module, 'CONTESTANTS', known)
      monkeypatch.setattr(
        module, 'command', lambda name: [sys.executable, str(FAKE)]
      )
    monkeypatch.setitem(unroll.SIZES, 'tiny', SIZE)

  return take_part


def test_everyone_is_timed_and_described(fakes, tmp_path, capsys):
  fakes(half=Contestant('fake'), third=Contestant('fake'))
  measured = run(tmp_path, '--sizes=tiny', '--contestants=half,third')
  half, third = measured['sizes']['tiny']['contestants'].values()
  for what in unroll.WHATS:
    assert [len(turn) for turn in half['seconds'][what]] == [2, 2]
    assert min(third['seconds'][what][0]) >= 0.03
  assert third['difference'] == {'gradients': 0.0, 'loss': 0.0}
  table = capsys.readouterr().out
  assert 'T=5 B=2, 3 x 77, 11 heads, 3 MLP layers, unit gates' in table
  assert 'torch 1.2.3' in table


@pytest.mark.parametrize(
  ('name', 'reason'),
  [
    ('dies_at_load', 'died with exit code 3: no such library'),
    ('errs', 'ValueError: no forward [b]'),
    ('dies_later', 'died with exit code 5'),
    ('lies', 'refused: differs in gradients by'),
    ('diverges', 'refused: differs in loss by'),
    ('hangs', 'no answer to "build" in'),
  ],
)
def test_who_fails_is_listed_and_the_others_are_timed(
  fakes, tmp_path, capsys, name, reason
):
  fakes(**{n: Contestant('fake') for n in ('half', name, 'third')})
  measured = run(
    tmp_path, '--sizes=tiny', f'--contestants=half,{name},third', '--limit=5'
  )
  entries = measured['sizes']['tiny']['contestants']
  assert reason in entries[name]['left_out']
  assert 'seconds' in entries['half']
  assert 'seconds' in entries['third']
  said = ' '.join(capsys.readouterr().out.split())
  assert f'{name}: {reason}' in said


def test_what_is_not_installed_or_not_possible_is_listed(
  monkeypatch, tmp_path, capsys
):
  monkeypatch.setenv('RMC_BENCHMARK_HOME', str(tmp_path / 'nowhere'))
  monkeypatch.setitem(unroll.SIZES, 'tiny', SIZE)
  run(tmp_path, '--sizes=tiny', '--contestants=torch_eager')
  out = capsys.readouterr().out
  assert 'torch_eager: not installed: run launch/benchmark.sh unroll' in out
  run(tmp_path, '--sizes=tiny', '--contestants=sonnet', '--precision=bfloat16')
  assert 'sonnet: runs in float32 only' in capsys.readouterr().out
  assert (
    contestants.obstacle('sonnet', 'gpu', 'float32') == 'runs on a CPU only'
  )


def test_the_fastest_variant_counts_and_one_that_hangs_does_not(
  fakes, tmp_path
):
  variants = ('slow', 'quick', 'never')
  fakes(half=Contestant('fake', variants=variants))
  measured = run(tmp_path, '--sizes=tiny', '--contestants=half', '--limit=5')
  entry = measured['sizes']['tiny']['contestants']['half']
  assert entry['variant'] == 'quick'
  assert entry['tried']['slow'] > entry['tried']['quick']
  assert 'no answer' in entry['tried']['never']


def test_output_says_what_was_measured_and_not_where(fakes, tmp_path):
  fakes(half=Contestant('fake'))
  measured = run(tmp_path, '--sizes=tiny', '--contestants=half', '--batch=3')
  assert measured['sizes']['tiny']['size']['batch'] == 3
  assert measured['command'] == (
    'python -m experiments.benchmarks.unroll --rounds=2 --turn_seconds=0 '
    '--device=cpu --sizes=tiny --contestants=half --batch=3'
  )
  assert measured['cores'] >= 1
  text = json.dumps(measured)
  assert str(tmp_path) not in text
  assert str(pathlib.Path.home()) + '/' not in text


@pytest.mark.parametrize(
  ('flag', 'said'),
  [
    ('--sizes=tiny,huge', "no 'tiny'"),
    ('--contestants=rmc_jax,flax', "no 'flax'"),
    ('--rounds=0', "'0' is no number of at least 1"),
  ],
)
def test_wrong_flags_are_refused_with_their_value(capsys, flag, said):
  with pytest.raises(SystemExit):
    unroll.main([flag])
  assert said in capsys.readouterr().err


@pytest.mark.parametrize(
  'size', [SIZE, pytest.param(MEMORY_GATES, marks=pytest.mark.slow)]
)
def test_contestants_on_jax_agree(monkeypatch, tmp_path, size):
  monkeypatch.setitem(unroll.SIZES, 'tiny', size)
  measured = run(
    tmp_path,
    '--sizes=tiny',
    '--contestants=rmc_jax,dynamic_unroll,hk_lstm',
    '--remat',
  )
  check_agreement(measured)


def test_a_device_per_core_agrees(monkeypatch, tmp_path):
  # Two examples for each of three devices.
  size = dataclasses.replace(SIZE, batch=6)
  monkeypatch.setitem(unroll.SIZES, 'tiny', size)
  monkeypatch.setattr(unroll.machine, 'cores', lambda: 3)
  monkeypatch.setitem(
    unroll.CONTESTANTS,
    'rmc_jax',
    unroll.CONTESTANTS['rmc_jax']._replace(cpu_variants=()),
  )
  monkeypatch.setitem(
    unroll.CONTESTANTS,
    'dynamic_unroll',
    unroll.CONTESTANTS['dynamic_unroll']._replace(
      variants=(contestants.PER_CORE,), cpu_variants=()
    ),
  )
  chosen = '--contestants=rmc_jax,dynamic_unroll'
  check_agreement(run(tmp_path, '--sizes=tiny', chosen))


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.skipif(
  not (contestants.home() / 'torch/bin/python').exists(),
  reason='run launch/benchmark.sh unroll first',
)
@pytest.mark.parametrize('size', [SIZE, MEMORY_GATES])
def test_port_to_torch_agrees(monkeypatch, tmp_path, size):
  monkeypatch.setitem(unroll.SIZES, 'tiny', size)
  chosen = '--contestants=rmc_jax,torch_eager,torch_lstm'
  check_agreement(run(tmp_path, '--sizes=tiny', chosen))


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.skipif(
  not (reference.home() / 'reference/bin/python').exists(),
  reason='run launch/parity.sh first',
)
@pytest.mark.parametrize('size', [SIZE, MEMORY_GATES])
def test_both_loops_of_the_original_agree(monkeypatch, tmp_path, size):
  monkeypatch.setitem(unroll.SIZES, 'tiny', size)
  for variant in ('steps', 'loop'):
    monkeypatch.setitem(
      unroll.CONTESTANTS,
      'sonnet',
      unroll.CONTESTANTS['sonnet']._replace(variants=(variant,)),
    )
    chosen = '--contestants=rmc_jax,sonnet'
    check_agreement(run(tmp_path, '--sizes=tiny', chosen))


def check_agreement(measured):
  for name, entry in measured['sizes']['tiny']['contestants'].items():
    assert 'left_out' not in entry, (name, entry['left_out'])
    assert entry['seconds']['train']
    assert entry['seconds']['forward']
    assert entry['memory_bytes'] > 0
    if not name.endswith('lstm'):
      assert set(entry['difference']) == {'outputs', 'loss', 'gradients'}
      # A few roundings of numbers that are sums of a hundred products.
      assert max(entry['difference'].values()) < 2e-5, (name, entry)


def run(folder, *flags):
  path = folder / 'results.json'
  unroll.main(
    ['--rounds=2', '--turn_seconds=0', '--device=cpu', *flags]
    + [f'--output={path}']
  )
  return json.loads(path.read_text())
