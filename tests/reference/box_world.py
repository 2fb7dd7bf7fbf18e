"""BoxWorld in plain Python, and a solver that searches.

A level is a dictionary: `player` (row, column), `keys` {place: colour} of keys
that lie in the room, 'gem' among them, `locks` {place: colour}, `astray` (the
places of the locks of distractors) and `held`, a colour or None. A key or gem
is locked in while there is a lock to the right of it.
"""

import collections

MOVES = {'up': (-1, 0), 'down': (1, 0), 'left': (0, -1), 'right': (0, 1)}
STAY = {'stay': (0, 0)}


def is_border(place):
  return not (1 <= place[0] <= 12 and 1 <= place[1] <= 12)


def right_of(place):
  return place[0], place[1] + 1


def move(level, action, far2025=False):
  """Returns the next level, the reward and how the episode ended, if it did."""
  after, reward, end = _move(level, action, far2025)
  return after, (reward - 0.1 if far2025 else reward), end


def _move(level, action, far2025):
  row, column = (MOVES | STAY)[action]
  target = level['player'][0] + row, level['player'][1] + column
  after = {
    'player': target,
    'keys': dict(level['keys']),
    'locks': dict(level['locks']),
    'astray': level['astray'],
    'held': level['held'],
  }
  if is_border(target):
    return level, 0, None
  if target in level['locks']:
    if level['held'] != level['locks'][target]:
      return level, 0, None
    del after['locks'][target]
    after['held'] = None
    if far2025:
      colour = after['keys'].pop((target[0], target[1] - 1))
      if colour == 'gem':
        return after, 10, 'gem'
      after['held'] = colour
    if target in level['astray']:
      return after, -1, 'distractor'
    return after, 1, None
  if target in level['keys']:
    if right_of(target) in level['locks']:
      return level, 0, None
    colour = after['keys'].pop(target)
    if colour == 'gem':
      return after, 10, 'gem'
    after['held'] = colour
    return after, int(far2025), None
  return after, 0, None


def solve(level, far2025=False):
  """Returns the actions of a shortest way to the gem, or None.

  Breadth-first search over all that the rules allow, with nothing known of how
  levels are made.
  """
  came_from = {_freeze(level): None}
  queue = collections.deque([level])
  while queue:
    current = queue.popleft()
    for action in MOVES:
      after, _, end = move(current, action, far2025)
      if end == 'gem':
        return [*_trace(came_from, _freeze(current)), action]
      if end is None and _freeze(after) not in came_from:
        came_from[_freeze(after)] = _freeze(current), action
        queue.append(after)
  return None


def _trace(came_from, state):
  actions = []
  while came_from[state] is not None:
    state, action = came_from[state]
    actions.append(action)
  return actions[::-1]


def _freeze(level):
  return (
    level['player'],
    level['held'],
    frozenset(level['keys']),
    frozenset(level['locks']),
  )


def render(level):
  """Returns 14 rows of 14 names: colours of keys and locks, and the rest."""
  image = []
  for row in range(14):
    image.append([])
    for column in range(14):
      place = row, column
      if place == level['player']:
        pixel = 'player'
      elif place in level['keys']:
        pixel = level['keys'][place]
      elif place in level['locks']:
        pixel = level['locks'][place]
      else:
        pixel = 'border' if is_border(place) else 'background'
      image[-1].append(pixel)
  return image


def place_items(rng, num_items):
  """Returns the places of a loose key and boxes, or None if one does not fit.

  An item may be anywhere in rows 2 to 11, columns 2 to 9, if the 3 x 4 cells
  around a box there are empty.
  """
  around = [(r, c) for r in (-1, 0, 1) for c in (-1, 0, 1, 2)]
  taken, places = set(), []
  for index in range(num_items):
    legal = [
      (row, column)
      for row in range(2, 12)
      for column in range(2, 10)
      if not any((row + r, column + c) in taken for r, c in around)
    ]
    if not legal:
      return None
    places.append(rng.choice(legal))
    taken.add(places[-1])
    if index > 0:
      taken.add(right_of(places[-1]))
  return places
