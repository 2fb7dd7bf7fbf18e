"""Which programs or memory samples there are, and how long they can be."""

import dataclasses

from rmc_jax.tasks.learn_to_execute import arithmetic
from rmc_jax.tasks.learn_to_execute import programs
from rmc_jax.tasks.learn_to_execute import vocabulary as vocabularies
from rmc_jax.tasks.learn_to_execute.vocabulary import Vocabulary

# The authors' sets of operations. The paper's "control" sample has + and if, so
# it is nearer to algebra_control than to control.
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
  the steps of the longest there can be, where the authors allow for
  (3 L + 10)(N - 1) + 4 L + 10 + 2 (N - 1) and 2 L; memorization has nesting 1,
  where theirs with more puts parentheses into the text and overflows; word mode
  has every integer that is an answer, where theirs has those below 10^L and
  loses the others.

  Attributes:
    name: a key of `OPERATIONS`, or one of `MEMORIZATION`.
    max_length: L, the most digits of an integer in the text.
    max_nesting: N, the most operations in one another.
    grammar: of programs, 'authors' or 'paper'; see `programs`.
    tokens: 'characters', or 'words': an integer is one token.
    num_integers: with words only, the vocabulary has 0 .. num_integers - 1;
      None for as many as the answers need.

  Raises:
    ValueError: an unknown name, grammar or kind of tokens; a length or nesting
      below 1; memorization with another nesting or grammar than the first;
      integers too long to be multiplied in 32 bits; words that cannot hold the
      answers.
  """

  name: str
  max_length: int
  max_nesting: int = 1
  grammar: str = 'authors'
  tokens: str = 'characters'
  num_integers: int | None = None

  def __post_init__(self):
    allowed = (*OPERATIONS, *MEMORIZATION)
    if self.name not in allowed:
      raise ValueError(f'task must be one of {allowed}. Got: {self.name!r}.')
    vocabularies.check_grammar(self.grammar)
    if self.tokens not in TOKENS:
      raise ValueError(f'tokens must be one of {TOKENS}. Got: {self.tokens!r}.')
    for name in ('max_length', 'max_nesting'):
      value = getattr(self, name)
      if not isinstance(value, int) or value < 1:
        raise ValueError(
          f'{name} must be an integer of at least 1. Got: {value!r}.'
        )
    if self.is_memory and (self.max_nesting, self.grammar) != (1, 'authors'):
      raise ValueError(
        f'{self.name!r} memorizes one integer, which has no nesting and no '
        "grammar: leave max_nesting=1 and grammar='authors'. Got: "
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
        "answers of 'reverse' may begin with 0, which an integer that is one "
        "token does not: use tokens='characters'."
      )
    needed = self._answers()
    if (self.num_integers or 0) > MAX_INTEGERS:
      raise ValueError(
        f'num_integers must be at most {MAX_INTEGERS}. Got: '
        f'{self.num_integers}.'
      )
    if needed > MAX_INTEGERS:
      raise ValueError(
        f'with one token an integer, {self.name!r} of length '
        f'{self.max_length} has answers below {needed}; {MAX_INTEGERS} '
        'integers are the most: use a smaller max_length or '
        "tokens='characters'."
      )
    if self.num_integers is not None and self.num_integers < needed:
      raise ValueError(
        f'num_integers must be at least {needed}, so that all answers of '
        f'{self.name!r} of length {self.max_length} are tokens; None chooses '
        f'that. Got: {self.num_integers}.'
      )

  def _answers(self) -> int:
    """Below which integer all answers are."""
    if self.is_memory:
      return 10 ** (self.max_length * (2 if self.name == 'double' else 1))
    remainders = 10 ** (self.max_length + 1)
    if 'subtract' in self.operations:
      return remainders
    return min(remainders, self.largest + 1)

  @property
  def is_memory(self) -> bool:
    """Whether an integer is memorized; otherwise a program is evaluated."""
    return self.name in MEMORIZATION

  @property
  def operations(self) -> tuple[str, ...]:
    """What programs of the task are made of; nothing for memorization."""
    return OPERATIONS.get(self.name, ())

  @property
  def largest(self) -> int:
    """No value that occurs in a program is further from 0 than this."""
    integer = 10**self.max_length - 1
    value = integer
    for _ in range(self.max_nesting):
      # The operation inside as the operand where it makes the most.
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
    """The ids of what inputs and targets are made of."""
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
    steps = tokens  # of the innermost operand; each operation adds the others
    for depth in range(self.max_nesting if self.operations else 0):
      steps += max(
        len(
          programs.encode(
            programs.template(operation, self.grammar, depth),
            self.vocabulary,
            tokens,
            tokens,
          )
        )
        - tokens
        for operation in self.operations
      )
    return steps

  @property
  def target_steps(self) -> int:
    """Tokens of the longest target."""
    if self.tokens == 'words':
      return 1
    if self.is_memory:
      return self.max_length * (2 if self.name == 'double' else 1)
    return self.max_length + 1
