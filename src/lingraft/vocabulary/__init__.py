"""The vocabulary room: from a base tokenizer and text to an expanded tokenizer that has proved itself."""

from lingraft.vocabulary.admission import LearnOptions, LearnTexts
from lingraft.vocabulary.audit import (
    DIFFICULT,
    AuditTexts,
    Drift,
    Gate,
    audit_expansion,
    refuse_failed_gates,
    segmentation_drift,
)
from lingraft.vocabulary.curve import PARALLEL, FertilityCurve
from lingraft.vocabulary.english_sample import ENGLISH_SAMPLE
from lingraft.vocabulary.expand import candidates_from, expand_vocabulary, refuse_unexpandable
from lingraft.vocabulary.expansion import (
    NewToken,
    RemovedToken,
    VocabularyExpansion,
    keep_vocabulary,
    open_expansion,
)
from lingraft.vocabulary.fertility import Fertility, measure_fertility
from lingraft.vocabulary.normaliser import NormaliserAudit, audit_normaliser
from lingraft.vocabulary.pre_tokenizer import WordCuts, audit_words, needs_patch, patch_marks, sum_cuts
from lingraft.vocabulary.scripts import dominant_scripts
from lingraft.vocabulary.tokenizer_file import TokenizerFile

__all__ = [
    "DIFFICULT",
    "ENGLISH_SAMPLE",
    "PARALLEL",
    "AuditTexts",
    "Drift",
    "Fertility",
    "FertilityCurve",
    "Gate",
    "LearnOptions",
    "LearnTexts",
    "NewToken",
    "NormaliserAudit",
    "RemovedToken",
    "TokenizerFile",
    "VocabularyExpansion",
    "WordCuts",
    "audit_expansion",
    "audit_normaliser",
    "audit_words",
    "candidates_from",
    "dominant_scripts",
    "expand_vocabulary",
    "keep_vocabulary",
    "measure_fertility",
    "needs_patch",
    "open_expansion",
    "patch_marks",
    "refuse_failed_gates",
    "refuse_unexpandable",
    "segmentation_drift",
    "sum_cuts",
]
