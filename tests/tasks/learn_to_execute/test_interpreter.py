"""Tests rmc_jax/tasks/learn_to_execute/interpreter.py."""

import random
import re

import pytest

from rmc_jax.tasks.learn_to_execute import interpreter

PRINT = '\nprint(x % 10**length)'
DIGITS = ' or '.join(f"'{digit}'" for digit in range(1, 10))

# Santoro et al. 2018, figure 6: program, length, value, printed answer, and
# which of the moduli 10^length and 10^(length + 1) the answer fits.
FIGURE_6 = {
    'addition': (
        'x=473278230+(1257657+32721978)', 7, 507257865, '7257865', 'both'
    ),
    'control': (
        'x = 221 if ((411 if 918 > 314 else 680) + 321) < 778 else 652',
        3, 221, '221', 'both',
    ),
    'program_1': (
        'x=82930-31249\nfor[6]\n  x+=98315', 5, 641571, '641571', 'longer'
    ),
    'program_2': (
        'x = (28694 if 89425 > 31990 else 38662)\nfor[5]\n  x += 54926',
        5, 303324, '303324', 'longer',
    ),
    'program_3': (
        'x = (\n  x=76957\n  for[7]\n    x += 62117)\nfor[8]\n  x+=90285',
        5, 1234056, '234056', 'longer',
    ),
}  # fmt: skip


@pytest.mark.parametrize('name', FIGURE_6)
def test_examples_of_the_paper(name):
  program, length, value, answer, modulus = FIGURE_6[name]
  assert interpreter.run(program + PRINT) == value
  assert interpreter.answer(program + PRINT, length) == answer
  assert str(value % 10 ** (length + 1)) == answer
  assert (str(value % 10**length) == answer) == (modulus == 'both')


@pytest.mark.parametrize(
  'program, value, answer',
  [
    ('(81890+26992)+25059', 133941, '133941'),
    ('(x=19218for[6]x+=25909)if55278<55597else33318', 174672, '174672'),
    ('(44198-86707)-66521', -109030, '890970'),
  ],
)
def test_examples_of_the_authors_code(program, value, answer):
  assert interpreter.run(program) == value
  assert interpreter.answer(program, 5) == answer


@pytest.mark.parametrize(
  'program, value',
  [
    ('7', 7),
    ('0', 0),
    ('3+4', 7),
    ('3-4', -1),
    ('3*4', 12),
    ('(2*3)*(4-9)', -30),
    ('1if2<3else4', 1),
    ('1if2>3else4', 4),
    ('1if3<3else4', 4),
    ('1if3>3else4', 4),
    ('x=5for[9]x+=2', 23),
    ('x=5for[1]x+=(0-2)', 3),
    ('x=(x=1for[2]x+=10)for[3]x+=(x=100for[4]x+=1000)', 21 + 3 * 4100),
    ('((99999*99999)*99999)*99999', 99999**4),
  ],
)
def test_hand_checked_values(program, value):
  assert interpreter.run(program) == value


@pytest.mark.parametrize('seed', range(40))
def test_random_programs_of_both_grammars(seed):
  rng = random.Random(seed)
  for _ in range(10):
    tree, value = random_tree(rng, nesting=rng.randint(1, 5))
    assert interpreter.run(authors_text(tree)) == value
    for blanks in (['', ' '], [' ']):
      text = paper_text(tree, blank=lambda b=blanks: rng.choice(b))
      assert interpreter.run(text) == value


def test_programs_without_inner_loops_equal_python():
  rng = random.Random(0)
  compared = {True: 0, False: 0}  # with a loop, without
  while min(compared.values()) < 50:
    tree, _ = random_tree(rng, nesting=rng.randint(1, 4))
    text = paper_text(tree)
    if '(\n' not in text:
      python = re.sub(r'for\[(\d)\]', r'for _ in range(\1):', text)
      names = {}
      exec(python.removesuffix(PRINT), names)
      assert interpreter.run(text) == names['x']
      compared['for' in text] += 1


def test_answers_have_the_digits_of_the_modulus():
  assert interpreter.answer('99*99', 1) == '1'
  assert interpreter.answer('99*99', 2) == '801'
  assert interpreter.answer('99*99', 3) == '9801'
  assert interpreter.answer('90*90', 1) == '0'
  assert interpreter.answer('0-1', 2) == '999'
  with pytest.raises(ValueError, match='length must be at least 1. Got: 0'):
    interpreter.answer('1+1', 0)


