"""The maze, the actions and the fixed numbers of Mini Pacman."""

MAZE = (
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
)
HEIGHT, WIDTH = len(MAZE), len(MAZE[0])

# Actions: stay, then the directions 0, 1, 2, 3 of the ghosts plus one.
ACTIONS = 'stay', 'right', 'up', 'left', 'down'
# (row, column) of each direction; the reverse of d is (d + 2) % 4.
DIRECTIONS = (0, 1), (-1, 0), (0, -1), (1, 0)

NUM_PILLS = 2
MAX_GHOSTS = 8  # Levels 15 and 16 have as many; later levels have no more.
POWER = 20  # A pill sets it, so power lasts for 19 further steps.
# No ghost starts in rows r - 5 .. r + 4, columns c - 5 .. c + 4 of a player at
# (r, c).
START_BOX = -5, 4
VIEW_RADIUS = 2  # 'viewport' shows 5 x 5 cells.
