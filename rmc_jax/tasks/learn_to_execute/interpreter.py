"""Runs a program of either grammar on the host, with exact integers.

It is independent of the code that draws samples, so that it can check them.
`programs` defines both grammars. This parser also accepts operations in several
operands, bare numbers and, in programs of the paper, blanks anywhere within a
line. An operation inside another has parentheses, so there is no precedence. A
program with line feeds is one of the paper, any other one of the authors.
"""

import operator
import re

from rmc_jax.checks import positive_int

ARITHMETIC = {'+': operator.add, '-': operator.sub, '*': operator.mul}
COMPARISONS = {'<': operator.lt, '>': operator.gt}
# Characters that an error shows before and after its position.
CONTEXT = 20

# Any other character is a token too, which may be an error.
_TOKEN = r'(\n *|0|[1-9][0-9]*|[a-z]+|\+=|\*\*|.)'


def answer(program: str, length: int) -> str:
  """The answer to a program as text: its value mod 10^(length + 1).

  So does the authors' code, `sonnet/examples/learn_to_execute.py`. The paper
  prints `x % 10**length`, but of its five examples in figure 6 three are right
  only for 10^(length + 1), and the other two for both.

  Raises:
    ValueError: `length`, the digits of the literals, is below 1; or as `run`.
  """
  return str(run(program) % 10 ** (positive_int('length', length) + 1))


def run(program: str) -> int:
  """The value of the outermost expression or loop of a program.

  Raises:
    ValueError: the text is not a program; has the position, the text around it
      and the tokens expected there.
  """
  parser = _Parser(program)
  value = parser.paper_program() if '\n' in program else parser.body(0)
  parser.end()
  return value


class _Parser:
  """A recursive-descent parser; each method returns the value of its part.

  `depth` is the number of open parentheses. The authors' grammar has no lines,
  so there `line` reads nothing.
  """

  def __init__(self, program: str):
    self._program = program
    self._has_lines = '\n' in program
    blanks = ' *+' if self._has_lines else ''
    found = re.finditer(blanks + _TOKEN, program)
    self._tokens = [(match[1], match.start(1)) for match in found]
    self._tokens.append(('', len(program)))
    self._tokens.reverse()

  @property
  def _token(self) -> str:
    return self._tokens[-1][0]

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
    """Consumes the token, which must be one of `expected`."""
    if self._token not in expected:
      raise self._error(' or '.join(map(repr, expected)))
    return self._tokens.pop()[0]

  def _error(self, expected: str) -> ValueError:
    _, start = self._tokens[-1]
    before = self._program[:start][-CONTEXT:]
    after = self._program[start:][:CONTEXT]
    return ValueError(
      f'Not a program: at position {start}, after {before!r}, '
      f'expected {expected}, found {repr(after) if after else "the end"}.'
    )
