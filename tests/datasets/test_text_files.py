"""Tests rmc_jax/datasets/text_files.py."""

import gzip
import pathlib
import zipfile

import pytest

from rmc_jax.datasets import text_files
from rmc_jax.datasets.text_files import DatasetError
from rmc_jax.datasets.text_files import Source

# Longer than several blocks, with characters of one, two and three bytes.
LONG = ''.join(f'line {i} of ünï€ode\n' for i in range(12_000))


def write(folder, form, content):
  """A source with this content in one of the forms."""
  if form == 'plain':
    path = folder / 'text.txt'
    path.write_bytes(content)
    return Source(path)
  if form == 'gz':
    path = folder / 'text.txt.gz'
    path.write_bytes(gzip.compress(content))
    return Source(path)
  path = folder / 'text.zip'
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
    archive.writestr('inside/text.txt', content)
  return Source(path, 'inside/text.txt')


FORMS = ('plain', 'gz', 'zip')


@pytest.mark.parametrize('form', FORMS)
def test_reads_the_whole_text_in_order(tmp_path, form):
  source = write(tmp_path, form, LONG.encode())
  found = list(text_files.blocks(source))
  assert len(found) > 3
  assert ''.join(found) == LONG


@pytest.mark.parametrize(
  'start, stop',
  [(0, 5), (3, 7), (65_530, 65_540), (65_536, 131_072), (70_000, None)],
)
def test_start_and_stop_count_characters(tmp_path, start, stop):
  source = write(tmp_path, 'plain', LONG.encode())
  found = text_files.blocks(source._replace(start=start, stop=stop))
  assert ''.join(found) == LONG[start:stop]


def test_normalizes_line_ends_and_byte_order_marks(tmp_path):
  source = write(tmp_path, 'plain', '\ufeffone\r\ntwo\rthree\n'.encode())
  assert ''.join(text_files.blocks(source)) == 'one\ntwo\nthree\n'


def test_titles_of_sources():
  path = pathlib.Path('data')
  assert Source(path / 'emma.txt.gz').title == 'emma.txt'
  assert Source(path / 'a.zip', 'a/wiki.tokens').title == 'a/wiki.tokens'
  assert Source(path / 'x7f', name='12.txt').title == '12.txt'
  assert str(Source(path / 'a.zip', 'a/b')) == 'data/a.zip/a/b'


@pytest.mark.parametrize('part', [1, 7, 40, 10_000])
def test_pieces_end_after_lines_and_join_to_the_text(part):
  text = ''.join(LONG.splitlines(keepends=True)[:150])
  parts = [text[i : i + part] for i in range(0, len(text), part)]
  pieces = list(text_files.pieces(parts, 100))
  assert ''.join(pieces) == text
  assert all(piece.endswith('\n') for piece in pieces)
  # Lines have about 20 characters: no further line would fit.
  assert all(75 < len(piece) <= 100 for piece in pieces[:-1])


def test_pieces_of_long_lines_end_after_a_space_or_anywhere():
  assert list(text_files.pieces(['ab cd ef\ngh'], 4)) == [
      'ab ', 'cd ', 'ef\n', 'gh',
  ]  # fmt: skip
  assert list(text_files.pieces(['abcdefgh'], 3)) == ['abc', 'def', 'gh']
  assert list(text_files.pieces(['', ''], 3)) == []


