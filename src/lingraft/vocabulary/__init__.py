"""The vocabulary room: from a base tokenizer and text to an expanded tokenizer that has proved itself."""

from lingraft.vocabulary.audit import AuditTexts, Gate, audit_expansion, refuse_failed_gates, segmentation_drift
from lingraft.vocabulary.byte_bpe import expand_byte_bpe
from lingraft.vocabulary.expansion import NewToken, VocabularyExpansion, keep_vocabulary, open_expansion
from lingraft.vocabulary.fertility import Fertility, measure_fertility
from lingraft.vocabulary.learn import LearnOptions
from lingraft.vocabulary.scripts import dominant_scripts
from lingraft.vocabulary.tokenizer_file import TokenizerFile

__all__ = [
    "AuditTexts",
    "Fertility",
    "Gate",
    "LearnOptions",
    "NewToken",
    "TokenizerFile",
    "VocabularyExpansion",
    "audit_expansion",
    "dominant_scripts",
    "expand_byte_bpe",
    "keep_vocabulary",
    "measure_fertility",
    "open_expansion",
    "refuse_failed_gates",
    "segmentation_drift",
]
