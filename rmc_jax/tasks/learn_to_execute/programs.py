r"""What programs look like: the texts of both grammars, as templates.

A program is a nest of operations, as many as the nesting says. All operands of
an operation are integers of as many digits as the length says, but one, which
is the operation inside it; the innermost has integers only.

The grammar 'authors' (`learn_to_execute.py` in Sonnet v1). The operation inside
is the first operand. No blanks, no lines, and no parentheses around the whole:

  program     = operation ;
  operation   = operand ( "+" | "-" | "*" ) integer
              | operand "if" integer ( "<" | ">" ) integer "else" integer
              | "x=" operand "for[" digit "]x+=" integer ;
  operand     = integer | "(" operation ")" ;

  (81890+26992)+25059
  (x=19218for[6]x+=25909)if55278<55597else33318

The grammar 'paper' (Santoro et al. 2018, figure 6). The operation inside is any
of the operands, those of the comparison and the increment of a loop included:

  program     = ( "x = " expression | loop(0) ) "\n" "print(x % 10**length)" ;
  expression  = operand ( " + " | " - " | " * " ) operand
              | operand " if " operand ( " < " | " > " ) operand
                " else " operand ;
  loop(i)     = "x = " operand "\n"
                i blanks "for[" digit "]" "\n"
                i + 2 blanks "x += " operand ;
  operand     = integer | "(" expression ")"
              | "(" "\n" i blanks loop(i) ")"
                where i is 2 for each operation that this one is inside of ;

  x = 221 if ((411 if 918 > 314 else 680) + 321) < 778 else 652
  print(x % 10**length)

  x = (
    x = 76957
    for[7]
      x += 62117)
  for[8]
    x += 90285
  print(x % 10**length)

In both: integer = digits without a leading zero, digit = "1" .. "9". "A if B <
C else D" is A where the comparison holds and D elsewhere. A loop sets x to its
first operand and then adds the second to it as often as the digit says; it has
an x of its own, whose last value is that of the loop. The answer is the value
of the outermost operation modulo 10^(length + 1), never negative.

Departures from figure 6, which prints its samples with and without blanks and
parentheses and leaves out those of the first operand of a loop: every operator
is between blanks, and every operation inside another has its parentheses. The
figure's "10**length" is kept as text, but its answers are the remainders by
10^(length + 1), as those of the authors' program are.
"""

import re

from rmc_jax.tasks.learn_to_execute.vocabulary import Vocabulary

# A to D stand for the operands, in the order of the text, K for the digit of a
# loop, ? for the sign of a comparison.
TEMPLATES = {
  'authors': {
    'add': 'A+B',
    'subtract': 'A-B',
    'multiply': 'A*B',
    'if': 'AifB?CelseD',
    'for': 'x=Afor[K]x+=B',
  },
  'paper': {
    'add': 'A + B',
    'subtract': 'A - B',
    'multiply': 'A * B',
    'if': 'A if B ? C else D',
    'for': 'x = A\nfor[K]\n  x += B',
  },
}
NUM_OPERANDS = {'add': 2, 'subtract': 2, 'multiply': 2, 'if': 4, 'for': 2}

# Codes of what differs between programs of one template, where ids of tokens
# are 0 and above. The operands follow, all tokens of one before the next.
SIGN, DIGIT, OPERANDS = -1, -2, -3


def positions(operation: str, grammar: str) -> int:
  """How many of its operands may be the operation inside: the first ones."""
  return 1 if grammar == 'authors' else NUM_OPERANDS[operation]


def template(operation: str, grammar: str, depth: int) -> str:
  """The text that one operation adds to a program.

  Args:
    operation: a key of `TEMPLATES[grammar]`.
    grammar: which of the two.
    depth: how many operations it is inside of.

  Returns:
    The text between the parentheses around this operation, with them; for the
    outermost, which has none, the whole program.
  """
  text = TEMPLATES[grammar][operation]
  if grammar == 'authors':
    return f'({text})' if depth else text
  if not depth:
    first = '' if operation == 'for' else 'x = '
    return f'{first}{text}\nprint(x % 10**length)'
  if operation == 'for':
    text = f'\n{text}'.replace('\n', '\n' + '  ' * depth)
  return f'({text})'


def around(
  operation: str, grammar: str, depth: int, position: int
) -> tuple[str, str]:
  """The parts of a `template` before and behind the operation inside.

  Args:
    operation: as for `template`.
    grammar: as for `template`.
    depth: as for `template`.
    position: which operand the operation inside is, from 0.

  Returns:
    Two templates, whose operands are A, B and C in the order of the text.
  """
  before, behind = template(operation, grammar, depth).split('ABCD'[position])
  for old, new in zip('ABCD'[position + 1 :], 'ABC'[position:], strict=False):
    behind = behind.replace(old, new)
  return before, behind


def encode(
  text: str, vocabulary: Vocabulary, length: int, slots: int
) -> list[int]:
  """The tokens of a template.

  Args:
    text: of `template` or `around`.
    vocabulary: has the tokens between the letters.
    length: tokens of an operand.
    slots: the most there may be, the distance of the codes of two operands.

  Returns:
    Ids of tokens, and codes: `SIGN`, `DIGIT`, and `OPERANDS - slots * n - i`
    for token i of operand n, A being 0.
  """
  codes = []
  for part in re.split('([ABCDK?])', text):
    if part == '?':
      codes.append(SIGN)
    elif part == 'K':
      codes.append(DIGIT)
    elif part in tuple('ABCD'):
      first = OPERANDS - slots * 'ABCD'.index(part)
      codes.extend(first - index for index in range(length))
    else:
      codes.extend(vocabulary.encode(part))
  return codes
