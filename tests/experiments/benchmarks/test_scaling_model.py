"""Tests experiments/benchmarks/scaling_model.py and what it stands on."""

import dataclasses
import json

import numpy as np
import pytest

from experiments.benchmarks import accelerators
from experiments.benchmarks import counts
from experiments.benchmarks import scaling_model
from experiments.benchmarks.accelerators import Accelerator
from experiments.benchmarks.roofline import Rates
from experiments.benchmarks.scaling import Layout
from experiments.benchmarks.scaling import PLAIN
from experiments.benchmarks.scaling_model import Row
from experiments.benchmarks.scaling_model import Workload
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.workers import all_reduce_worker

SIZE = Size(
  steps=3, batch=8, features=7, mem_slots=2, head_size=11, num_heads=5,
  source='tests',
)  # fmt: skip
# Groups of 4; round numbers, so that every term can be done by head.
SWITCHED = Accelerator(
  product=2e9, memory=1.25e9, group=4, inner=1250.0, closed=1, outer=125.0,
  axes=0, inner_hop=0.25, outer_hop=3.0, host=100.0, per_host=4, step=0.0,
  source='tests',
)  # fmt: skip


def test_parameters_are_those_of_the_papers_models():
  language_model = scaling_model.language_model()
  # Embedding 267,735 x 512, and 2500 x 512 with a bias before it.
  outside = 267_735 * 512 + 2500 * 512 + 512
  core = counts.parameters(language_model.size)
  assert language_model.parameters == core + outside
  assert round(language_model.parameters / 1e6, 1) == 214.7
  assert language_model.size.batch == 384
  # Core and read-out, as Sonnet has them.
  assert scaling_model.nth_farthest().parameters == 605_184 + 723_976


def test_compute_is_the_sum_of_the_longer_of_operations_and_bytes():
  core = counts.parameters(SIZE)
  work = Workload(SIZE, core + 1000, 5, 3, 0, 1, 8)
  phases = counts.training_step(dataclasses.replace(SIZE, batch=2))
  # Bytes take no time: 3 products of 1000 weights with 5 rows of 2 examples.
  operations = sum(p.operations for p in phases) + 2 * 3 * 1000 * 5 * 2
  quick = scaling_model.compute(work, 2, Rates(1.0, np.inf, np.inf))
  assert quick == pytest.approx(operations)
  # Operations take no time: Adam moves 7 float32 arrays of all parameters.
  moved = sum(p.all_bytes for p in phases) + 3 * 4000 + 28 * (core + 1000)
  slow = scaling_model.compute(work, 2, Rates(np.inf, 1.0, 1.0))
  assert slow == pytest.approx(moved)
  # Nothing takes time but the passes: 2 loops of T, 2 phases, 3, 1.
  floor = scaling_model.compute(work, 2, Rates(np.inf, np.inf, np.inf), 1.0)
  assert floor == 2 * SIZE.steps + 2 + 3 + 1


def test_all_reduce_inside_a_group_and_across():
  # 2 * (3/4 * 1000 / (0.8 * 1250)) and up and down a tree of 2 levels.
  inside = accelerators.all_reduce(SWITCHED, 4, 1000)
  assert inside == pytest.approx(2 * (0.75 + 2 * 0.25))
  # Across 2 groups: half of a quarter of the bytes at 0.8 * 125, one hop.
  across = accelerators.all_reduce(SWITCHED, 8, 1000)
  assert across == pytest.approx(inside + 2 * (0.5 * 250 / 100 + 3.0))
  assert accelerators.all_reduce(SWITCHED, 1, 1000) == 0


def test_a_torus_has_half_the_links_until_it_is_closed():
  torus = SWITCHED._replace(group=256, axes=2, closed=16, inner_hop=0.0)
  half, whole = [accelerators.all_reduce(torus, n, 1000) for n in (4, 16)]
  assert half == pytest.approx(2 * 0.75 * 1000 / 500)
  assert whole == pytest.approx(2 * 15 / 16 * 1000 / 1000)
  # 4 x 4: three steps along either axis, and back.
  slow = torus._replace(inner_hop=1.0)
  assert accelerators.all_reduce(slow, 16, 0) == pytest.approx(12)


