"""Tests experiments/benchmarks/unroll.py: fakes, then the real workers."""

import json

import numpy as np
import pytest

from experiments.benchmarks import agreement
from experiments.benchmarks import harness
from experiments.benchmarks import unroll
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.unroll import Implementation
from experiments.benchmarks.workers import jax_worker
from rmc_jax.parity import reference

SIZE = Size(
  steps=5, batch=2, features=13, mem_slots=3, head_size=7, num_heads=11,
  key_size=17, mlp_layers=3, gpu_batch=19, source='primes',
)  # fmt: skip
MEMORY_GATES = Size(
  steps=3, batch=7, features=5, mem_slots=2, head_size=13, num_heads=3,
  gate_style='memory', source='other primes',
)  # fmt: skip


@pytest.fixture
def run(monkeypatch, tmp_path):
  def run(*flags, size=SIZE):
    monkeypatch.setitem(unroll.SIZES, 'tiny', size)
    path = tmp_path / 'results.json'
    unroll.main(
      ['--sizes=tiny', '--trials=2', '--trial_seconds=0', '--device=cpu']
      + [*flags, f'--output={path}']
    )
    return json.loads(path.read_text())['sizes']['tiny']

  return run


@pytest.mark.usefixtures('fake_workers')
def test_disagreeing_ones_are_listed_and_others_timed(run, monkeypatch, capsys):
  names = ['half', 'lies', 'diverges', 'third']
  fakes = {name: Implementation('fake') for name in names}
  fakes['third'] = Implementation('fake', variants=('slow', 'quick'))
  fakes['unsupported'] = Implementation('fake', precisions=('tf32',))
  monkeypatch.setattr(unroll, 'IMPLEMENTATIONS', fakes)
  measured = run(f'--implementations={",".join(fakes)}', '--batch=3')
  assert measured['size']['batch'] == 3
  entries = measured['implementations']
  assert list(entries) == [
    'half', 'lies', 'diverges', 'third (slow)', 'third (quick)', 'unsupported',
  ]  # fmt: skip
  assert entries['lies']['left_out'].startswith('differs in gradients by')
  assert entries['diverges']['left_out'].startswith('differs in loss by inf')
  for name in ('half', 'third (slow)', 'third (quick)'):
    assert entries[name]['difference']['gradients'] == 0
    for step in unroll.STEPS:
      assert len(entries[name]['seconds'][step]) == 2
  text = capsys.readouterr().out
  assert 'T=5 B=3, 3 x 77, 11 heads, 3 MLP layers, unit gates' in text
  assert 'torch 1.2.3, quick' in text  # The faster variant, and only it.
  assert 'torch 1.2.3, slow' not in text
  assert 'lies: differs in gradients' in text
  assert 'unsupported: supports tf32 only' in text


def test_implementations_can_be_chosen(capsys):
  with pytest.raises(SystemExit):
    unroll.main(['--implementations=rmc_jax,flax'])
  assert "unknown name 'flax'" in capsys.readouterr().err


@pytest.mark.usefixtures('fake_workers')
def test_plain_jit_has_one_device_and_no_large_pages(monkeypatch, run):
  started = {}
  original = harness.Session.add

  def add(self, name, worker, request, **more):
    started[name] = request, more['variables'][0]
    original(self, name, worker, {**request, 'name': 'half'}, **more)

  monkeypatch.setattr(harness.Session, 'add', add)
  monkeypatch.setattr(unroll.machine, 'cores', lambda: 3)
  run('--implementations=rmc_jax,plain_jit')
  assert set(started) == {'rmc_jax', 'rmc_jax (a device per core)', 'plain_jit'}
  assert started['plain_jit'][1] == {'GLIBC_TUNABLES': ''}
  assert started['plain_jit'][0]['devices'] is None
  request, variables = started['rmc_jax (a device per core)']
  assert request['devices'] == 3
  assert variables == {'JAX_NUM_CPU_DEVICES': '3'}


def test_sonnet_is_left_out_on_a_gpu():
  options = unroll.make_parser().parse_args(['--device=gpu'])
  sonnet = unroll.IMPLEMENTATIONS['sonnet']
  assert unroll.obstacle(sonnet, options) == 'runs on a CPU only'


def test_split_batch_gives_the_same_results(tmp_path):
  agreement.write(tmp_path / 'arrays.npz', SIZE)
  arrays = dict(np.load(tmp_path / 'arrays.npz'))

  def results(name, devices):
    request = {
      'name': name,
      'arguments': SIZE.arguments(),
      'devices': devices,
      'precision': 'float32',
    }
    worker = jax_worker.load(request, arrays)
    for step in unroll.STEPS:
      run, facts = worker.build(step)
      run()
      assert facts['temp_bytes'] > 0
    return worker.results()

  expected = results('dynamic_unroll', None)
  differences = agreement.difference(results('rmc_jax', 2), expected)
  assert set(differences) == {'outputs', 'loss', 'gradients'}
  assert max(differences.values()) < 2e-5


@pytest.mark.slow
@pytest.mark.parametrize('size', [SIZE, MEMORY_GATES])
def test_implementations_on_jax_agree(run, monkeypatch, size):
  monkeypatch.setattr(unroll.machine, 'cores', lambda: size.batch)
  chosen = 'rmc_jax,plain_jit,dynamic_unroll,hk_lstm'
  check_agreement(run(f'--implementations={chosen}', '--remat', size=size))


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.skipif(
  not (harness.benchmark_home() / 'torch/bin/python').exists(),
  reason='run launch/benchmark.sh unroll first',
)
@pytest.mark.parametrize('size', [SIZE, MEMORY_GATES])
def test_port_to_torch_agrees(run, monkeypatch, size):
  monkeypatch.setattr(unroll.machine, 'cores', lambda: size.batch)
  chosen = 'rmc_jax,torch_eager,torch_lstm'
  check_agreement(run(f'--implementations={chosen}', size=size))


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.skipif(
  not (reference.home() / 'reference/bin/python').exists(),
  reason='run launch/parity.sh first',
)
@pytest.mark.parametrize('size', [SIZE, MEMORY_GATES])
def test_both_loops_of_the_original_agree(run, monkeypatch, size):
  monkeypatch.setattr(unroll.machine, 'cores', lambda: size.batch)
  check_agreement(run('--implementations=rmc_jax,sonnet', size=size))


def check_agreement(measured):
  for name, entry in measured['implementations'].items():
    assert 'left_out' not in entry, (name, entry['left_out'])
    assert entry['seconds']['train']
    assert entry['seconds']['forward']
    assert entry['memory_bytes'] > 0
    if 'lstm' not in name:
      assert set(entry['difference']) == {'outputs', 'loss', 'gradients'}
      # A few roundings of numbers that are sums of a hundred products.
      assert max(entry['difference'].values()) < 2e-5, (name, entry)
