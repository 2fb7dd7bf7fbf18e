"""The room, the actions and the colours of BoxWorld."""

import colorsys

SIZE = 14  # Rows and columns, with a border of one.
ACTIONS = 'up', 'down', 'left', 'right', 'stay'
MOVES = (-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)  # (row, column)

VARIANTS = 'pycolab', 'far2025'

# Of keys and locks: 0 .. 19, or 18.
NUM_COLOURS = {'pycolab': 20, 'far2025': 19}
GEM = NUM_COLOURS['pycolab']  # as the content of a box
NO_KEY = -1

MAX_SOLUTION = 5  # boxes on the way to the gem, that of the gem included
MAX_DISTRACTORS = 5
# Boxes of a level. Of ten, 9 % of layouts are not complete, so 8 attempts fail
# in 0.09^8 < 1e-8 of levels, which then lack a distractor. In `far2025` a box
# takes at most 5 of 131 places, so 15 always fit.
MAX_BOXES = {'pycolab': 10, 'far2025': 15}
NUM_ATTEMPTS = 8

VIEW_RADIUS = 2  # 'viewport' shows 5 x 5 pixels.
# [24, 3] of each variant: of 20 keys and locks, then gem, player, background
# and border.
PALETTES = {
  'pycolab': (
    *(colorsys.hsv_to_rgb(colour / 20, 0.5, 0.7) for colour in range(20)),
    (0.999, 0.999, 0.999),
    (0.5, 0.5, 0.5),
    (0.8, 0.8, 0.8),
    (0.0, 0.0, 0.0),
  ),
  'far2025': tuple(
    (red / 255, green / 255, blue / 255)
    for red, green, blue in (
      (0, 0, 117),
      (230, 190, 255),
      (170, 255, 195),
      (255, 250, 200),
      (255, 216, 177),
      (250, 190, 190),
      (240, 50, 230),
      (145, 30, 180),
      (67, 99, 216),
      (66, 212, 244),
      (60, 180, 75),
      (191, 239, 69),
      (255, 255, 25),
      (245, 130, 49),
      (230, 25, 75),
      (128, 0, 0),
      (154, 99, 36),
      (128, 128, 0),
      (70, 153, 144),
      (0, 0, 0),
      (255, 255, 255),
      (128, 128, 128),
      (220, 220, 220),
      (0, 0, 0),
    )  # fmt: skip
  ),
}
