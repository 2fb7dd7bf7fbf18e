"""Artificial bAbI files of the real sizes, in each of the formats."""

import json
import pathlib

import numpy as np

from rmc_jax.datasets.babi.builder import Babi

NAMES = ('mary', 'john', 'daniel')
PLACES = ('office', 'garden', 'kitchen', 'hallway', 'bathroom')


def make_stories(seed, questions):
  """Yields stories of [(text, answer or None, supporting numbers)]."""
  generator = np.random.default_rng(seed)
  for _ in range(questions // 2):
    story, places = [], {}
    for _ in range(2):
      for _ in range(2):
        name, place = generator.choice(NAMES), generator.choice(PLACES)
        story.append((f'{name.capitalize()} went to the {place}.', None, []))
        places[name] = place, str(len(story))
      name = generator.choice(list(places))
      place, line = places[name]
      story.append((f'Where is {name.capitalize()}? ', place, [line]))
    yield story


def as_text(stories):
  return ''.join(
    f'{i} {text}\n'
    if answer is None
    else f'{i} {text}\t{answer}\t{" ".join(supporting)}\n'
    for story in stories
    for i, (text, answer, supporting) in enumerate(story, 1)
  )


def as_stories(stories):
  return ''.join(
    json.dumps(
      {
        'story': {
          'id': [str(i) for i in range(1, len(story) + 1)],
          'type': [int(answer is not None) for _, answer, _ in story],
          'text': [text for text, _, _ in story],
          'supporting_ids': [supporting for _, _, supporting in story],
          'answer': [answer or '' for _, answer, _ in story],
        }
      }
    )
    + '\n'
    for story in stories
  )


def as_passages(stories, task):
  lines = []
  for story in stories:
    passage = ''
    for text, answer, _ in story:
      if answer is None:
        passage += text + '\n'
      else:
        lines.append({'passage': passage, 'question': text, 'answer': answer})
  return ''.join(json.dumps(line | {'task': task}) + '\n' for line in lines)


def write(folder: pathlib.Path, form: str = 'text', missing: str = '') -> None:
  """Writes the files of version 'en', but for one split."""
  folder = folder / 'tasks_1-20_v1-2' / 'en'
  folder.mkdir(parents=True)
  builder = Babi.__new__(Babi)
  for seed, split in enumerate(Babi.SPLITS):
    task, kind = split.removeprefix('qa').split('_')
    stories = list(make_stories(seed, 1000))
    if split == missing:
      continue
    if form == 'text':
      (folder / builder.file_name(split)).write_text(as_text(stories))
    elif form == 'stories':
      (folder / f'{split}.jsonl').write_text(as_stories(stories))
    else:
      with (folder / f'{kind}.jsonl').open('a') as file:
        file.write(as_passages(stories, int(task)))
