"""The corridors of the maze as tables, indexed by cell."""

import numpy as np

from rmc_jax.envs.mini_pacman.constants import DIRECTIONS
from rmc_jax.envs.mini_pacman.constants import HEIGHT
from rmc_jax.envs.mini_pacman.constants import MAZE
from rmc_jax.envs.mini_pacman.constants import START_BOX
from rmc_jax.envs.mini_pacman.constants import WIDTH

# [C, 2] (row, column) of each corridor cell, row by row.
CELLS = np.array(
  [
    (row, column)
    for row in range(HEIGHT)
    for column in range(WIDTH)
    if MAZE[row][column] == '.'
  ],
  np.int32,
)
NUM_CELLS = len(CELLS)

# [HEIGHT, WIDTH] the cell at (row, column); NUM_CELLS for a wall.
CELL_AT = np.full((HEIGHT, WIDTH), NUM_CELLS, np.int32)
CELL_AT[CELLS[:, 0], CELLS[:, 1]] = np.arange(NUM_CELLS)

_AHEAD = CELLS[:, None] + np.array(DIRECTIONS)  # [C, 4, 2]
_CELL_AHEAD = CELL_AT[_AHEAD[..., 0], _AHEAD[..., 1]]  # [C, 4]
# [C, 4] whether the way in each direction is open.
EXITS = _CELL_AHEAD < NUM_CELLS
# [C, 5] the cell after each action; a move into a wall ends where it began.
_HERE = np.arange(NUM_CELLS, dtype=np.int32)[:, None]
NEXT_CELL = np.concatenate([_HERE, np.where(EXITS, _CELL_AHEAD, _HERE)], 1)

_LOW, _HIGH = START_BOX
_OFFSET = CELLS[None] - CELLS[:, None]  # [C, C, 2] from player to ghost
_IS_FAR = ~((_OFFSET >= _LOW) & (_OFFSET <= _HIGH)).all(-1)
# [C] number of cells where a ghost may start, for each cell of the player.
NUM_FAR = _IS_FAR.sum(1).astype(np.int32)
# [C, C] all cells, these first.
FAR_CELLS = np.argsort(~_IS_FAR, axis=1, kind='stable').astype(np.int32)
