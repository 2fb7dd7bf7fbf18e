"""Tests experiments/configuration.py: selecting a core and its fields."""

import dataclasses

from absl import flags
from absl.testing import flagsaver
import pytest

from experiments import command_line
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.lstm import LSTMConfig
from rmc_jax.cores.relational_memory import RelationalMemoryConfig


@dataclasses.dataclass
class Config:
  core: CoreConfig = dataclasses.field(
    default_factory=lambda: RelationalMemoryConfig(mem_slots=3)
  )


PRESETS = {
  'quick': {},
  'heads': {'core': {'num_heads': 5}},
  'lstm': {'core': {'name': 'lstm', 'hidden_size': 7}},
}


def start(*arguments, presets=PRESETS):
  """Runs `main`; returns its exit code and the configurations trained."""
  trained = []
  with flagsaver.flagsaver(), pytest.raises(SystemExit) as end:
    command_line.main(
      lambda config, workdir: trained.append(config),
      Config,
      presets,
      experiment='toy',
      argv=['train.py', *arguments],
    )
  return end.value.code or 0, trained


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  yield
  flags.FLAGS.unparse_flags()


@pytest.mark.parametrize(
  'arguments, core',
  [
    ([], RelationalMemoryConfig(mem_slots=3)),
    (['--preset=heads'], RelationalMemoryConfig(mem_slots=3, num_heads=5)),
    (['--preset=lstm'], LSTMConfig(hidden_size=7)),
    (
      [
        '--preset=lstm',
        '--config.core.name=lstm',
        '--config.core.num_layers=2',
      ],
      LSTMConfig(hidden_size=7, num_layers=2),
    ),
    (['--preset=heads', '--config.core.name=lstm'], LSTMConfig()),
    (
      ['--config.core.hidden_size=9', '--config.core.name', 'lstm'],
      LSTMConfig(hidden_size=9),
    ),
    (
      ['--config.core.name=relational_memory', '--preset=lstm'],
      RelationalMemoryConfig(),
    ),
  ],
)
def test_name_selects_the_core_and_its_defaults(arguments, core):
  assert start(*arguments) == (0, [Config(core)])


@pytest.mark.parametrize(
  'arguments, sentence',
  [
    (
      ['--config.core.name=lstn'],
      "There is no core 'lstn'. Did you mean lstm? Cores: relational_memory,",
    ),
    (
      ['--config.core.name=lstm', '--config.core.num_heads=16'],
      'There is no field config.core.num_heads for core lstm: it belongs to '
      'relational_memory, paper_relational_memory. Fields of lstm: '
      'compute_dtype, hidden_size, num_layers.',
    ),
    (
      ['--preset=lstm', '--config.core.hiden_size=16'],
      'There is no field config.core.hiden_size for core lstm. Did you mean '
      'core.hidden_size? Fields of lstm: compute_dtype, hidden_size, '
      'num_layers.',
    ),
    (
      ['--preset=heads', '--config.core.num_heads=0'],
      'core: num_heads must be at least 1. Got: 0.',
    ),
  ],
)
def test_flag_for_a_field_of_another_core_exits(
  tmp_path, capsys, arguments, sentence
):
  assert start(*arguments) == (77, [])
  assert capsys.readouterr().err.startswith(f'toy: {sentence}')
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
  'core, sentence',
  [
    (
      {'name': 'lstm', 'num_heads': 16},
      "Preset 'quick' sets core.num_heads, which does not exist for core lstm: "
      'it belongs to relational_memory, paper_relational_memory. Fields of '
      'lstm: compute_dtype, hidden_size, num_layers.',
    ),
    (
      {'name': 'lstm', 'hiden_size': 16},
      "Preset 'quick' sets core.hiden_size, which does not exist for core "
      'lstm. Did you mean core.hidden_size?',
    ),
    ({'name': 'lstn'}, "There is no core 'lstn'. Did you mean lstm?"),
  ],
)
def test_preset_with_a_field_of_another_core_exits(capsys, core, sentence):
  assert start(presets={'quick': {'core': core}}) == (77, [])
  assert capsys.readouterr().err.startswith(f'toy: {sentence}')
