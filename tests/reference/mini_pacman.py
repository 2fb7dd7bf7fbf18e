"""Mini Pacman in plain Python; slow and easy to check.

The state is a dictionary of Python numbers and lists. All that is random in a
step comes in `draws`, so that a faster version can be compared step by step.
"""

import math

MAZE = [
  '###################',
  '#...#.........#...#',
  '#.#.#.#######.#.#.#',
  '#.................#',
  '#.#.#.#######.#.#.#',
  '#.#.............#.#',
  '#.####.#####.####.#',
  '#......#####......#',
  '#.####.#####.####.#',
  '#.#.............#.#',
  '#.#.#.#######.#.#.#',
  '#.................#',
  '#.#.#.#######.#.#.#',
  '#...#.........#...#',
  '###################',
]
CORRIDORS = [
  (r, c) for r, row in enumerate(MAZE) for c, x in enumerate(row) if x == '.'
]
MOVES = {'right': (0, 1), 'up': (-1, 0), 'left': (0, -1), 'down': (1, 0)}
ORDER = ['right', 'up', 'left', 'down']
BACK = {'right': 'left', 'left': 'right', 'up': 'down', 'down': 'up'}


def is_wall(place):
  return MAZE[place[0]][place[1]] == '#'


def ahead(place, direction):
  return place[0] + MOVES[direction][0], place[1] + MOVES[direction][1]


def move(place, direction):
  """Returns the next place; a wall leaves it as it is."""
  if direction == 'stay' or is_wall(ahead(place, direction)):
    return place
  return ahead(place, direction)


def turn(ghost, direction, player, powered, is_random, choice):
  """Returns the direction of a ghost's next move."""
  if ghost == player:
    return direction
  ways = [d for d in ORDER if not is_wall(ahead(ghost, d))]
  onward = [d for d in ways if d != BACK[direction]]
  if len(ways) <= 2:
    if direction in ways:
      return direction
    return onward[0]
  if is_random and not powered:
    return onward[int(choice * len(onward))]
  rows, columns = player[0] - ghost[0], player[1] - ghost[1]
  length = math.hypot(rows, columns)
  wish = {}
  for way in onward:
    towards = (rows * MOVES[way][0] + columns * MOVES[way][1]) / length
    wish[way] = -towards if powered else towards
  # `max` returns the first of equal ones.
  return max(onward, key=lambda way: wish[way])


def may_start(ghost, player):
  """Whether a ghost may start there."""
  rows, columns = ghost[0] - player[0], ghost[1] - player[1]
  return not (-5 <= rows <= 4 and -5 <= columns <= 4)


def start_level(level, layout, step):
  """A layout has `player`, `pills`, `ghosts` and `directions`."""
  count = min(1 + (level - 1) // 2, 8)
  return {
    'player': layout['player'],
    'ghosts': [
      {'place': place, 'direction': direction, 'alive': index < count}
      for index, (place, direction) in enumerate(
        zip(layout['ghosts'], layout['directions'], strict=True)
      )
    ],
    'food': set(CORRIDORS),
    'pills': [{'place': place, 'there': True} for place in layout['pills']],
    'power': 0,
    'level': level,
    'level_step': 0,
    'step': step,
  }


class Game:
  """One step; afterwards `state`, `reward`, `died` and `out_of_time`."""

  def __init__(self, state, action, draws, rules):
    self.state = state | {
      'ghosts': [dict(ghost) for ghost in state['ghosts']],
      'pills': [dict(pill) for pill in state['pills']],
      'food': set(state['food']),
    }
    self.layout, self.rules = draws['layout'], rules
    self.reward = rules['step_reward']
    self.died = False
    self.ate_ghost = False
    if 0 < rules['level_steps'] <= state['level_step']:
      self.next_level()
    self.state['step'] += 1
    self.state['level_step'] += 1
    self.state['power'] = max(0, self.state['power'] - 1)
    runs = self.state['power'] > 0 and self.rules['player_squares'] == 2
    level = self.state['level']
    self.move_player(action)
    is_open = move(self.state['player'], action) != self.state['player']
    if runs and is_open and self.state['level'] == level:
      self.meet_ghosts()
      if self.state['level'] == level:
        self.move_player(action)
    if not self.ate_ghost:
      self.move_ghosts(draws)
    too_long = self.state['step'] >= rules['max_steps']
    self.out_of_time = too_long and not self.died

  def next_level(self):
    level, step = self.state['level'] + 1, self.state['step']
    self.state = start_level(level, self.layout, step)

  def move_player(self, action):
    self.state['player'] = move(self.state['player'], action)
    if self.state['player'] in self.state['food']:
      self.state['food'].remove(self.state['player'])
      self.reward += self.rules['food_reward']
      if not self.state['food'] and self.rules['clears_on_food']:
        self.next_level()
    for pill in self.state['pills']:
      if pill['there'] and pill['place'] == self.state['player']:
        pill['there'] = False
        self.reward += self.rules['pill_reward']
        self.state['power'] = 20
        none_left = not any(p['there'] for p in self.state['pills'])
        if none_left and self.rules['clears_on_pills']:
          self.next_level()
        break

  def meet_ghosts(self):
    """On the first of two squares."""
    for ghost in self.state['ghosts']:
      if ghost['alive'] and ghost['place'] == self.state['player']:
        self.eat(ghost)
        break

  def move_ghosts(self, draws):
    for index, ghost in enumerate(self.state['ghosts']):
      if not ghost['alive']:
        continue
      if ghost['place'] != self.state['player']:
        self.move_ghost(ghost, index, draws)
      if ghost['place'] == self.state['player']:
        if self.state['power'] > 0:
          self.eat(ghost)
        else:
          self.died = True
          self.reward += self.rules['death_reward']
        break

  def move_ghost(self, ghost, index, draws):
    powered = self.state['power'] > 0
    acceleration = self.rules['ghost_acceleration']
    speed = self.rules['ghost_speed'] + acceleration * (self.state['level'] - 1)
    if powered:
      speed *= self.rules['powered_speed']
    if draws['move'][index] < speed:
      ghost['direction'] = turn(
        ghost['place'],
        ghost['direction'],
        self.state['player'],
        powered,
        draws['turn'][index] < self.rules['random_turns'],
        draws['choice'][index],
      )
      ghost['place'] = move(ghost['place'], ghost['direction'])

  def eat(self, ghost):
    ghost['alive'] = False
    self.ate_ghost = True
    self.reward += self.rules['ghost_reward']
    none_left = not any(each['alive'] for each in self.state['ghosts'])
    if none_left and self.rules['clears_on_ghosts']:
      self.next_level()


def render(state, rules):
  """Returns 15 rows of 19 colours (red, green, blue)."""
  image = []
  for row in range(15):
    image.append([])
    for column in range(19):
      image[-1].append(_colour(state, rules, (row, column)))
  return image


def _colour(state, rules, place):
  ghosts = [each['place'] for each in state['ghosts'] if each['alive']]
  pills = [each['place'] for each in state['pills'] if each['there']]
  if place == state['player']:
    return (0, 1, 0)
  if place in ghosts:
    if state['power'] == 0:
      return (1, 0, 0)
    return (1, state['power'] / 20 if rules['fading'] else 1, 0)
  if place in pills:
    return (0, 1, 1)
  if place in state['food']:
    return (0, 0, 1)
  if rules['power_bar'] and place[0] == 14 and place[1] < state['power']:
    return (0.99, 0.49, 0.59)
  return (1, 1, 1) if is_wall(place) else (0, 0, 0)
