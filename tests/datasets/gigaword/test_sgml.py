"""Tests rmc_jax/datasets/gigaword/sgml.py."""

import pytest

from rmc_jax.datasets.gigaword import sgml

STORY = """\
<DOC id="AFP_ENG_19940512.0004" type="story" >
<HEADLINE>
Shares &amp; bonds
 fall
</HEADLINE>
<DATELINE>
Hong Kong, May 12 (AFP)
</DATELINE>
<TEXT>
<P>
The first, which
goes on &lt;here&gt;.
</P>
<P>
The second, at AT&AMP;T.
</P>
</TEXT>
</DOC>
"""
TABLE = """\
<DOC id="NYT_ENG_20000101.0002" type="other" >
<TEXT>
TEAM   WON

Mets    7
</TEXT>
</DOC>
"""
EMPTY = '<DOC id="X.1" type="advis">\n<TEXT>\n<P>\n</P>\n</TEXT>\n</DOC>\n'


def read(text):
  return list(sgml.documents(text.splitlines(keepends=True)))


def test_headlines_and_paragraphs_become_lines():
  assert read(STORY) == [(
      'AFP_ENG_19940512.0004',
      [
          'Shares & bonds fall\n',
          'The first, which goes on <here>.\n',
          'The second, at AT&T.\n',
      ],
  )]  # fmt: skip


def test_lines_outside_paragraphs_are_unchanged():
  assert read(TABLE) == [
    ('NYT_ENG_20000101.0002', ['TEAM   WON\n', 'Mets    7\n'])
  ]


def test_a_file_has_several_documents():
  names = [name for name, _ in read(STORY + '\n' + TABLE + EMPTY + STORY)]
  assert names == [
    'AFP_ENG_19940512.0004',
    'NYT_ENG_20000101.0002',
    'X.1',
    'AFP_ENG_19940512.0004',
  ]
  assert read(EMPTY) == [('X.1', [])]
  assert read('') == []


@pytest.mark.parametrize(
  'old, new, message',
  [
    ('</DOC>\n', '', 'line 17: the file ends inside AFP_ENG_19940512'),
    ('</TEXT>\n', '', 'line 17: AFP.* has no </TEXT>'),
    ('</P>\n<P>', '<P>', r"line 13: <P> inside \['TEXT', 'P'\]"),
    ('<TEXT>\n', '', r'line 9: <P> inside \[\]'),
    ('<P>\nThe second', 'The second', 'line 15: </P> inside'),
    ('<DOC id=', '<doc id=', "line 1: '<doc .* outside a document"),
    ('<DATELINE>\n', '', "line 6: 'Hong Kong.*' inside no tag"),
    ('</DOC>\n', '</DOC>\nmore\n', "line 19: 'more' outside a document"),
    ('<HEADLINE>', '<DOC id="X" type="story">', 'line 2: AFP.* no </DOC>'),
  ],
)
def test_malformed_lines_are_errors_with_their_number(old, new, message):
  assert old in STORY
  with pytest.raises(sgml.MalformedError, match=message):
    read(STORY.replace(old, new, 1))