def test_input_hides_behind_compute_and_the_all_reduce_does_not():
  assert Row(2, 8, compute=3.0, all_reduce=1.0, input=2.0).step == 4
  late = Row(2, 8, compute=3.0, all_reduce=1.0, input=7.0)
  assert late.step == 8
  assert late.rate == 2  # 16 examples


def test_several_processes_pay_more_for_a_call():
  work = Workload(SIZE, counts.parameters(SIZE), 0, 0, 50, 10, 8)
  one, several = [
    scaling_model.row(work, SWITCHED, n, 2, 4).input for n in (4, 8)
  ]
  assert one == pytest.approx(2 * 50 / 100 + 1.3e-4)
  assert several == pytest.approx(2 * 50 / 100 + 2e-4)


def test_pays_up_to_the_last_doubling_that_is_worth_it():
  def rows(*steps):
    return [Row(1 << i, 8 >> i, s, 0.0, 0.0) for i, s in enumerate(steps)]

  assert scaling_model.pays_up_to(rows(8.0, 5.0, 3.3, 2.3)) == 4
  assert scaling_model.pays_up_to(rows(8.0, 6.0, 5.0)) == 1


def test_bfloat16_gradients_halve_the_bytes_of_the_exchange(monkeypatch):
  monkeypatch.setattr(accelerators, 'ACCELERATORS', {'switched': SWITCHED})
  work = Workload(SIZE, counts.parameters(SIZE), 0, 0, 0, 1, 8)
  long, short = [scaling_model.predict(work, width) for width in (4, 2)]
  assert list(long) == ['switched, a batch of 8', 'switched, 8 on each']
  strong = long['switched, a batch of 8']
  assert [(each.devices, each.batch) for each in strong] == [
    (1, 8), (2, 4), (4, 2), (8, 1),
  ]  # fmt: skip
  saved = strong[1].all_reduce - short['switched, a batch of 8'][1].all_reduce
  assert saved == pytest.approx(2 * counts.parameters(SIZE) * 0.5 * 2 / 1000)
  weak = long['switched, 8 on each']
  assert {each.batch for each in weak} == {8}
  assert len({each.compute for each in weak}) == 1


def test_table_and_figure_say_the_same(tmp_path, capsys, monkeypatch):
  drawn = {}
  monkeypatch.setattr(
    scaling_model, 'draw_scaling', lambda path, panels, **kw: drawn.update(
      path=path, panels=panels, **kw
    )
  )  # fmt: skip
  output, figure = tmp_path / 'model.json', tmp_path / 'model.png'
  scaling_model.main([
    '--sizes=nth_farthest', f'--output={output}', f'--figure={figure}',
  ])  # fmt: skip
  text = capsys.readouterr().out
  found = json.loads(output.read_text())['sizes']['nth_farthest']
  rows = [Row(*row) for row in found['TPU v5e, a batch of 1600']]
  panel = 'nth_farthest, a batch of 1600'
  assert set(drawn['panels'][panel]) == set(accelerators.ACCELERATORS)
  points = drawn['panels'][panel]['TPU v5e']
  assert points[-1] == (64, pytest.approx(rows[-1].rate / rows[0].rate))
  most = scaling_model.pays_up_to(rows)
  assert drawn['marked'][panel, 'TPU v5e'] == most
  assert f'1.5 times as fast up to {most}.' in text
  assert f'{1e3 * rows[2].step:.2f}' in text
  assert drawn['path'] == figure


def measured(**seconds):
  """Layouts of the real names, each with its seconds in three rounds."""
  layouts = {
    'jit': PLAIN,
    'half': PLAIN._replace(share=2),
    'two': Layout(2),
    'four': Layout(4),
    'processes': Layout(2, 2),
  }
  entries = {
    layouts[name].name: {
      'layout': layouts[name]._asdict(),
      'seconds': [[s, s, 9 * s] for s in (value, value, 2 * value)],
    }
    for name, value in seconds.items()
  }
  return {'size': dataclasses.asdict(SIZE), 'layouts': entries}


