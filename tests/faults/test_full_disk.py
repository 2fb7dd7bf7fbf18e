"""Fault 4: the disk has no space for a checkpoint, or for a single byte."""

import re

import pytest

from tests.faults import drills
from tests.faults import trainer
from tests.training.test_loop import bits
from tests.training.test_loop import metrics_of

BALLAST = 100_000  # 400 kB that no disk compresses.


@pytest.mark.slow
@pytest.mark.parametrize(
  ('fault', 'error'),
  [
    ('small_disk', r'Saving step [23]0 .*disk full.*: step [12]0\.'),
    ('full_disk', ''),  # Its output is on that disk too.
  ],
  ids=['no_space_for_a_checkpoint', 'no_space_for_a_byte'],
)
def test_full_disk_ends_the_run_within_one_save_interval(
  tmp_path, fault, error, capsys
):
  workdir = tmp_path / 'full'
  ((code, output),) = drills.run(
      workdir, f'{fault}@25', devices=4,
      flags=[f'--config.ballast={BALLAST}', '--config.run.num_steps=60'],
  )  # fmt: skip
  assert code == 1, output
  assert re.search(error, output, re.DOTALL), output
  assert max(drills.steps_loaded(workdir)) < 40

  # With space again.
  config = trainer.make_config(num_steps=60, ballast=BALLAST)
  capsys.readouterr()
  state = trainer.run(config, workdir)
  assert drills.resumed_at(capsys.readouterr().out) in (10, 20)
  assert bits(state) == bits(trainer.run(config, tmp_path / 'complete'))
  assert metrics_of(workdir) == metrics_of(tmp_path / 'complete')
