"""Tests rmc_jax/envs/play.py, also in a real terminal."""

import io
import os
import pty
import subprocess
import sys

from PIL import Image
import pytest

from rmc_jax.envs import make
from rmc_jax.envs import play
from rmc_jax.envs.adapters.host import HostGame


def lines(keys, name='box_world', **changes):
  env, params = make(name, **changes)
  return list(play.play(HostGame(env, params, 0), env, iter(keys)))


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


def test_the_return_is_the_sum_of_rewards():
  shown = lines('dd', 'mini_pacman', mode='avoid')
  assert 'return 0.' in shown[-1] or 'return -' in shown[-1]
  rewards = [float(line.split('reward ')[1].split()[0]) for line in shown[1:]]
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
  ],
)
def test_wrong_arguments_are_refused(arguments, message, capsys):
  with pytest.raises(SystemExit) as error:
    play.main(arguments)
  assert error.value.code == 2
  assert message in capsys.readouterr().err


def test_arrow_keys_play_in_a_terminal():
  main, other = pty.openpty()
  environment = os.environ | {'TERM': 'xterm-256color', 'COLUMNS': '90'}
  process = subprocess.Popen(
    [sys.executable, '-m', 'rmc_jax.envs.play', 'mini_pacman'],
    stdin=other,
    stdout=other,
    stderr=subprocess.PIPE,
    env=environment,
  )
  os.close(other)
  shown = b''
  sent = False
  while True:
    try:
      shown += os.read(main, 65536)
    except OSError:  # The program has closed the terminal.
      break
    if not sent and b'new episode' in shown:
      os.write(main, b'\x1b[C\x1b[Aq')
      sent = True
  assert process.wait() == 0, process.stderr.read()
  process.stderr.close()
  # Colours, and a line for each of two moves.
  assert b'\x1b[48;' in shown
  assert shown.count(b'reward') >= 2
