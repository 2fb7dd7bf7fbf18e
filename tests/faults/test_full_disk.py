"""Fault 4: there is no room for a checkpoint, or for anything."""

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
  ids=['no_room_for_a_checkpoint', 'no_room_for_a_byte'],
)
def test_it_ends_the_run_within_one_save_interval(
  tmp_path, fault, error, capsys
):
  workdir = tmp_path / 'full'
  ((code, said),) = drills.run(
      workdir, f'{fault}@25', devices=4,
      flags=[f'--config.ballast={BALLAST}', '--config.num_steps=60'],
  )  # fmt: skip
  assert code == 1, said
  assert re.search(error, said, re.DOTALL), said
  assert max(drills.asked(workdir)) < 40

  # With room again.
  config = trainer.Config(num_steps=60, ballast=BALLAST)
  capsys.readouterr()
  state = trainer.train(config, workdir)
  assert drills.resumed_at(capsys.readouterr().out) in (10, 20)
  assert bits(state) == bits(trainer.train(config, tmp_path / 'whole'))
  assert metrics_of(workdir) == metrics_of(tmp_path / 'whole')
