"""Tokens, vocabulary and windows, with loops over lists."""


def tokens(text, style):
  """Splits a text into the tokens of a style, character by character."""
  out = []
  *ended, last = text.split('\n')
  for line in ended:
    words = words_of(line, style)
    if style in ('lines', 'word_lines') or (style == 'words' and not words):
      words = [*words, '<eos>']
    out += words
  if style in ('lines', 'word_lines') and (last or not ended):
    return [*out, *words_of(last, style), '<eos>']
  return out + words_of(last, style)


def words_of(line, style):
  words = spaced(line)
  if style in ('lines', 'whitespace'):
    return words
  return [piece for word in words for piece in pieces(word)]


def spaced(text):
  words, word = [], ''
  for character in text + ' ':
    if character.isspace():
      words += [word] if word else []
      word = ''
    else:
      word += character
  return words


def pieces(word):
  """Splits one word of prose into tokens."""
  out = [word[0]]
  for i in range(1, len(word)):
    before, this = word[i - 1], word[i]
    if (
      (before.isalnum() and this.isalnum())
      or joins(word, i)
      or joins(word, i - 1)
      or (before == this and this in '.-')
    ):
      out[-1] += this
    else:
      out.append(this)
  return out


def joins(word, i):
  """Whether index i is an apostrophe in a word or a mark in a number."""
  if i < 1 or i + 1 >= len(word):
    return False
  before, this, after = word[i - 1 : i + 2]
  if this in "'\u2019":
    return before.isalnum() and after.isalnum()
  return this in '.,' and before.isdecimal() and after.isdecimal()


def ranked(text_tokens, max_size):
  """Returns [(word, count)] and both symbols, by count, then alphabetically."""
  counts = {'<eos>': 0, '<unk>': 0}
  for token in text_tokens:
    counts[token] = counts.get(token, 0) + 1
  others = [w for w in counts if w not in ('<eos>', '<unk>')]
  others = sorted(others, key=lambda w: (-counts[w], w))
  for word in others[max_size - 2 :]:
    counts['<unk>'] += counts.pop(word)
  return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def window(ids, batch_size, length, step):
  """Returns (inputs, targets) of one step and the number of unused tokens."""
  num_windows = (len(ids) - 1) // (batch_size * length)
  inputs, targets = [], []
  for row in range(batch_size):
    start = row * num_windows * length + step % num_windows * length
    inputs.append([ids[start + t] for t in range(length)])
    targets.append([ids[start + t + 1] for t in range(length)])
  return inputs, targets, len(ids) - 1 - batch_size * num_windows * length
