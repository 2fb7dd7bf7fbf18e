"""Plays a game in a terminal: `python -m rmc_jax.envs.play mini_pacman`.

Arrow keys or w, a, s, d move, the space bar stays, n starts a new episode and q
quits. Without a terminal it reads the same letters from the standard input and
prints the states as text. Exits with 0, or with 2 for wrong arguments.
"""

import argparse
import ast
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import pathlib
import sys
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.live import Live
from rich.text import Text

from rmc_jax.envs import registry
from rmc_jax.envs import render
from rmc_jax.envs.adapters.host import HostGame
from rmc_jax.envs.adapters.host import make_key
from rmc_jax.envs.environment import Game

MOVES = {'w': 'up', 'a': 'left', 's': 'down', 'd': 'right', ' ': 'stay'}
_ESCAPE = '\x1b'
ARROWS = {'A': 'w', 'B': 's', 'C': 'd', 'D': 'a'}  # after ESC [ or ESC O
HELP = 'arrows or w a s d: move   space: stay   n: new episode   q: quit'


def main(arguments: Sequence[str] | None = None) -> int:
  """Plays until the player quits; returns the exit code."""
  options = _parse(arguments)
  game = HostGame(options.env, options.params, options.seed)
  console = Console()
  frames = []
  with contextlib.ExitStack() as stack:
    show = _screen(stack, console, options.env)
    with contextlib.suppress(KeyboardInterrupt):
      for line in play(game, options.env.actions, read_keys(stack)):
        show(game, line)
        if options.gif:
          frames.append(render.image(options.env, game.state, game.params))
  if frames:
    render.save_gif(options.gif, frames, rate=options.rate)
    console.out(f'{options.gif}: {len(frames)} frames')
  return 0


def play(
  game: HostGame, actions: Sequence[str], keys: Iterator[str]
) -> Iterator[str]:
  """Plays with keys.

  Args:
    game: the game.
    actions: the names of its actions.
    keys: letters, see the first lines of this file.

  Yields:
    A status line, at the start and after every key that did something.
  """
  game.reset()
  total, ended = 0.0, False
  yield f'return 0   {HELP}'
  for key in keys:
    if key == 'q':
      return
    if key == 'n':
      game.reset()
      total, ended = 0.0, False
      yield f'return 0   {HELP}'
    elif MOVES.get(key) in actions and not ended:
      _, outcome = game.step(actions.index(MOVES[key]))
      total += float(outcome.reward)
      ended = bool(outcome.terminated or outcome.truncated)
      line = f'return {total:.4g}   reward {outcome.reward:.4g}'
      if ended:
        how = 'over' if outcome.terminated else 'out of time'
        line += f'   {how}: n starts a new episode, q quits'
      yield line


def read_keys(stack: contextlib.ExitStack) -> Iterator[str]:
  """Yields letters of the standard input as they are typed, arrows as w a s d.

  Where the system has no `termios`, a line of letters at a time.

  Args:
    stack: restores the terminal when it is closed.
  """
  if sys.stdin.isatty():
    with contextlib.suppress(ImportError):
      import termios
      import tty

      before = termios.tcgetattr(sys.stdin)
      stack.callback(termios.tcsetattr, sys.stdin, termios.TCSADRAIN, before)
      tty.setcbreak(sys.stdin)
  return _letters(lambda: sys.stdin.read(1))


def _letters(read: Callable[[], str]) -> Iterator[str]:
  """Yields letters; an escape sequence counts as one."""
  while letter := read():
    if letter != _ESCAPE:
      yield letter.lower()
      continue
    while letter == _ESCAPE:
      letter = read()
    if letter not in ('[', 'O'):  # It was the escape key.
      yield letter.lower()
      continue
    # Parameters such as those of a shift key come before the last letter.
    while (letter := read()) and not letter.isalpha() and letter != '~':
      pass
    yield ARROWS.get(letter, '')


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    prog='python -m rmc_jax.envs.play', description=HELP
  )
  add = parser.add_argument
  add('name', choices=registry.NAMES, help='the game')
  add('--preset', default='paper', help='preset of the rules (default: paper)')
  add('--view', default='full', help='full (the default) or viewport')
  add(
    '--rule',
    action='append',
    default=[],
    metavar='NAME=VALUE',
    help='another rule, such as mode=hunt or max_solution=1; may be repeated',
  )
  add('--seed', type=int, default=0, help='random seed (default: 0)')
  add('--gif', metavar='FILE', type=pathlib.Path, help='write an animation')
  add('--rate', type=float, default=5.0, help='frames per second (default: 5)')
  options = parser.parse_args(arguments)
  rules = dict(map(_rule, options.rule))
  try:
    if forbidden := {'name', 'preset', 'view', 'pixels'} & rules.keys():
      raise ValueError(f'{", ".join(forbidden)} is not a rule.')
    make_key(options.seed)
    options.env, options.params = registry.make(
      options.name, options.preset, view=options.view, **rules
    )
  except (TypeError, ValueError) as error:
    parser.error(str(error))
  if options.gif and not options.gif.parent.is_dir():
    parser.error(f'--gif={options.gif}: there is no such folder')
  if not 0 < options.rate <= render.MAX_RATE:
    parser.error(f'--rate must be above 0 and at most {render.MAX_RATE}')
  return options


def _rule(text: str) -> tuple[str, Any]:
  name, _, value = text.partition('=')
  try:
    return name, ast.literal_eval(value)
  except (SyntaxError, ValueError):  # A word, such as the name of a mode.
    return name, value


def _screen(
  stack: contextlib.ExitStack, console: Console, env: Game
) -> Callable[[HostGame, str], None]:
  """Returns a function that shows a game and its status line."""
  if not console.is_terminal:

    def show_text(game: HostGame, line: str) -> None:
      console.out(f'{env.text(jax.device_get(game.state))}\n{line}\n')

    return show_text

  live = stack.enter_context(
    Live(console=console, screen=True, auto_refresh=False)
  )

  def show_colours(game: HostGame, line: str) -> None:
    pixels = np.asarray(render.observe(env, game.state, game.params))
    live.update(_coloured(pixels).append(f'\n{line}'), refresh=True)

  return show_colours


def _coloured(pixels: np.ndarray) -> Text:
  """Returns two blanks for every pixel; the held key is below the viewport."""
  colours = np.round(255 * pixels).astype(int)
  rows = [*colours[..., :3]]
  if pixels.shape[-1] > 3:
    rows.append(colours[0, :1, 3:])
  text = Text()
  for row in rows:
    for red, green, blue in row:
      text.append('  ', f'on rgb({red},{green},{blue})')
    text.append('\n')
  return text


if __name__ == '__main__':
  sys.exit(main())
