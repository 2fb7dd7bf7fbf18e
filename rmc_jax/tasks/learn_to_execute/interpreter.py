"""Runs a program of either grammar on the host, with exact integers.

It shares nothing with what makes the samples, so that it can check them. Both
grammars, of which `programs` has the exact texts:

  operand     a number, or '(' body ')'
  expression  operand
              operand + operand, and with - and * in the place of +
              operand if operand < operand else operand, and with >
  loop        x=expression for[k] x+=expression
  body        expression or loop

An operation inside another has parentheses, so nothing binds more closely than
anything else. k is 1 to 9, and nothing reads x but the loop that it belongs to.

A program of the authors' grammar is a body on one line without blanks. One of
the paper's has lines, and may have blanks within them:

  x = expression
  for[k]
    x += expression
  print(x % 10**length)

The two lines in the middle may be left out. A loop in parentheses begins on a
line of its own, with two blanks for every pair of parentheses it is in.
"""

import operator
import re

ARITHMETIC = {'+': operator.add, '-': operator.sub, '*': operator.mul}
COMPARISONS = {'<': operator.lt, '>': operator.gt}
# Characters that an error shows on either side of the place.
CONTEXT = 20

# Anything else is a token of one character, expected somewhere or nowhere.
_TOKEN = re.compile(r'\n *|0|[1-9][0-9]*|[a-z]+|\+=|\*\*|.')


def answer(program: str, length: int) -> str:
  """What a model has to write: the value mod 10^(length + 1), as text.

  Like the authors' code, `sonnet/examples/learn_to_execute.py`. The paper
  prints `x % 10**length`, but its own examples do so only if that length is one
  more than the literals': of the five in figure 6 three fit 10^(length + 1)
  alone, and two fit 10^length as well.

  Args:
    program: see `run`.
    length: digits of the literals.

  Returns:
    Up to length + 1 digits with no zero in front, never negative.

  Raises:
    ValueError: a length under 1, or as `run`.
  """
  if length < 1:
    raise ValueError(f'length must be at least 1. Got: {length}.')
  return str(run(program) % 10 ** (length + 1))


def run(program: str) -> int:
  """The value of a program, not reduced: what its print line takes modulo.

  Args:
    program: of the paper's grammar if it has more than one line, else of the
      authors'.

  Returns:
    The value of the outermost expression or loop.

  Raises:
    ValueError: the text is no such program; with the position, the text before
      and after it, and what should have stood there.
  """
  parser = _Parser(program)
  value = parser.paper_program() if '\n' in program else parser.body(0)
  parser.end()
  return value


class _Parser:
  """Reads from left to right; each method reads one part and returns its value.

  `depth` is how many pairs of parentheses are open. The authors' grammar has no
  lines; there `line` reads nothing.
  """

  def __init__(self, program: str):
    self._program = program
    self._has_lines = '\n' in program
    self._start = self._end = 0
    self._advance()

  def paper_program(self) -> int:
    x = self.assignment(0)
    self.line(0)
    if self._token == 'for':
      x = self.loop(x, 0)
      self.line(0)
    for token in ('print', '(', 'x', '%', '10', '**', 'length', ')'):
      self.take(token)
    return x

  def body(self, depth: int) -> int:
    if self._token != 'x' and not self._token.startswith('\n'):
      return self.expression(depth)
    self.line(depth)
    x = self.assignment(depth)
    self.line(depth)
    return self.loop(x, depth)

  def assignment(self, depth: int) -> int:
    self.take('x')
    self.take('=')
    return self.expression(depth)

  def loop(self, x: int, depth: int) -> int:
    self.take('for')
    self.take('[')
    turns = int(self.take(*'123456789'))
    self.take(']')
    self.line(depth + 1)
    self.take('x')
    self.take('+=')
    step = self.expression(depth)
    for _ in range(turns):
      x += step
    return x

  def expression(self, depth: int) -> int:
    first = self.operand(depth)
    if self._token in ARITHMETIC:
      combine = ARITHMETIC[self.take(*ARITHMETIC)]
      return combine(first, self.operand(depth))
    if self._token == 'if':
      self.take('if')
      left = self.operand(depth)
      compare = COMPARISONS[self.take(*COMPARISONS)]
      right = self.operand(depth)
      self.take('else')
      other = self.operand(depth)
      return first if compare(left, right) else other
    return first

  def operand(self, depth: int) -> int:
    if re.fullmatch('[0-9]+', self._token):
      return int(self.take(self._token))
    if self._token != '(':
      raise self._error("a number or '('")
    self.take('(')
    value = self.body(depth + 1)
    self.take(')')
    return value

  def line(self, depth: int) -> None:
    if self._has_lines:
      self.take('\n' + depth * '  ')

  def end(self) -> None:
    if self._token:
      raise self._error('the end of the program')

  def take(self, *expected: str) -> str:
    """Steps over the token, which must be one of those."""
    token = self._token
    if token not in expected:
      raise self._error(' or '.join(map(repr, expected)))
    self._advance()
    return token

  def _advance(self) -> None:
    """Finds the next token; '' after the last."""
    self._start = self._end
    if self._has_lines:
      while self._program.startswith(' ', self._start):
        self._start += 1
    match = _TOKEN.match(self._program, self._start)
    self._token = match.group() if match else ''
    self._end = self._start + len(self._token)

  def _error(self, expected: str) -> ValueError:
    before = self._program[: self._start][-CONTEXT:]
    after = self._program[self._start :][:CONTEXT]
    return ValueError(
      f'This is no program: at position {self._start}, after {before!r}, '
      f'expected {expected}, found {repr(after) if after else "the end"}.'
    )
