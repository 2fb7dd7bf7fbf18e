"""Tests rmc_jax/tasks/learn_to_execute/programs.py."""

import itertools
import re

import pytest

from rmc_jax.tasks.learn_to_execute import programs
from rmc_jax.tasks.learn_to_execute import vocabulary
from tests.reference import learn_to_execute as reference

NAMES = ('add', 'subtract', 'multiply', 'if', 'for')


def fill(text, leaves, sign, digit):
  """A template with integers for its letters, in the order of the text."""
  leaves = iter(leaves)
  text = re.sub('[A-D]', lambda _: str(next(leaves)), text)
  return text.replace('?', sign).replace('K', str(digit))


@pytest.mark.parametrize('grammar', vocabulary.GRAMMARS)
def test_parts_join_to_the_programs_of_the_reference(grammar):
  # Every pair of nested operations with every nested operand.
  places = [
    (name, position)
    for name in NAMES
    for position in range(programs.positions(name, grammar))
  ]
  assert len(places) == (5 if grammar == 'authors' else 12)
  for (outer, where), inner in itertools.product(places, NAMES):
    text = programs.around(outer, grammar, 0, where)
    core = programs.template(inner, grammar, 1)
    tree = [inner, *(11, 22, 33, 44)[: programs.NUM_OPERANDS[inner]]]
    tree += {'for': [3], 'if': ['>']}.get(inner, [])
    beside = (55, 66, 77)[: programs.NUM_OPERANDS[outer] - 1]
    operands = [*beside[:where], tree, *beside[where:]]
    operands += {'for': [8], 'if': ['<']}.get(outer, [])
    before = fill(text[0], beside[:where], '<', 8)
    after = fill(text[1], beside[where:], '<', 8)
    whole = before + fill(core, (11, 22, 33, 44), '>', 3) + after
    assert whole == reference.show([outer, *operands], grammar)


@pytest.mark.parametrize('grammar', vocabulary.GRAMMARS)
def test_letters_are_in_the_order_of_the_text(grammar):
  for name in NAMES:
    for position in range(programs.positions(name, grammar)):
      text = ''.join(programs.around(name, grammar, 1, position))
      letters = re.findall('[A-D]', text)
      assert letters == ['A', 'B', 'C'][: programs.NUM_OPERANDS[name] - 1]


def test_the_worked_layouts():
  """The samples of figure 6 with a consistent layout."""
  loop = ['for', 76957, 62117, 7]
  assert (
    reference.show(['for', loop, 90285, 8], 'paper')
    == """x = (
  x = 76957
  for[7]
    x += 62117)
for[8]
  x += 90285
print(x % 10**length)"""
  )
  assert (
    programs.template('for', 'paper', 1)
    == """(
  x = A
  for[K]
    x += B)"""
  )
  assert programs.template('if', 'paper', 2) == '(A if B ? C else D)'
  assert programs.template('if', 'authors', 2) == '(AifB?CelseD)'
  assert programs.template('for', 'authors', 0) == 'x=Afor[K]x+=B'
  # Figure 6: "control", right for 10^length and for 10^(length + 1).
  sum_ = ['add', ['if', 411, 918, 314, 680, '>'], 321]
  tree = ['if', 221, sum_, 778, 652, '<']
  assert reference.show(tree, 'paper') == (
    'x = 221 if ((411 if 918 > 314 else 680) + 321) < 778 else 652\n'
    'print(x % 10**length)'
  )
  assert reference.answer(tree, 3) == '221'


@pytest.mark.parametrize('grammar', vocabulary.GRAMMARS)
def test_encode_has_codes_for_variable_parts(grammar):
  v = vocabulary.characters(grammar)
  text = programs.template('if', grammar, 1)
  length, slots = 2, 3
  codes = programs.encode(text, v, length, slots)
  letters = {programs.SIGN: '?'}
  for index, letter in enumerate('ABCD'):
    first = programs.OPERANDS - slots * index
    letters |= {first: letter, first - 1: ''}
  decoded = [letters[c] if c < 0 else v.tokens[c] for c in codes]
  assert ''.join(decoded) == text
  assert len(codes) == len(text) + 4 * (length - 1)
  codes = programs.encode('[K]', v, length, slots)
  assert codes == [v.ids['['], programs.DIGIT, v.ids[']']]
