"""Parses the SGML of the LDC's newswire.

  <DOC id="XIN_ENG_20101231.0001" type="story" >
  <HEADLINE>
  One or more lines
  </HEADLINE>
  <DATELINE>
  A line
  </DATELINE>
  <TEXT>
  <P>
  Lines, wrapped anywhere
  </P>
  </TEXT>
  </DOC>

Every tag is on a line of its own. Only the type 'story' has <P>: in the others
the lines of <TEXT> are lines of a list or a table.
"""

from collections.abc import Iterable
from collections.abc import Iterator
import html
import re

_BEGIN = re.compile(r'<DOC\s+id="([^"]+)"\s+type="[^"]+"\s*>')
_TAG = re.compile(r'<(/?)(HEADLINE|DATELINE|TEXT|P)>')
# Text that is wrapped anywhere, so that its line ends have no meaning.
_WRAPPED = ('HEADLINE', 'P')


class MalformedError(ValueError):
  """A line that is not allowed where it is."""


def documents(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
  """Yields the name and the lines of each document of a file.

  The headline and every paragraph are one line; outside paragraphs, lines are
  as in the file. Each has its line end. Datelines and blank lines are skipped;
  entities are replaced.

  Raises:
    MalformedError: a tag is missing or misplaced; has the line number.
  """
  name = None
  text: list[str] = []  # lines of the document
  parts: list[str] = []  # lines of the headline or paragraph
  open_tags: list[str] = []
  number = 0
  for number, line in enumerate(lines, 1):
    line = line.strip()
    begin, tag = _BEGIN.fullmatch(line), _TAG.fullmatch(line)
    if begin:
      if name is not None:
        raise MalformedError(f'line {number}: {name} has no </DOC>')
      name, text = begin[1], []
    elif not line:
      continue
    elif name is None:
      raise MalformedError(f'line {number}: {line[:60]!r} outside a document')
    elif line == '</DOC>':
      if open_tags:
        raise MalformedError(f'line {number}: {name} has no </{open_tags[-1]}>')
      yield name, text
      name = None
    elif tag and not tag[1]:
      if open_tags != (['TEXT'] if tag[2] == 'P' else []):
        raise MalformedError(f'line {number}: {line} inside {open_tags}')
      open_tags.append(tag[2])
      parts = []
    elif tag:
      if open_tags[-1:] != [tag[2]]:
        raise MalformedError(f'line {number}: {line} inside {open_tags}')
      if open_tags.pop() in _WRAPPED and parts:
        text.append(' '.join(parts) + '\n')
    elif not open_tags:
      raise MalformedError(f'line {number}: {line[:60]!r} inside no tag')
    elif open_tags[-1] in _WRAPPED:
      parts.append(html.unescape(line))
    elif open_tags[-1] == 'TEXT':
      text.append(html.unescape(line) + '\n')
  if name is not None:
    raise MalformedError(f'line {number}: the file ends inside {name}')
