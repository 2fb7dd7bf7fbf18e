"""A synthetic corpus of a few words, and runs that take seconds."""

import dataclasses
import pathlib

from experiments import configuration
from experiments.language_modeling import corpus
from experiments.language_modeling import sweep
from experiments.language_modeling import train
from rmc_jax import training

# Every word is followed by its successor, in lines of eleven.
WORDS = [f'w{i}' for i in range(11)]
TEXTS = {
  'train': (' '.join(WORDS) + '\n') * 60,
  'valid': (' '.join(WORDS) + '\n') * 5,
  'test': (' '.join(WORDS[:7]) + ' unheard\n') * 6,
}


def replace_documents(monkeypatch):
  """Makes every prepared corpus the synthetic one, kept in its `data_dir`."""
  monkeypatch.setattr(
    corpus.load,
    'documents',
    lambda name, split, data_dir: iter([TEXTS[split]]),
  )
  monkeypatch.setattr(
    corpus.load,
    'folder',
    lambda name, data_dir: pathlib.Path(data_dir) / name,
  )


def config_of(preset, **fields):
  config = configuration.with_preset(train.Config, sweep.PRESETS, preset)
  return dataclasses.replace(config, **fields)


def short(data_dir, num_steps=60, **fields):
  config = config_of(
    'quick',
    **{
      'data_dir': str(data_dir),
      'vocabulary_size': None,
      'embedding_size': 5,
      'embedding_dropout': 0.0,
      'batch_size': 4,
      'window': 7,
      'eval_tokens': 37,
      'eval_rows': 4,
      'eval_lengths': (3, 10, 10_000),
    }
    | fields,
  )
  config.run = training.RunConfig(
    num_steps=num_steps, log_every=20, eval_every=20, checkpoint_every=20
  )
  config.core = dataclasses.replace(config.core, head_size=3)
  config.optimizer = dataclasses.replace(config.optimizer, learning_rate=0.02)
  return config


def longer(config, num_steps):
  """The same run with another length."""
  run = dataclasses.replace(config.run, num_steps=num_steps)
  return dataclasses.replace(config, run=run)


def run_experiment(config, workdir):
  """Trains as the command line does."""
  with training.Runner(workdir) as runner:
    text = configuration.to_json('language_modeling', 'quick', config)
    configuration.save(workdir, text)
    train.train(config, runner)