@pytest.mark.parametrize(
  'program, position, expected, found',
  [
    ('', 0, "a number or '('", 'the end'),
    ('12+', 3, "a number or '('", 'the end'),
    ('12+else', 3, "a number or '('", 'else'),
    ('(12+34', 6, "')'", 'the end'),
    ('12+34)', 5, 'the end of the program', ')'),
    ('1+2+3', 3, 'the end of the program', '+3'),
    ('01+2', 1, 'the end of the program', '1+2'),
    ('1 +2', 1, 'the end of the program', ' +2'),
    ('1/2', 1, 'the end of the program', '/2'),
    ('12if3=4else5', 5, "'<' or '>'", '=4else5'),
    ('12if3<4', 7, "'else'", 'the end'),
    ('x=1', 3, "'for'", 'the end'),
    ('x=1for3', 6, "'['", '3'),
    ('x=1for[0]x+=2', 7, DIGITS, '0]x+=2'),
    ('x=1for[10]x+=2', 7, DIGITS, '10]x+=2'),
    ('x=1for[3x+=2', 8, "']'", 'x+=2'),
    ('x=1for[3]x=2', 10, "'+='", '=2'),
    ('x=1for[3]y+=2', 9, "'x'", 'y+=2'),
    ('x=1\n', 4, "'print'", 'the end'),
    ('1+2' + PRINT, 0, "'x'", '1+2\\nprint(x % 10**le'),
    ('x=1\nprint(x % 10**len)', 18, "'length'", 'len)'),
    ('x=1\nprint(x % 100**length)', 14, "'10'", '100**length)'),
    ('x=1\n  print(x % 10**n)', 3, r"'\n'", r'\n  print(x % 10**n)'),
    ('x=1' + PRINT + '\n', 25, 'the end of the program', r'\n'),
    ('x=1\n\nprint', 4, "'print'", r'\nprint'),
    ('x=1\nfor[2] x+=3\n', 11, r"'\n  '", r'x+=3\n'),
    ('x=1\nfor[2]\nx+=3\n', 10, r"'\n  '", r'\nx+=3\n'),
    ('x=1 for[2]\n  x+=3\n', 4, r"'\n'", r'for[2]\n  x+=3\n'),
    ('x=(x=1\n  for[2])', 3, r"'\n  '", r'x=1\n  for[2])'),
    ('x=(\nx=1\nfor[2])', 3, r"'\n  '", r'\nx=1\nfor[2])'),
    ('x=((\n  x=1)', 4, r"'\n    '", r'\n  x=1)'),
    ('x=(\n  x=1)', 9, r"'\n  '", ')'),
  ],
)
def test_an_error_says_where_and_what_was_expected(
  program, position, expected, found
):
  with pytest.raises(ValueError) as error:
    interpreter.run(program)
  message = str(error.value)
  assert message.startswith(f'Not a program: at position {position}, ')
  found = found if found == 'the end' else f"'{found}'"
  assert message.endswith(f', expected {expected}, found {found}.'), message


def test_an_error_shows_the_text_around_it():
  with pytest.raises(ValueError) as error:
    interpreter.run('(1234567890+1234567890)+[234567890123456789012345')
  assert str(error.value) == (
    "Not a program: at position 24, after '4567890+1234567890)+', "
    "expected a number or '(', found '[2345678901234567890'."
  )


def random_tree(rng, nesting):
  """A nest of tuples (operation, operands ...) or a number, and its value."""
  if nesting == 0:
    number = rng.randint(0, 999)
    return number, number
  kind = rng.choice('+-*<>l')
  operands = [
    random_tree(rng, nesting - 1 if i == 0 else rng.randint(0, nesting - 1))
    for i in range(4 if kind in '<>' else 2)
  ]
  rng.shuffle(operands)
  trees, values = zip(*operands, strict=True)
  if kind == 'l':
    turns = rng.randint(1, 9)
    return (kind, *trees, turns), values[0] + turns * values[1]
  return (kind, *trees), {
    '+': lambda a, b: a + b,
    '-': lambda a, b: a - b,
    '*': lambda a, b: a * b,
    '<': lambda a, b, c, d: a if b < c else d,
    '>': lambda a, b, c, d: a if b > c else d,
  }[kind](*values)


def authors_text(tree):
  def operand(tree):
    return f'({authors_text(tree)})' if isinstance(tree, tuple) else str(tree)

  if not isinstance(tree, tuple):
    return str(tree)
  if tree[0] == 'l':
    _, a, b, turns = tree
    return f'x={operand(a)}for[{turns}]x+={operand(b)}'
  kind, *rest = tree[0], *map(operand, tree[1:])
  if kind in '<>':
    return f'{rest[0]}if{rest[1]}{kind}{rest[2]}else{rest[3]}'
  return kind.join(rest)


def paper_text(tree, blank=lambda: ' '):
  """`blank` makes the blanks around signs and keywords."""

  def spaced(symbol):
    return blank() + symbol + blank()

  def loop(tree, depth):
    _, a, b, turns = tree
    return ('\n' + '  ' * depth).join(
      [
        f'x{spaced("=")}{operand(a, depth + 1)}',
        f'for[{turns}]',
        f'  x{spaced("+=")}{operand(b, depth + 1)}',
      ]
    )

  def operand(tree, depth):
    if not isinstance(tree, tuple):
      return str(tree)
    if tree[0] == 'l':
      return f'(\n{"  " * depth}{loop(tree, depth)})'
    return f'({expression(tree, depth)})'

  def expression(tree, depth):
    kind, *rest = tree[0], *(operand(part, depth + 1) for part in tree[1:])
    if kind in '<>':
      test = rest[1] + spaced(kind) + rest[2]
      return f'{rest[0]}{spaced("if")}{test}{spaced("else")}{rest[3]}'
    return spaced(kind).join(rest)

  if tree[0] == 'l':
    return loop(tree, 0) + PRINT
  return f'x{spaced("=")}{expression(tree, 0)}{PRINT}'
