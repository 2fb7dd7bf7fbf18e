"""The base class of the cores' configurations."""

import dataclasses


@dataclasses.dataclass
class CoreConfig:
  """The constructor arguments of one core, one field for each.

  Each core has a subclass beside it. `rmc_jax.cores.build.CORES` maps names to
  configurations and cores.
  """

  name: str
  # Of the factors of matrix products; sums, state and parameters are float32.
  compute_dtype: str = 'float32'  # or 'bfloat16'
