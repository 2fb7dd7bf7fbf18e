"""Program evaluation and memorization: text in, an integer out."""

from rmc_jax.tasks.learn_to_execute.sample import Example as Example
from rmc_jax.tasks.learn_to_execute.sample import Level as Level
from rmc_jax.tasks.learn_to_execute.sample import sample as sample
from rmc_jax.tasks.learn_to_execute.task import OPERATIONS as OPERATIONS
from rmc_jax.tasks.learn_to_execute.task import Task as Task
