"""Models, one in each module; most are built on a recurrent core."""

from rmc_jax.models.actor_critic import ActorCritic
from rmc_jax.models.encoder_decoder import EncoderDecoder
from rmc_jax.models.language_model import LanguageModel
from rmc_jax.models.memn2n import MemN2N
from rmc_jax.models.memn2n_language import MemN2NLanguageModel
from rmc_jax.models.memory_network import MemoryNetwork
from rmc_jax.models.question_answering import QuestionAnswering
from rmc_jax.models.sequence_classifier import SequenceClassifier

__all__ = [
  'ActorCritic',
  'EncoderDecoder',
  'LanguageModel',
  'MemN2N',
  'MemN2NLanguageModel',
  'MemoryNetwork',
  'QuestionAnswering',
  'SequenceClassifier',
]
