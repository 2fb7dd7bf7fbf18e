"""The room, the actions and the colours of BoxWorld."""

import colorsys

SIZE = 14  # Rows and columns, with a border of one.
ACTIONS = 'up', 'down', 'left', 'right'
MOVES = (-1, 0), (1, 0), (0, -1), (0, 1)  # (row, column)

NUM_COLOURS = 20  # of keys and locks: 0 .. 19
GEM = NUM_COLOURS  # as the content of a box
NO_KEY = -1

MAX_SOLUTION = 5  # boxes on the way to the gem, that of the gem included
MAX_DISTRACTORS = 5
# The loose key, which is a box without a lock, and the boxes.
NUM_ITEMS = 1 + MAX_SOLUTION + MAX_DISTRACTORS

# Where the content of a box may be; its lock is to the right.
FIRST_ROW, LAST_ROW = 2, 11
FIRST_COLUMN, LAST_COLUMN = 2, 9
# Where the player may start.
START_ROWS, START_COLUMNS = range(2, 12), range(1, 12)
# Layouts tried for a level. If none is complete, distractors are left out. With
# five boxes and five distractors, 9 % are not complete: 0.09^8 < 1e-8.
NUM_ATTEMPTS = 8

VIEW_RADIUS = 2  # 'viewport' shows 5 x 5 pixels.
BORDER = 0.0, 0.0, 0.0
BACKGROUND = 0.8, 0.8, 0.8
PLAYER = 0.5, 0.5, 0.5
WHITE = 0.999, 0.999, 0.999  # the gem
KEYS = tuple(
  colorsys.hsv_to_rgb(colour / NUM_COLOURS, 0.5, 0.7)
  for colour in range(NUM_COLOURS)
)
