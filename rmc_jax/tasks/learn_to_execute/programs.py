r"""The texts of programs in both grammars, as templates.

A program is a number of nested operations, the nesting. One operand of each
operation is the nested operation; the others, and all of the innermost, are
integers with `length` digits.

The grammar 'authors' (`learn_to_execute.py` in Sonnet v1). The nested operation
is the first operand. No blanks, no lines, no outermost parentheses:

  program     = operation ;
  operation   = operand ( "+" | "-" | "*" ) integer
              | operand "if" integer ( "<" | ">" ) integer "else" integer
              | "x=" operand "for[" digit "]x+=" integer ;
  operand     = integer | "(" operation ")" ;

  (81890+26992)+25059
  (x=19218for[6]x+=25909)if55278<55597else33318

The grammar 'paper' (Santoro et al. 2018, figure 6). The nested operation is any
operand, also of a comparison or the increment of a loop:

  program     = ( "x = " expression | loop(0) ) "\n" "print(x % 10**length)" ;
  expression  = operand ( " + " | " - " | " * " ) operand
              | operand " if " operand ( " < " | " > " ) operand
                " else " operand ;
  loop(i)     = "x = " operand "\n"
                i blanks "for[" digit "]" "\n"
                i + 2 blanks "x += " operand ;
  operand     = integer | "(" expression ")"
              | "(" "\n" i blanks loop(i) ")"
                where i is 2 per enclosing operation ;

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
C else D" is A if the comparison holds, else D. A loop sets x to its first
operand and adds the second to it as often as the digit says; its value is the
last x. The answer is the value of the outermost operation modulo
10^(length + 1), never negative.

Departures from figure 6, which is inconsistent about blanks and parentheses and
omits those of the first operand of a loop: every operator is between blanks,
and every nested operation has parentheses. The figure's "10**length" is kept as
text, but its answers are the remainders by 10^(length + 1), as in the authors'
program.
"""

import re

from rmc_jax.tasks.learn_to_execute.vocabulary import Vocabulary

# In the paper's grammar; the authors' has no white space. A to D are the
# operands, in the order of the text, K is the digit of a loop, ? the sign of a
# comparison.
TEMPLATES = {
  'add': 'A + B',
  'subtract': 'A - B',
  'multiply': 'A * B',
  'if': 'A if B ? C else D',
  'for': 'x = A\nfor[K]\n  x += B',
}
NUM_OPERANDS = {'add': 2, 'subtract': 2, 'multiply': 2, 'if': 4, 'for': 2}

# Codes of the variable parts of a template; token ids are 0 and above. Codes of
# the operands follow, all tokens of one before the next.
SIGN, DIGIT, OPERANDS = -1, -2, -3


def positions(operation: str, grammar: str) -> int:
  """The number of operands, from the first, that may be nested."""
  return 1 if grammar == 'authors' else NUM_OPERANDS[operation]


def template(operation: str, grammar: str, depth: int) -> str:
  """The text, with parentheses, of an operation with `depth` around it.

  The outermost operation has no parentheses; its text is the whole program.
  """
  text = TEMPLATES[operation]
  if grammar == 'authors':
    text = re.sub(r'\s', '', text)
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
  """The parts of a `template` before and after operand number `position`.

  The other operands are renamed to A, B and C in the order of the text.
  """
  before, after = template(operation, grammar, depth).split('ABCD'[position])
  renamed = str.maketrans('ABCD'[position + 1 :], 'ABC'[position:])
  return before, after.translate(renamed)


def encode(
  text: str, vocabulary: Vocabulary, length: int, slots: int
) -> list[int]:
  """The ids of the constant parts of a template, and codes of the others.

  The codes are `SIGN`, `DIGIT`, and `OPERANDS - slots * n - i` for token i of
  operand n, which has `length` tokens, at most `slots`.
  """
  variable = {'?': [SIGN], 'K': [DIGIT]}
  for index, letter in enumerate('ABCD'):
    first = OPERANDS - slots * index
    variable[letter] = [first - i for i in range(length)]
  codes = []
  for part in re.split('([ABCDK?])', text):
    codes += variable.get(part) or vocabulary.encode(part)
  return codes
