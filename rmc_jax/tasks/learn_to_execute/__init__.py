"""Program evaluation and memorization: from a text to an integer."""

from rmc_jax.tasks.learn_to_execute.curriculum import Curriculum as Curriculum
from rmc_jax.tasks.learn_to_execute.sample import Difficulty as Difficulty
from rmc_jax.tasks.learn_to_execute.sample import Example as Example
from rmc_jax.tasks.learn_to_execute.sample import sample as sample
from rmc_jax.tasks.learn_to_execute.task import OPERATIONS as OPERATIONS
from rmc_jax.tasks.learn_to_execute.task import Task as Task
