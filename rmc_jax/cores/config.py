"""The base class of the cores' configurations."""

import dataclasses


@dataclasses.dataclass
class CoreConfig:
  """Name, compute dtype and constructor arguments of one core.

  Each core has a subclass beside it, with a field for each argument.
  `rmc_jax.cores.build.CORES` maps names to configurations and cores.
  """

  name: str
  # 'bfloat16' rounds the factors of matrix products; sums, state and parameters
  # stay in float32. 'float32' leaves a policy that the caller has set.
  compute_dtype: str = 'float32'
