"""bAbI question answering: stories, their encoding, and noise in time."""

from rmc_jax.tasks.babi.encoding import encode as encode
from rmc_jax.tasks.babi.encoding import MEMORY_SIZE as MEMORY_SIZE
from rmc_jax.tasks.babi.encoding import Questions as Questions
from rmc_jax.tasks.babi.encoding import Vocabulary as Vocabulary
from rmc_jax.tasks.babi.stories import parse as parse
from rmc_jax.tasks.babi.stories import Question as Question