def test_check_predicts_all_but_plain_jit():
  rates = Rates(1.0, 0.5, 0.25)
  work = Workload(SIZE, counts.parameters(SIZE), 0, 0, 0, 1, 8)
  whole, half = [scaling_model.compute(work, b, rates) for b in (8, 4)]
  # The machine reaches a third of the bound, with any layout.
  found = measured(
    jit=3 * whole,
    half=1.5 * whole,
    two=3 * 2 * half + 5,
    processes=3 * 2 * half,
  )
  two, processes = scaling_model.check(
    found, rates, {Layout(2).name: 5.0, Layout(2, 2).name: 7.0}
  )
  assert two['layout'] == 'pmap, 2 devices'
  assert two['predicted'] == pytest.approx(two['measured'])
  # Two halves by jit take as long as the whole, and both sums are 5 and 7 more.
  assert two['shares'] == pytest.approx(3 * whole + 5)
  assert processes['shares'] == pytest.approx(3 * whole + 7)
  assert processes['error'] == pytest.approx(7 / (6 * half))
  assert 2 * half > whole  # Weights and optimiser twice: or nothing is shown.


def test_check_prints_how_far_it_is_off(tmp_path, capsys, monkeypatch):
  found = measured(jit=1.0, two=1.0, four=1e-3)
  found['layouts'][Layout(8).name] = {
    'layout': Layout(8)._asdict(), 'left_out': 'no such luck',
  }  # fmt: skip
  peak = {
    'facts': {
      'product': {'operations': 6}, 'copy': {'bytes': 8},
      'weights': {'bytes': 9},
    },
    'seconds': {'product': [[2.0]], 'copy': [[4.0]], 'weights': [[3.0]]},
  }  # fmt: skip
  assert scaling_model.measured_rates(peak) == Rates(3.0, 2.0, 3.0)
  asked = []
  monkeypatch.setattr(
    scaling_model, 'exchange', lambda found, options: asked.append(found) or (
      dict.fromkeys([Layout(2).name, Layout(4).name], 0.25)
    )
  )  # fmt: skip
  paths = [tmp_path / 'scaling.json', tmp_path / 'roofline.json']
  flags = [f'--check={paths[0]}', f'--roofline={paths[1]}']
  paths[0].write_text(json.dumps({'sizes': {'tiny': found}}))
  paths[1].write_text(json.dumps({'sizes': {'tiny': peak}}))
  scaling_model.main(flags)
  rows = scaling_model.check(
    found, Rates(3.0, 2.0, 3.0), {Layout(2).name: 0.25, Layout(4).name: 0.25}
  )
  text = capsys.readouterr().out
  assert f'The model is off by {rows[1]["error"]:.0%} at most.' in text
  assert '250.0' in text
  assert rows[0]['shares'] is None  # There was no half by jit.
  assert 'no such luck' not in text
  paths[1].write_text(json.dumps({'sizes': {'other': peak}}))
  with pytest.raises(SystemExit, match=r'roofline\.json has no tiny'):
    scaling_model.main(flags)
  with pytest.raises(SystemExit):
    scaling_model.main(flags[:1])
  assert '--check and --roofline go together' in capsys.readouterr().err


@pytest.mark.parametrize('devices', [2, 4])
def test_worker_adds_up_an_array_as_large_as_the_gradient(devices):
  worker = all_reduce_worker.AllReduce(
    {'size': dataclasses.asdict(SIZE), 'processes': 1, 'devices': devices}, {}
  )
  total = worker.results()['sum']
  assert total.shape == (counts.parameters(SIZE),)
  assert (total == devices).all()


@pytest.mark.slow
@pytest.mark.multiprocess
def test_exchange_is_timed_for_devices_and_processes():
  found = measured(jit=1.0, two=1.0, processes=1.0)
  options = scaling_model._parse(
    ['--rounds=2', '--turn_seconds=0.01', '--device=cpu']
  )
  seconds = scaling_model.exchange(found, options)
  assert set(seconds) == {Layout(2).name, Layout(2, 2).name}
  assert all(0 < value < 10 for value in seconds.values())
