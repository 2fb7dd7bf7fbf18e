"""Buckets on emulators, see `tests.training.buckets`."""

from tests.training.buckets import objects  # noqa: F401
from tests.training.buckets import place  # noqa: F401
from tests.training.buckets import run_name  # noqa: F401
from tests.training.buckets import scheme  # noqa: F401
