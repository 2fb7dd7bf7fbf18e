"""Trains an agent in BoxWorld: Santoro et al. 2018, appendix A.3.

The paper: 98 % of levels solved with the relational memory core, 73 % with a
ConvLSTM, after 10^9 steps with 1 to 5 boxes and 0 to 5 distractors.

  python -m experiments.box_world.train              # quick: one box, minutes
  python -m experiments.box_world.train --preset=quick_rmc
  python -m experiments.box_world.train --preset=paper         # an accelerator

Departures at --preset=paper: rollouts are on the device with the current
parameters, those of the paper's 100 actors lag behind
(--config.agent.policy_lag). The "absolute spatial position" of a cell is read
as its position in the viewport (--config.coordinates=room). The value at the
limit of steps is bootstrapped. * marks what the paper leaves open, also in
`rl.AgentConfig`.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp

from experiments import command_line
from experiments.box_world import analysis
from experiments.box_world import sweep
from rmc_jax import envs
from rmc_jax import rl
from rmc_jax import training
from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.cores.build import ATTENDING
from rmc_jax.cores.build import build_core
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.relational_memory import RelationalMemoryConfig
from rmc_jax.models import ActorCritic
from rmc_jax.rl.record import save_episode


@dataclasses.dataclass
class Config:
  """One run. The preset `paper` has the core and the optimiser."""

  # * 'pycolab', 'far2025': see docs/environments.md. Boxes and distractors are
  # those below, also for these.
  rules: str = 'paper'
  view: str = 'viewport'  # or 'full'
  # Boxes to the gem: uniform from min_solution to the maximum of the stage. The
  # next stage begins at `stage_threshold` of the levels solved.
  min_solution: int = 1
  max_solution: tuple[int, ...] = (5,)
  stage_threshold: float = 0.9
  min_distractors: int = 0
  max_distractors: int = 5
  channels: tuple[int, ...] = (12, 24)  # of the convolutions
  kernel_size: int = 2
  coordinates: str = 'view'  # * of a cell, in the 'view' or in the 'room'
  cells_as_rows: bool = False  # * Each cell is an input row of the memory.
  last_action_and_reward: bool = False  # * as further inputs
  core: CoreConfig = dataclasses.field(default_factory=RelationalMemoryConfig)
  hidden_sizes: tuple[int, ...] = ()  # * layers between core and heads
  agent: rl.AgentConfig = dataclasses.field(default_factory=rl.AgentConfig)
  batch_size: int = 32  # environments, over all devices
  optimizer: training.OptimizerConfig = dataclasses.field(
    default_factory=training.OptimizerConfig
  )
  eval_episodes: int = 1000  # on new levels, the same in every evaluation
  eval_batch_size: int = 200  # episodes at once, over all devices
  run: training.RunConfig = dataclasses.field(
    default_factory=training.RunConfig
  )

  def validate(self) -> None:
    for name in ('eval_episodes', 'eval_batch_size'):
      positive_int(name, getattr(self, name))
    one_of('coordinates', self.coordinates, ('view', 'room'))
    if not self.max_solution:
      raise ValueError('max_solution must have one number per stage. Got: ().')
    if not 0 < self.stage_threshold <= 1:
      raise ValueError(
        f'stage_threshold must be in (0, 1]. Got: {self.stage_threshold}.'
      )
    rl.check_network(make_network(self))


def make_stages(config: Config) -> list[tuple[envs.Environment, Any]]:
  """The game and its parameters in each stage of the curriculum."""
  return [
    envs.make(
      'box_world',
      config.rules,
      view=config.view,
      coordinates=config.coordinates == 'room',
      min_solution=config.min_solution,
      max_solution=max_solution,
      min_distractors=config.min_distractors,
      max_distractors=config.max_distractors,
    )
    for max_solution in config.max_solution
  ]


def make_network(config: Config) -> rl.Network:
  """Convolutions, core, policy and value."""
  env, _ = make_stages(config)[0]
  return rl.make_network(
    lambda: ActorCritic(
      build_core(config.core),
      env.num_actions,
      channels=config.channels,
      kernel_size=config.kernel_size,
      coordinates='observation' if config.coordinates == 'room' else 'view',
      cells_as_rows=config.cells_as_rows,
      last_action_and_reward=config.last_action_and_reward,
      hidden_sizes=config.hidden_sizes,
    ),
    env.observation_spec,
  )


def make_parts(
  config: Config,
) -> tuple[rl.Network, envs.Environment, rl.Curriculum]:
  """The agent, its game, and the parameters of the game in each stage."""
  games, stages = zip(*make_stages(config), strict=True)
  curriculum = rl.Curriculum(stages, 'solved', config.stage_threshold)
  return make_network(config), games[0], curriculum


def make_experiment(config: Config) -> training.Experiment:
  """Binds game, agent, loss, optimiser and evaluation together."""
  lengths = range(config.min_solution, max(config.max_solution) + 1)
  distractors = range(config.min_distractors, config.max_distractors + 1)
  _, rules = make_stages(config)[0]

  def metrics_of(first, last):
    """Counts solved levels: all, by boxes to the gem, by distractors."""
    boxes = (first.has_lock & ~first.is_distractor).sum()
    branches = (first.has_lock & first.is_distractor).sum()
    branches = branches // rules.branch_length
    groups = {'solved': jnp.ones((), bool)}
    if len(lengths) > 1:
      groups |= {f'solved_{n}_boxes': boxes == n for n in lengths}
    if len(distractors) > 1:
      groups |= {f'solved_{n}_distractors': branches == n for n in distractors}
    return {
      name: (last.solved & counted, counted) for name, counted in groups.items()
    }

  return rl.make_experiment(
    *make_parts(config),
    agent=config.agent,
    optimizer=training.make_optimizer(config.optimizer),
    batch_size=config.batch_size,
    eval_episodes=config.eval_episodes,
    eval_batch_size=config.eval_batch_size,
    metrics_of=metrics_of,
    run=config.run,
  )


def train(config: Config, runner: training.Runner) -> None:
  """Trains, evaluates and draws; resumes a run in the workdir."""
  state = runner.train(make_experiment(config), config.run)
  if runner.is_primary:
    env, env_params = make_stages(config)[-1]
    save_episode(
      runner.workdir / analysis.EPISODE,
      make_network(config),
      state.params,
      env,
      env_params,
      config.run.make_keys()[-1],
      draw_attention=config.core.name in ATTENDING,
      greedy=config.agent.greedy_evaluation,
    )
    print(analysis.report(runner.workdir))


if __name__ == '__main__':
  command_line.main(train, Config, sweep.PRESETS, 'box_world')
