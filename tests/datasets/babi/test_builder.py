"""Tests rmc_jax/datasets/babi/builder.py."""

import io
import tarfile

import pytest

from rmc_jax.datasets import load
from rmc_jax.datasets.babi.builder import Babi
from rmc_jax.tasks import babi
from tests.datasets.babi import stories


def digests(data_dir, splits):
  """Returns split -> digest of the encoded questions."""
  result = {}
  for split in splits:
    text = ''.join(load.documents('babi/en', split, data_dir=data_dir))
    questions = babi.parse(text.splitlines(), split)
    assert len(questions) == 1000
    vocabulary = babi.Vocabulary.build(questions)
    result[split] = babi.encode(questions, vocabulary).digest()
  return result


@pytest.fixture(scope='module')
def text_digests(tmp_path_factory):
  folder = tmp_path_factory.mktemp('text')
  stories.write(folder / 'copy')
  records = load.prepare(
    'babi/en', data_dir=folder / 'data', manual_dir=folder / 'copy'
  )
  assert list(records) == list(Babi.SPLITS)
  found = digests(folder / 'data', Babi.SPLITS)
  assert len(set(found.values())) == 40
  return found


@pytest.mark.parametrize('form', ['stories', 'passages'])
def test_mirrors_have_the_digests_of_the_original(tmp_path, text_digests, form):
  stories.write(tmp_path / 'copy', form)
  load.prepare(
    'babi/en', data_dir=tmp_path / 'data', manual_dir=tmp_path / 'copy'
  )
  splits = Babi.SPLITS[::7]
  assert digests(tmp_path / 'data', splits) == {
    split: text_digests[split] for split in splits
  }


def test_missing_file_leaves_out_its_split(tmp_path, capsys):
  stories.write(tmp_path / 'copy', missing='qa3_train')
  data_dir = tmp_path / 'data'
  load.prepare('babi/en', data_dir=data_dir, manual_dir=tmp_path / 'copy')
  name = 'qa3_three-supporting-facts_train.txt'
  assert f'has no en/{name}' in capsys.readouterr().err
  assert list(load.documents('babi/en', 'qa3_test', data_dir=data_dir))
  with pytest.raises(load.DatasetError, match=f'without qa3_train: .*{name}'):
    load.documents('babi/en', 'qa3_train', data_dir=data_dir)
  with pytest.raises(load.DatasetError, match="no split 'train'; it has qa1_t"):
    load.documents('babi/en', 'train', data_dir=data_dir)


def test_other_folder_is_refused(tmp_path):
  (tmp_path / 'readme.txt').write_text('no tasks here')
  with pytest.raises(
    load.DatasetError, match=r'has no qa1_single.*39 more files.*Needed'
  ):
    load.prepare('babi/en', data_dir=tmp_path / 'data', manual_dir=tmp_path)


def test_truncated_file_is_refused(tmp_path):
  stories.write(tmp_path / 'copy')
  (path,) = (tmp_path / 'copy').rglob('qa15_*_train.txt')
  path.write_text(''.join(path.read_text().splitlines(True)[:-1]))
  with pytest.raises(
    load.DatasetError, match=r'qa15_basic\S+ has 999 questions .* has 1,000'
  ):
    load.prepare(
      'babi/en', data_dir=tmp_path / 'data', manual_dir=tmp_path / 'copy'
    )


@pytest.mark.parametrize('line', ['{"passage": ', '[]', '{"question": "?"}'])
def test_damaged_json_is_refused(tmp_path, line):
  stories.write(tmp_path / 'copy', 'passages')
  (path,) = (tmp_path / 'copy').rglob('test.jsonl')
  path.write_text(path.read_text() + line + '\n')
  with pytest.raises(
    load.DatasetError, match=r'test.jsonl is not JSON lines.*Needed'
  ):
    load.prepare(
      'babi/en', data_dir=tmp_path / 'data', manual_dir=tmp_path / 'copy'
    )


def test_downloads_the_archive(tmp_path, monkeypatch, serve):
  stories.write(tmp_path / 'copy')
  packed = io.BytesIO()
  with tarfile.open(fileobj=packed, mode='w:gz') as tar:
    tar.add(tmp_path / 'copy/tasks_1-20_v1-2', 'tasks_1-20_v1-2')
  url, requested = serve({'/babi.tar.gz': packed.getvalue()})
  monkeypatch.setattr(Babi, 'URL', f'{url}/babi.tar.gz')
  load.prepare('babi/en', data_dir=tmp_path / 'data')
  assert requested == ['/babi.tar.gz']
  assert digests(tmp_path / 'data', ['qa20_test'])
