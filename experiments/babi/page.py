"""Renders examples as one HTML page that needs no other file and no network.

A URL that ends with #task-3-example-2 shows that example. Without JavaScript,
the page shows all of them.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from html import escape
import pathlib
import string
from typing import Any

_TEMPLATE = pathlib.Path(__file__).with_name('page.html')


def render(title: str, tasks: Sequence[Mapping[str, Any]]) -> str:
  """Returns the page.

  Args:
    title: of the page.
    tasks: the content of examples.json.
  """
  options = [
    f'<option value="{task["task"]}">{escape(_task_name(task))}</option>'
    for task in tasks
  ]
  sections = [
    _section(task, question, number)
    for task in tasks
    for number, question in enumerate(task['questions'], 1)
  ]
  template = string.Template(_TEMPLATE.read_text(encoding='utf-8'))
  return template.substitute(
    title=escape(title),
    tasks='\n'.join(options),
    examples='\n'.join(sections),
  )


def _task_name(task: Mapping[str, Any]) -> str:
  return f'{task["task"]}: {task["name"]}'


def _section(
  task: Mapping[str, Any], question: Mapping[str, Any], number: int
) -> str:
  """Returns the section of an example: question, answers, and the story."""
  name = f'task-{task["task"]}-example-{number}'
  asked = escape(f'{question["question"]}?')
  is_right = question['prediction'] == question['answer']
  verdict = 'right' if is_right else 'wrong'
  note = '' if not task['linear'] else _LINEAR_NOTE
  return f"""\
<section data-task="{task['task']}" data-name="{name}"
aria-labelledby="{name}-h">
<h2 id="{name}-h">Task {escape(_task_name(task))}, example {number}</h2>
<dl>
<dt>Question</dt><dd class="question">{asked}</dd>
<dt>Correct answer</dt><dd>{escape(question['answer'])}</dd>
<dt>Predicted answer</dt><dd class="{verdict}">{escape(question['prediction'])}
<small>{verdict}, probability {question['probability']:.2f}</small></dd>
</dl>{note}
{_table(question)}
</section>"""


_LINEAR_NOTE = """
<p>The run ended in its linear start: attention is without softmax.</p>"""


def _table(question: Mapping[str, Any]) -> str:
  """Returns the table of the story, with a row per statement."""
  hops = ''.join(
    f'<th scope="col">Hop {k + 1}</th>'
    for k in range(len(question['empty_slots']))
  )
  rows = [
    _row(each['text'], each['attention'], each['supporting'])
    for each in question['statements']
  ]
  foot = ''
  if any(question['empty_slots']):
    row = _row('Empty slots of the memory', question['empty_slots'], False)
    foot = f'<tfoot>\n{row}\n</tfoot>\n'
  body = '\n'.join(rows)
  return f"""\
<table>
<caption>Story, and the attention of each hop on its statements</caption>
<thead>
<tr><th scope="col">Statement</th><th scope="col">Support</th>{hops}</tr>
</thead>
<tbody>
{body}
</tbody>
{foot}</table>"""


def _row(text: str, attention: Sequence[float], supporting: bool) -> str:
  """Returns a row of the table; its cells are shaded by their number."""
  kind, mark = (' class="supporting"', 'yes') if supporting else ('', '')
  cells = ''.join(
    f'<td class="hop" style="--p:{min(max(p, 0.0), 1.0):.4f}">{p:.2f}</td>'
    for p in attention
  )
  return (
    f'<tr{kind}><th scope="row">{escape(text)}</th><td>{mark}</td>{cells}</tr>'
  )
