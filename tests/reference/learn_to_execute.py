"""Programs as trees in plain Python: sampled, printed, parsed and executed.

A tree is an integer, or a list: the name of an operation and its operands, in
the order of the text. A loop has its digit behind its two operands, and a
condition the sign of its comparison behind its four.
"""

import re

SIGNS = {'+': 'add', '-': 'subtract', '*': 'multiply'}
OPERANDS = {'add': 2, 'subtract': 2, 'multiply': 2, 'for': 2, 'if': 4}


def generate(rng, operations, length, nesting, grammar):
  """Samples a tree; `rng` is a `random.Random`."""
  tree = integer(rng, length)
  for _ in range(nesting):
    name = rng.choice(operations)
    operands = [integer(rng, length) for _ in range(OPERANDS[name])]
    where = 0 if grammar == 'authors' else rng.randrange(OPERANDS[name])
    operands[where] = tree
    choice = {'for': [rng.randint(1, 9)], 'if': [rng.choice('<>')]}
    tree = [name, *operands, *choice.get(name, [])]
  return tree


def integer(rng, length):
  return rng.randint(10 ** (length - 1), 10**length - 1)


def value(tree):
  """Evaluates a tree in Python integers."""
  if isinstance(tree, int):
    return tree
  name, *operands = tree
  if name == 'for':
    start, step, turns = map(value, operands)
    for _ in range(turns):
      start += step
    return start
  if name == 'if':
    a, b, c, d = map(value, operands[:4])
    holds = b < c if operands[4] == '<' else b > c
    return a if holds else d
  a, b = map(value, operands)
  return {'add': a + b, 'subtract': a - b, 'multiply': a * b}[name]


def answer(tree, length):
  return str(value(tree) % 10 ** (length + 1))


def show(tree, grammar):
  """Prints a tree as a program."""
  if grammar == 'authors':
    return compact(tree)
  first = '' if tree[0] == 'for' else 'x = '
  return f'{first}{spaced(tree, 0)}\nprint(x % 10**length)'


def compact(tree):
  name, *operands = tree
  texts = [
    x if isinstance(x, int | str) else f'({compact(x)})' for x in operands
  ]
  if name == 'for':
    return f'x={texts[0]}for[{texts[2]}]x+={texts[1]}'
  if name == 'if':
    a, b, c, d, sign = texts
    return f'{a}if{b}{sign}{c}else{d}'
  return f'{texts[0]}{sign_of(name)}{texts[1]}'


def spaced(tree, depth):
  """Prints an operation nested in `depth` others, without parentheses."""
  name, *operands = tree
  texts = []
  for operand in operands:
    if isinstance(operand, list):
      inner = spaced(operand, depth + 1)
      line = '\n' + '  ' * (depth + 1) if operand[0] == 'for' else ''
      operand = f'({line}{inner})'
    texts.append(operand)
  if name == 'for':
    start, step, turns = texts
    line = '\n' + '  ' * depth
    return f'x = {start}{line}for[{turns}]{line}  x += {step}'
  if name == 'if':
    a, b, c, d, sign = texts
    return f'{a} if {b} {sign} {c} else {d}'
  return f'{texts[0]} {sign_of(name)} {texts[1]}'


def sign_of(name):
  return {name: sign for sign, name in SIGNS.items()}[name]


def parse(text):
  """Parses a program of either grammar, ignoring spaces and line breaks.

  What is between the innermost parentheses becomes #i, where i is its place in
  a list of trees, until there are no more parentheses.
  """
  text = re.sub(r'\s', '', text)
  text, found = re.subn(r'print\(x%10\*\*length\)$', '', text)
  if found and 'for' not in re.sub(r'\(.*\)', '', text):
    assert text.startswith('x=')
    text = text[2:]
  trees = []

  def replace(match):
    trees.append(flat(match[1], trees))
    return f'#{len(trees) - 1}'

  while '(' in text:
    text = re.sub(r'\(([^()]*)\)', replace, text)
  return flat(text, trees)


def flat(text, trees):
  operand = r'(#?\d+)'
  loop = re.fullmatch(rf'x={operand}for\[([1-9])\]x\+={operand}', text)
  choice = re.fullmatch(
    rf'{operand}if{operand}([<>]){operand}else{operand}', text
  )
  sign = re.fullmatch(rf'{operand}([-+*]){operand}', text)

  def leaf(text):
    if text[0] == '#':
      return trees[int(text[1:])]
    assert text[0] != '0', text
    return int(text)

  if loop:
    return ['for', leaf(loop[1]), leaf(loop[3]), int(loop[2])]
  if choice:
    leaves = [leaf(choice[i]) for i in (1, 2, 4, 5)]
    return ['if', *leaves, choice[3]]
  assert sign, text
  return [SIGNS[sign[2]], leaf(sign[1]), leaf(sign[3])]


def integers(tree):
  """Returns all integers of the text except loop counts."""
  if isinstance(tree, int):
    return [tree]
  operands = tree[1 : 1 + OPERANDS[tree[0]]]
  return [x for operand in operands for x in integers(operand)]


def chain(tree):
  """Returns (name, index of the nested one, choice) from the outermost in."""
  name, *operands = tree
  inside = [
    i for i, operand in enumerate(operands) if isinstance(operand, list)
  ]
  assert len(inside) <= 1, tree
  choice = operands[OPERANDS[name] :]
  link = (name, inside[0] if inside else None, choice[0] if choice else None)
  return [link, *(chain(operands[inside[0]]) if inside else [])]
