"""Formats a batch for people: program, answer, prediction and errors."""

import re

import jax
import numpy as np

from rmc_jax.checks import positive_int
from rmc_jax.tasks.learn_to_execute import interpreter
from rmc_jax.tasks.learn_to_execute.sample import Example
from rmc_jax.tasks.learn_to_execute.task import Task
from rmc_jax.types import Array

MARGIN = 12  # columns before the text of a row


def describe(
  task: Task,
  examples: Example,
  predictions: Array | None = None,
  limit: int = 10,
) -> str:
  """Formats a batch as lines of plain text, and marks errors of predictions.

  Each program shown is also run with the interpreter, which detects samples
  with a wrong answer.

  Args:
    task: the task of the batch.
    examples: a batch, leaves [B, T_in], [B], [B, T_out], [B].
    predictions: [B, T_out] ids; ignored after an example's target length.
    limit: the most examples to show. The summary counts all of them.

  Raises:
    ValueError: the examples are not a batch, the predictions have another
      shape than the targets, ids are outside of the vocabulary, or `limit` is
      below 1.
  """
  positive_int('limit', limit)
  batch, predicted = jax.device_get((examples, predictions))
  if batch.inputs.ndim != 2:
    raise ValueError(
      'examples must be a batch, with inputs [B, T_in]. '
      f'Got inputs of shape {batch.inputs.shape}.'
    )
  if predicted is not None and predicted.shape != batch.targets.shape:
    raise ValueError(
      f'predictions must have the shape {batch.targets.shape} of the targets. '
      f'Got: {predicted.shape}.'
    )
  _check_ids(
    task, inputs=batch.inputs, targets=batch.targets, predictions=predicted
  )
  shown = min(limit, len(batch.inputs))
  number = _count(len(batch.inputs), 'example')
  blocks = [f'Task {task.name}: {shown} of {number}.']
  for i in range(shown):
    example = Example(*(leaf[i] for leaf in batch))
    lines = [f'{i + 1}.', *_sample(task, example)]
    if predicted is not None:
      lines += _prediction(task, example, predicted[i])
    blocks.append('\n'.join(lines))
  if predicted is not None:
    blocks.append(_summary(task, batch, predicted))
  return '\n\n'.join(blocks)


def _check_ids(task: Task, **arrays: np.ndarray | None) -> None:
  size = task.vocabulary.size
  for name, ids in arrays.items():
    if ids is not None and (wrong := ids[(ids < 0) | (ids >= size)]).size:
      raise ValueError(
        f'{name} must be ids from 0 to {size - 1}, the vocabulary of the task '
        f'{task.name}. Got: {wrong[0]}.'
      )


def _sample(task: Task, example: Example) -> list[str]:
  """The lines of input and answer, and of an error in the answer."""
  text = task.vocabulary.decode(example.inputs[: example.input_length])
  answer = task.vocabulary.decode(example.targets[: example.target_length])
  label = 'input' if task.is_memory else 'program'
  lines = _row(label, text) + _row('answer', answer)
  if not task.is_memory and (problem := _problem(text, answer)):
    lines += _row('', f'The sample itself is wrong: {problem}')
  return lines


def _problem(program: str, answer: str) -> str:
  """Why the interpreter rejects the answer; '' if it does not."""
  # All literals have the same length. The interpreter refuses a text without
  # any.
  literal, *_ = re.findall('[0-9]+', program) or ['0']
  try:
    expected = interpreter.answer(program, len(literal))
  except ValueError as error:
    return str(error)
  return '' if answer == expected else f'its program gives {expected}.'


def _prediction(task: Task, example: Example, ids: np.ndarray) -> list[str]:
  """The prediction, markers under its errors, and their number."""
  ids = ids[: example.target_length]
  wrong = ids != example.targets[: len(ids)]  # [length]
  tokens = [task.vocabulary.tokens[i].replace('\n', r'\n') for i in ids]
  lines = _row('prediction', ''.join(tokens))
  if not wrong.any():
    return lines + _row('', 'Right.')
  marks = [
    ('^' if bad else ' ') * len(token)
    for token, bad in zip(tokens, wrong, strict=True)
  ]
  verdict = f'{wrong.sum()} of {_count(len(ids), _unit(task))} wrong.'
  return lines + _row('', ''.join(marks)) + _row('', verdict)


def _row(label: str, text: str) -> list[str]:
  """Puts the label beside the first line of the text."""
  first, *others = text.split('\n')
  rows = [(label, first), *(('', line) for line in others)]
  return [f'{label:{MARGIN}}{line}'.rstrip() for label, line in rows]


def _summary(task: Task, examples: Example, predictions: np.ndarray) -> str:
  valid = np.asarray(examples.target_mask)  # [B, T_out]
  right = (predictions == examples.targets) & valid
  whole = (right == valid).all(axis=1)  # [B]
  return (
    f'Accuracy: {_share(right.sum(), valid.sum(), _unit(task))}.\n'
    f'Sequence accuracy: {_share(whole.sum(), whole.size, "answer")}.'
  )


def _unit(task: Task) -> str:
  return 'character' if task.tokens == 'characters' else 'token'


def _share(part: int, whole: int, unit: str) -> str:
  return f'{part} of {_count(whole, unit)} ({part / whole:.1%})'


def _count(number: int, unit: str) -> str:
  return f'{number} {unit}' if number == 1 else f'{number} {unit}s'
