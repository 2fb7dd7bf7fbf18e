"""Trains an agent in Mini Pacman: Santoro et al. 2018, section 5.3, figure 10.

The paper: scores of 677 for the relational memory core and 550 for an LSTM with
the viewport, 1159 and 598 with the full observation, read here as undiscounted
returns. It follows Racaniere et al. 2017 without naming the mode, whose paper
and public code differ; see docs/environments.md.

  python -m experiments.mini_pacman.train            # quick, minutes
  python -m experiments.mini_pacman.train --preset=quick_lstm
  python -m experiments.mini_pacman.train --preset=paper       # an accelerator

The paper names neither agent nor network for this game; those of BoxWorld are
used (experiments/box_world/train.py). * marks our choices.
"""

import dataclasses
from typing import Any

from experiments import command_line
from experiments.mini_pacman import analysis
from experiments.mini_pacman import sweep
from rmc_jax import envs
from rmc_jax import rl
from rmc_jax import training
from rmc_jax.checks import positive_int
from rmc_jax.cores.build import ATTENDING
from rmc_jax.cores.build import build_core
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.relational_memory import RelationalMemoryConfig
from rmc_jax.models import ActorCritic
from rmc_jax.rl.record import save_episode


@dataclasses.dataclass
class Config:
  """One run. The paper has the two views; * marks our choices."""

  mode: str = 'regular'  # * 'avoid', 'hunt', 'ambush', 'rush'
  rules: str = 'paper'  # * or 'public'
  max_steps: int = 3000  # * of an episode
  view: str = 'viewport'  # or 'full'
  channels: tuple[int, ...] = (12, 24)  # * of the convolutions
  kernel_size: int = 2  # *
  strides: tuple[int, ...] = (1, 1)  # *
  last_action_and_reward: bool = False  # * as further inputs
  core: CoreConfig = dataclasses.field(default_factory=RelationalMemoryConfig)
  hidden_sizes: tuple[int, ...] = ()  # * layers between core and heads
  agent: rl.AgentConfig = dataclasses.field(default_factory=rl.AgentConfig)  # *
  batch_size: int = 32  # * environments, over all devices
  optimizer: training.OptimizerConfig = dataclasses.field(
    default_factory=training.OptimizerConfig
  )
  eval_episodes: int = 200  # new ones, the same in every evaluation
  eval_batch_size: int = 200  # episodes at once, over all devices
  run: training.RunConfig = dataclasses.field(
    default_factory=training.RunConfig
  )

  def validate(self) -> None:
    for name in ('eval_episodes', 'eval_batch_size'):
      positive_int(name, getattr(self, name))
    rl.check_network(make_network(self))


def make_env(config: Config) -> tuple[envs.Environment, Any]:
  """The game and its parameters."""
  return envs.make(
    'mini_pacman',
    config.rules,
    view=config.view,
    mode=config.mode,
    max_steps=config.max_steps,
  )


def make_network(config: Config) -> rl.Network:
  """Convolutions, core, policy and value."""
  env, _ = make_env(config)
  return rl.make_network(
    lambda: ActorCritic(
      build_core(config.core),
      env.num_actions,
      channels=config.channels,
      kernel_size=config.kernel_size,
      strides=config.strides,
      last_action_and_reward=config.last_action_and_reward,
      hidden_sizes=config.hidden_sizes,
    ),
    env.observation_spec,
  )


def make_parts(
  config: Config,
) -> tuple[rl.Network, envs.Environment, rl.Curriculum]:
  """The agent, its game, and the parameters of the game."""
  env, env_params = make_env(config)
  return make_network(config), env, rl.Curriculum([env_params])


def make_experiment(config: Config) -> training.Experiment:
  """Binds game, agent, loss, optimiser and evaluation together."""
  return rl.make_experiment(
    *make_parts(config),
    agent=config.agent,
    optimizer=training.make_optimizer(config.optimizer),
    batch_size=config.batch_size,
    eval_episodes=config.eval_episodes,
    eval_batch_size=config.eval_batch_size,
    run=config.run,
  )


def train(config: Config, runner: training.Runner) -> None:
  """Trains, evaluates and draws; resumes a run in the workdir."""
  state = runner.train(make_experiment(config), config.run)
  if runner.is_primary:
    save_episode(
      runner.workdir / analysis.EPISODE,
      make_network(config),
      state.params,
      *make_env(config),
      config.run.make_keys()[-1],
      draw_attention=config.core.name in ATTENDING,
      greedy=config.agent.greedy_evaluation,
    )
    print(analysis.report(runner.workdir))


if __name__ == '__main__':
  command_line.main(train, Config, sweep.PRESETS, 'mini_pacman')
