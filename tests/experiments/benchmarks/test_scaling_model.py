"""Tests experiments/benchmarks/scaling_model.py and accelerators.py."""

import dataclasses
import json

import haiku as hk
import jax
import numpy as np
import pytest

from experiments.benchmarks import accelerators
from experiments.benchmarks import counts
from experiments.benchmarks import roofline
from experiments.benchmarks import scaling_model
from experiments.benchmarks.accelerators import Accelerator
from experiments.benchmarks.roofline import Rates
from experiments.benchmarks.scaling import Layout
from experiments.benchmarks.scaling import PLAIN
from experiments.benchmarks.scaling_model import Row
from experiments.benchmarks.scaling_model import Workload
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.sizes import SIZES
import rmc_jax
from rmc_jax.models import SequenceClassifier

SIZE = Size(
  steps=3, batch=8, features=7, mem_slots=2, head_size=11, num_heads=5,
  source='tests',
)  # fmt: skip
# Groups of 4; numbers that make every term easy to compute by hand.
SWITCHED = Accelerator(
  product=2e9, memory=1.25e9, group=4, inner=1250.0, closed=1, outer=125.0,
  axes=0, inner_hop=0.25, outer_hop=3.0, host=100.0, per_host=4, step=0.0,
  source='tests',
)  # fmt: skip


def language_model(words):  # [T, B]
  size = SIZES['language_model_paper']
  core = rmc_jax.RelationalMemory(**size.arguments())
  embed = hk.Embed(267_735, size.features)
  state = core.initial_state(words.shape[1])
  outputs, _ = rmc_jax.unroll(core, embed(words), state)
  return hk.Linear(size.features)(outputs) @ embed.embeddings.T


def nth_farthest(inputs):  # [B, T, X]
  core = rmc_jax.RelationalMemory(**SIZES['nth_farthest'].arguments())
  return SequenceClassifier(core, num_classes=8)(inputs)


@pytest.mark.parametrize(
  ('name', 'model', 'inputs', 'millions'),
  [
    ('language_model_paper', language_model, ((100, 1), 'int32'), 214.7),
    ('nth_farthest', nth_farthest, ((1, 8, 40), 'float32'), 1.3),
  ],
)
def test_parameters_are_those_of_the_papers_models(
  name, model, inputs, millions
):
  inputs = jax.ShapeDtypeStruct(*inputs)
  init = hk.transform(model).init
  params = jax.eval_shape(init, jax.random.key(0), inputs)
  count = sum(leaf.size for leaf in jax.tree.leaves(params))
  work = scaling_model.WORKLOADS[name]
  assert work.parameters == count
  assert round(count / 1e6, 1) == millions
  assert work.size.batch == {'nth_farthest': 1600}.get(name, 384)


def test_compute_is_the_sum_of_the_longer_of_operations_and_bytes():
  core = counts.parameters(SIZE)
  work = Workload(SIZE, 1000, 5, 3)
  phases = counts.phases(dataclasses.replace(SIZE, batch=2))
  # Bytes cost nothing: 3 products of 1000 weights with 5 rows of 2 examples.
  operations = sum(p.operations for p in phases) + 2 * 3 * 1000 * 5 * 2
  quick = scaling_model.compute(work, 2, Rates(1.0, np.inf, np.inf))
  assert quick == pytest.approx(operations)
  # Operations cost nothing: Adam moves 7 float32 arrays of all parameters.
  moved = sum(p.all_bytes for p in phases) + 3 * 4000 + 28 * (core + 1000)
  slow = scaling_model.compute(work, 2, Rates(np.inf, 1.0, 1.0))
  assert slow == pytest.approx(moved)
  # Only the passes cost time: 2 loops of T, 2 phases, 3, 1.
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


def test_open_torus_has_half_the_links():
  torus = SWITCHED._replace(group=256, axes=2, closed=16, inner_hop=0.0)
  half, whole = [accelerators.all_reduce(torus, n, 1000) for n in (4, 16)]
  assert half == pytest.approx(2 * 0.75 * 1000 / 500)
  assert whole == pytest.approx(2 * 15 / 16 * 1000 / 1000)
  # 4 x 4: three steps along either axis, and back.
  slow = torus._replace(inner_hop=1.0)
  assert accelerators.all_reduce(slow, 16, 0) == pytest.approx(12)


def test_input_overlaps_with_compute_and_the_all_reduce_does_not():
  assert Row(2, 8, compute=3.0, all_reduce=1.0, input=2.0).step == 4
  late = Row(2, 8, compute=3.0, all_reduce=1.0, input=7.0)
  assert late.step == 8
  assert late.rate == 2  # 16 examples