@pytest.mark.parametrize('form', ['gz', 'zip'])
def test_a_truncated_file_is_an_error(tmp_path, form):
  source = write(tmp_path, form, LONG.encode())
  whole = source.path.read_bytes()
  source.path.write_bytes(whole[: len(whole) // 2])
  with pytest.raises(DatasetError, match=r'text\S+ cannot be read to its end'):
    list(text_files.blocks(source))


@pytest.mark.parametrize('form', ['gz', 'zip'])
def test_a_damaged_file_is_an_error(tmp_path, form):
  source = write(tmp_path, form, LONG.encode())
  content = bytearray(source.path.read_bytes())
  content[len(content) // 2] ^= 1
  source.path.write_bytes(content)
  with pytest.raises(DatasetError, match='truncated or damaged: delete it'):
    list(text_files.blocks(source))


@pytest.mark.parametrize('name', ['text.txt.gz', 'text.zip'])
def test_a_file_that_is_not_an_archive_is_an_error(tmp_path, name):
  (tmp_path / name).write_text('<html>moved</html>')
  member = 'inside/text.txt' if name.endswith('zip') else ''
  with pytest.raises(DatasetError, match=f'{name}.* cannot be read'):
    list(text_files.blocks(Source(tmp_path / name, member)))


def test_a_missing_file_or_member_is_an_error(tmp_path):
  with pytest.raises(
    DatasetError, match=r'absent\.txt cannot be opened: No such'
  ):
    list(text_files.blocks(Source(tmp_path / 'absent.txt')))
  source = write(tmp_path, 'zip', b'text')
  with pytest.raises(DatasetError, match=r'no other\. It has: inside/text'):
    list(text_files.blocks(source._replace(member='other')))


def test_a_folder_or_forbidden_file_is_not_called_damaged(
  tmp_path, monkeypatch
):
  (tmp_path / 'folder.txt').mkdir()
  with pytest.raises(DatasetError, match=r'folder\.txt cannot be opened: Is a'):
    list(text_files.blocks(Source(tmp_path / 'folder.txt')))
  source = write(tmp_path, 'plain', b'text')

  def refuse(*_):  # Permissions do not restrict the superuser.
    raise PermissionError(13, 'Permission denied', str(source.path))

  monkeypatch.setattr(pathlib.Path, 'open', refuse)
  with pytest.raises(
    DatasetError, match='cannot be opened: Permission denied.*readable'
  ):
    list(text_files.blocks(source))


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('encoding', ['latin-1', 'utf-16'])
def test_another_encoding_is_an_error_with_the_bytes(tmp_path, form, encoding):
  text = 'plain ' * 40_000 + 'naïve text'
  source = write(tmp_path, form, text.encode(encoding))
  state = 'not UTF-8' if form == 'plain' else 'damaged or not UTF-8.*unpack'
  name = {'latin-1': 'LATIN1', 'utf-16': 'UTF-16'}[encoding]
  with pytest.raises(
    DatasetError, match=rf'is {state}.*iconv -f {name} '
  ) as error:
    list(text_files.blocks(source))
  assert str(source) in str(error.value)
  wrong = {'latin-1': r"b'\xefve '", 'utf-16': r"b'\xff\xfep\x00'"}[encoding]
  assert wrong in str(error.value)


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('content', [b'', b' \n\n', b'\xef\xbb\xbf'])
def test_a_file_without_text_is_an_error(tmp_path, form, content):
  source = write(tmp_path, form, content)
  with pytest.raises(DatasetError, match='text.* is empty. Fetch'):
    text_files.check(source)


def test_text_must_follow_the_start(tmp_path):
  source = write(tmp_path, 'plain', b'\n' * 70_000 + b'text')
  text_files.check(source)
  text_files.check(source._replace(start=70_003))
  with pytest.raises(DatasetError, match='empty from character 70,004 on'):
    text_files.check(source._replace(start=70_004))


def test_finds_the_first_name_that_exists(tmp_path):
  for name in ('b.txt', 'a.txt.gz', 'c.txt'):
    (tmp_path / name).write_text('x')
  assert text_files.find(tmp_path, ['a.txt', 'b.txt']).path.name == 'a.txt.gz'
  assert text_files.find(tmp_path, ['z', 'c.txt']).path.name == 'c.txt'
  with pytest.raises(DatasetError, match=r'no x or y.*It has: a\.txt\.gz, b'):
    text_files.find(tmp_path, ['x', 'y'])


def test_contents_lists_a_few_names(tmp_path):
  assert text_files.contents(tmp_path) == 'nothing'
  for number in range(12):
    (tmp_path / f'{number:02}').touch()
  assert text_files.contents(tmp_path) == (
    '00, 01, 02, 03, 04, 05, 06, 07, ...'
  )
