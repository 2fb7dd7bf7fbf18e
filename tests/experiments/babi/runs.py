"""Short runs of an experiment on the artificial files."""

import dataclasses
import json

from experiments import configuration
from experiments.babi import analysis
from rmc_jax import training

EPOCH = 900 // 32  # Updates.


def config_of(page, sweep, preset, **fields):
  config = configuration.with_preset(page.Config, sweep.PRESETS, preset)
  return dataclasses.replace(config, **fields)


def shorten(config, data_dir, epochs, **fields):
  """Returns a short run: two members on each of two tasks by default."""
  few = {'data_dir': str(data_dir), 'tasks': (2, 15), 'restarts': 2}
  run = training.RunConfig(
    num_steps=epochs * EPOCH,
    log_every=EPOCH,
    eval_every=EPOCH,
    checkpoint_every=EPOCH,
  )
  return dataclasses.replace(config, run=run, **(few | fields))


def run(page, name, config, workdir):
  """Runs or resumes, and returns the members' errors."""
  workdir.mkdir(exist_ok=True)
  configuration.save(workdir, configuration.to_json(name, 'quick', config))
  with training.Runner(workdir) as runner:
    page.train(config, runner)
  return json.loads((workdir / analysis.ERRORS).read_text())


def run_and_resume(page, name, config, folder):
  """Checks that a run stopped after two epochs resumes to the same errors."""
  errors = run(page, name, config, folder / 'whole')
  stopped = dataclasses.replace(config.run, num_steps=2 * EPOCH)
  run(page, name, dataclasses.replace(config, run=stopped), folder / 'resumed')
  assert run(page, name, config, folder / 'resumed') == errors
  return errors
