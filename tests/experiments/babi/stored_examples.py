"""The content of a small examples.json."""

K = 2  # Hops.


def make_tasks():
  """Tasks 2 and 16 with three and two questions."""
  return [_task(2, 3), _task(16, 2)]


def _task(task, num_questions):
  return {
    'task': task,
    'name': f'name {task}',
    'set': f'task {task}',
    'restart': 1,
    'linear': False,
    'on_supporting': [task / 100, 0.5],
    'uniform': 0.2,
    'questions': [_question(task, n) for n in range(1, num_questions + 1)],
  }


def _question(task, n):
  statements = [
    {
      'text': f'statement {s} of {task} {n}',
      'supporting': s == n,
      'attention': [0.1 * s, 0.01 * n],
    }
    for s in range(n + 2)
  ]
  return {
    'statements': statements,
    'empty_slots': [0.0, 0.25] if n == 1 else [0.0, 0.0],
    'question': f'what is {task} {n}',
    'answer': 'milk',
    'prediction': 'milk' if n == 2 else 'apple,milk',
    'probability': 0.875,
  }
