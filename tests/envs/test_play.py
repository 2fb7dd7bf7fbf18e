"""Tests rmc_jax/envs/play.py, also in a real terminal."""

import io
import os
import select
import subprocess
import sys
import time

import numpy as np
from PIL import Image
import pytest

from rmc_jax.envs import make
from rmc_jax.envs import play
from rmc_jax.envs.adapters.host import HostGame


def lines(keys, name='box_world', **changes):
  env, params = make(name, **changes)
  game = HostGame(env, params, 0)
  return list(play.play(game, env.actions, iter(keys)))


def test_letters_play_until_q():
  assert len(lines('wasdq')) == 5
  assert len(lines('wqwww')) == 2
  assert len(lines('ww')) == 3
  # Other keys do nothing, nor does staying where that is no action.
  assert len(lines('xw 7w')) == 3
  assert len(lines(' ', 'mini_pacman')) == 2


def test_an_episode_that_is_over_waits_for_a_new_one():
  shown = lines('wwwwnw', max_steps=3)
  assert ['out of time' in line for line in shown] == [
    False, False, False, True, False, False,
  ]  # fmt: skip
  assert len(shown) == 6


def test_letters_move_in_their_directions():
  env, params = make('box_world', max_distractors=0, max_solution=1)
  game = HostGame(env, params, 3)
  places = []
  for _ in play.play(game, env.actions, iter('wdsa')):
    places.append(game.state.player.tolist())
  moves = np.diff(places, axis=0).tolist()
  assert moves == [[-1, 0], [0, 1], [1, 0], [0, -1]]


def test_escape_sequences_are_one_key():
  text = io.StringIO('\x1b[A\x1b[B\x1bOC\x1b[1;2D\x1b[3~\x1b\x1b[A\x1bqW')
  letters = list(play._letters(lambda: text.read(1)))
  assert letters == ['w', 's', 'd', 'a', '', 'w', 'q', 'w']


def test_the_return_is_the_sum_of_rewards():
  shown = lines('dd', 'mini_pacman', mode='avoid')
  rewards = [float(line.split('reward ')[1].split()[0]) for line in shown[1:]]
  assert len(set(rewards) - {0.0}) > 0
  total = float(shown[-1].split('return ')[1].split()[0])
  assert total == pytest.approx(sum(rewards))


def test_without_a_terminal_states_are_printed(monkeypatch, capsys, tmp_path):
  monkeypatch.setattr(sys, 'stdin', io.StringIO('aadq'))
  path = tmp_path / 'game.gif'
  code = play.main(
    ['box_world', '--rule=max_solution=1', f'--gif={path}', '--rate=4']
  )
  printed = capsys.readouterr().out
  assert code == 0
  assert printed.count('@') == 4
  assert f'{path}: 4 frames' in printed
  with Image.open(path) as gif:
    assert gif.size == (14 * 16, 14 * 16)


@pytest.mark.parametrize(
  'arguments, message',
  [
    (['chess'], 'invalid choice'),
    (['mini_pacman', '--rule=mode=chase'], 'mode must be one of'),
    (['mini_pacman', '--rule=colour=1'], 'colour'),
    (['box_world', '--view=side'], 'view must be one of'),
    (['box_world', '--rule=pixels=symbolic'], 'pixels is not a rule'),
    (['box_world', '--rule=max_steps=ten'], 'max_steps must be an integer'),
    (['box_world', '--seed=-1'], 'seed must be at least 0'),
    (['box_world', '--gif=nowhere/x.gif'], 'there is no such folder'),
    (['box_world', '--rate=60'], '--rate must be above 0 and at most 50'),
  ],
)
def test_wrong_arguments_are_refused(arguments, message, capsys):
  with pytest.raises(SystemExit) as error:
    play.main(arguments)
  assert error.value.code == 2
  assert message in capsys.readouterr().err


def test_interrupting_at_once_writes_no_animation(monkeypatch, tmp_path):
  def interrupt(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(play, 'play', interrupt)
  monkeypatch.setattr(sys, 'stdin', io.StringIO(''))
  path = tmp_path / 'game.gif'
  assert play.main(['box_world', f'--gif={path}']) == 0
  assert not path.exists()


def test_arrow_keys_play_in_a_terminal():
  pty = pytest.importorskip('pty', reason='no terminals of POSIX here')
  import termios

  main, other = pty.openpty()
  before = termios.tcgetattr(other)
  process = subprocess.Popen(
    [sys.executable, '-m', 'rmc_jax.envs.play', 'box_world'],
    stdin=other,
    stdout=other,
    stderr=subprocess.PIPE,
    env=os.environ | {'TERM': 'xterm-256color', 'COLUMNS': '90'},
  )
  shown, sent = b'', False
  deadline = time.monotonic() + 120  # Rather a failure than a test that hangs.
  while process.poll() is None:
    if time.monotonic() > deadline:
      process.kill()
    if select.select([main], [], [], 0.1)[0]:
      shown += os.read(main, 65536)
    if not sent and b'new episode' in shown:
      os.write(main, b'\x1b[C\x1b[Aq')
      sent = True
  assert process.returncode == 0, process.stderr.read()
  process.stderr.close()
  assert termios.tcgetattr(other) == before
  os.close(other)
  os.close(main)
  # Colours, and the status lines of two moves.
  assert b'\x1b[48;' in shown
  assert shown.count(b'reward') >= 2