def test_a_call_costs_more_with_several_processes():
  work = Workload(SIZE, example_bytes=50, updates_per_call=10)
  one, several = [
    scaling_model.row(work, SWITCHED, n, 2, 4).input for n in (4, 8)
  ]
  assert one == pytest.approx(2 * 50 / 100 + 1.3e-4)
  assert several == pytest.approx(2 * 50 / 100 + 2e-4)


def test_worthwhile_devices_end_at_the_last_good_doubling():
  def rows(*steps):
    return [Row(1 << i, 8 >> i, s, 0.0, 0.0) for i, s in enumerate(steps)]

  assert scaling_model.worthwhile_devices(rows(8.0, 5.0, 3.3, 2.3)) == 4
  assert scaling_model.worthwhile_devices(rows(8.0, 6.0, 5.0)) == 1


def test_bfloat16_gradients_halve_the_bytes_of_the_exchange(monkeypatch):
  monkeypatch.setattr(accelerators, 'ACCELERATORS', {'switched': SWITCHED})
  work = Workload(SIZE, weak_batch=8)
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


def test_table_and_figure_agree(tmp_path, capsys, monkeypatch):
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
  most = scaling_model.worthwhile_devices(rows)
  assert drawn['marked'][panel, 'TPU v5e'] == most
  assert f'1.5 times as fast up to {most}.' in text
  assert f'{1e3 * rows[2].step:.2f}' in text
  assert drawn['path'] == figure


def measured(**seconds):
  """Layouts with their seconds in three trials."""
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
      'seconds': {'train': [[s, s, 9 * s] for s in (value, value, 2 * value)]},
    }
    for name, value in seconds.items()
  }
  return {'size': dataclasses.asdict(SIZE), 'implementations': entries}


def test_check_predicts_all_layouts_from_plain_jit():
  rates = Rates(1.0, 0.5, 0.25)
  work = Workload(SIZE, weak_batch=8)
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


def test_check_prints_the_largest_error(tmp_path, capsys, monkeypatch):
  found = measured(jit=1.0, two=1.0, four=1e-3)
  found['implementations'][Layout(8).name] = {
    'layout': Layout(8)._asdict(), 'left_out': 'no such luck',
  }  # fmt: skip
  rates = {
    'product': ({'operations': 6}, 2.0),
    'copy': ({'bytes': 8}, 4.0),
    'weights': ({'bytes': 9}, 3.0),
  }
  peaks = {
    'implementations': {
      name: {'build': {'train': facts}, 'seconds': {'train': [[seconds]]}}
      for name, (facts, seconds) in rates.items()
    }
  }
  assert roofline.median_rates(peaks) == Rates(3.0, 2.0, 3.0)
  exchanges = {Layout(2).name: 0.25, Layout(4).name: 0.25}
  monkeypatch.setattr(scaling_model, 'time_all_reduce', lambda *_: exchanges)
  paths = [tmp_path / 'scaling.json', tmp_path / 'roofline.json']
  flags = [f'--check={paths[0]}', f'--roofline={paths[1]}']
  paths[0].write_text(json.dumps({'sizes': {'tiny': found}}))
  paths[1].write_text(json.dumps({'sizes': {'tiny': peaks}}))
  scaling_model.main(flags)
  rows = scaling_model.check(found, Rates(3.0, 2.0, 3.0), exchanges)
  text = capsys.readouterr().out
  assert f'The largest error of the model is {rows[1]["error"]:.0%}.' in text
  assert '250.0' in text
  assert rows[0]['shares'] is None  # There was no half by jit.
  assert 'no such luck' not in text
  paths[1].write_text(json.dumps({'sizes': {'other': peaks}}))
  with pytest.raises(SystemExit):
    scaling_model.main(flags)
  assert '--roofline lacks the sizes tiny of --check' in capsys.readouterr().err
  with pytest.raises(SystemExit):
    scaling_model.main(flags[:1])
  assert '--check and --roofline require each other' in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.multiprocess
def test_all_reduce_is_timed_for_devices_and_processes():
  found = measured(jit=1.0, two=1.0, processes=1.0)
  options = scaling_model.make_parser().parse_args(
    ['--trials=2', '--trial_seconds=0.01', '--device=cpu']
  )
  seconds = scaling_model.time_all_reduce(found, options)
  assert set(seconds) == {Layout(2).name, Layout(2, 2).name}
  assert all(0 < value < 10 for value in seconds.values())
