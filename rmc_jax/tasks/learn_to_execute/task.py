"""The tasks of program evaluation and memorization, and their sizes."""

import dataclasses

from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.tasks.learn_to_execute import arithmetic
from rmc_jax.tasks.learn_to_execute import programs
from rmc_jax.tasks.learn_to_execute import vocabulary as vocabularies
from rmc_jax.tasks.learn_to_execute.vocabulary import Vocabulary

# The authors' sets of operations. The paper's sample of "control" has + and if,
# so algebra_control is closer to it than control.
OPERATIONS = {
  'addition': ('add',),
  'algebra': ('add', 'subtract', 'multiply'),
  'control': ('if', 'for'),
  'algebra_control': ('add', 'subtract', 'if'),
  'program': ('add', 'subtract', 'multiply', 'if', 'for'),
}
MEMORIZATION = ('copy', 'reverse', 'double')
TOKENS = ('characters', 'words')
MAX_FACTOR_DIGITS = arithmetic.MAX_FACTOR_LIMBS * arithmetic.LIMB_DIGITS
MAX_INTEGERS = 10_000_000


@dataclasses.dataclass(frozen=True)
class Task:
  """A task of program evaluation or memorization.

  Departures from the authors' `learn_to_execute.py`: inputs and answers have
  the steps of the longest possible, where the authors allow for
  (3 L + 10)(N - 1) + 4 L + 10 + 2 (N - 1) and 2 L; memorization has nesting 1,
  whereas a larger one in their code adds parentheses and overflows; words
  include every integer that is an answer, whereas theirs end at 10^L.

  Attributes:
    name: a key of `OPERATIONS`, or one of `MEMORIZATION`.
    max_length: L, the most digits of an integer in the text.
    max_nesting: N, the most nested operations.
    grammar: of programs, 'authors' or 'paper'; see `programs`.
    tokens: 'characters', or 'words': an integer is one token.
    num_integers: for words, the integers 0 .. num_integers - 1 of the
      vocabulary; None for as many as the answers need.

  Raises:
    ValueError: a setting is unknown or below 1; memorization has a nesting or
      grammar; integers are too long to be multiplied in 32 bits; words do not
      include the answers.
    TypeError: a length or nesting is not an integer.
  """

  name: str
  max_length: int
  max_nesting: int = 1
  grammar: str = 'authors'
  tokens: str = 'characters'
  num_integers: int | None = None

  def __post_init__(self):
    one_of('task', self.name, (*OPERATIONS, *MEMORIZATION))
    one_of('grammar', self.grammar, vocabularies.GRAMMARS)
    one_of('tokens', self.tokens, TOKENS)
    positive_int('max_length', self.max_length)
    positive_int('max_nesting', self.max_nesting)
    if self.is_memory and (self.max_nesting, self.grammar) != (1, 'authors'):
      raise ValueError(
        f'{self.name!r} memorizes one integer, without nesting and grammar, '
        "and needs max_nesting=1 and grammar='authors'. Got: "
        f'max_nesting={self.max_nesting}, grammar={self.grammar!r}.'
      )
    if 'multiply' in self.operations and self.max_length > MAX_FACTOR_DIGITS:
      raise ValueError(
        f'max_length must be at most {MAX_FACTOR_DIGITS} for {self.name!r}: '
        'sums of the products of longer integers do not fit into 32 bits. '
        f'Got: {self.max_length}.'
      )
    self._check_integers()

  def _check_integers(self):
    if self.tokens == 'characters':
      if self.num_integers is not None:
        raise ValueError(
          "num_integers needs tokens='words'. Got: num_integers="
          f"{self.num_integers} with tokens='characters'."
        )
      return
    if self.name == 'reverse':
      raise ValueError(
        "answers of 'reverse' may begin with 0, unlike an integer that is one "
        "token. Use tokens='characters'."
      )
    needed, given = self._answers(), self.num_integers
    if needed > MAX_INTEGERS:
      raise ValueError(
        f'with one token per integer, {self.name!r} of length '
        f'{self.max_length} has answers below {needed}; {MAX_INTEGERS} '
        'integers are the most. Use a smaller max_length or '
        "tokens='characters'."
      )
    if given is not None and not needed <= given <= MAX_INTEGERS:
      raise ValueError(
        f'num_integers must be at least {needed}, so that all answers of '
        f'{self.name!r} of length {self.max_length} are tokens, and at most '
        f'{MAX_INTEGERS}; None chooses the least. Got: {given}.'
      )

  def _answers(self) -> int:
    """All answers are below this integer."""
    below = 10**self.answer_digits
    if self.is_memory or 'subtract' in self.operations:
      return below
    return min(below, self.largest + 1)

  @property
  def is_memory(self) -> bool:
    """Whether the task is memorization, not program evaluation."""
    return self.name in MEMORIZATION

  @property
  def operations(self) -> tuple[str, ...]:
    """The operations of programs; () for memorization."""
    return OPERATIONS.get(self.name, ())

  @property
  def largest(self) -> int:
    """The largest absolute value of any operation in a program."""
    integer = 10**self.max_length - 1
    value = integer
    for _ in range(self.max_nesting):
      # With the nested operation as the operand that gives the most.
      bounds = {
        'add': value + integer,
        'subtract': value + integer,
        'multiply': value * integer,
        'if': value,
        'for': max(value + 9 * integer, integer + 9 * value),
      }
      value = max(bounds[operation] for operation in self.operations)
    return value

  @property
  def vocabulary(self) -> Vocabulary:
    """The vocabulary of inputs and targets."""
    if self.tokens == 'characters':
      return vocabularies.characters(self.grammar)
    num_integers = self.num_integers or self._answers()
    return vocabularies.words(self.grammar, num_integers)

  @property
  def integer_tokens(self) -> int:
    """The most tokens of an integer in the text."""
    return self.max_length if self.tokens == 'characters' else 1

  @property
  def input_steps(self) -> int:
    """Tokens of the longest input."""
    tokens = self.integer_tokens

    def size(operation: str, depth: int) -> int:
      text = programs.template(operation, self.grammar, depth)
      return len(programs.encode(text, self.vocabulary, tokens, tokens))

    # The innermost operand, and what each operation adds to the nested one.
    return tokens + sum(
      max((size(name, depth) - tokens for name in self.operations), default=0)
      for depth in range(self.max_nesting)
    )

  @property
  def target_steps(self) -> int:
    """Tokens of the longest target."""
    return 1 if self.tokens == 'words' else self.answer_digits

  @property
  def answer_digits(self) -> int:
    """The most digits of an answer."""
    if self.is_memory:
      return self.max_length * (2 if self.name == 'double' else 1)
    return self.max_length + 1
