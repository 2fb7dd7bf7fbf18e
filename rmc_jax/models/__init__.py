"""Models built on recurrent cores, one in each module."""

from rmc_jax.models.encoder_decoder import EncoderDecoder
from rmc_jax.models.language_model import LanguageModel
from rmc_jax.models.sequence_classifier import SequenceClassifier

__all__ = ['EncoderDecoder', 'LanguageModel', 'SequenceClassifier']
