"""Probes of in-context learning that need no knowledge of any language. One file per probe."""

from lingraft.measure.probes.arbitrary_labels import arbitrary_labels
from lingraft.measure.probes.associative_recall import associative_recall
from lingraft.measure.probes.constant_offset import constant_offset
from lingraft.measure.probes.copain import copain
from lingraft.measure.probes.copy_reverse import copy_reverse
from lingraft.measure.probes.flipped_labels import flipped_labels
from lingraft.measure.probes.manifest import item_lines, items_manifest
from lingraft.measure.probes.position import position
from lingraft.measure.probes.probe import (
    ItemScore,
    Probe,
    ProbeContext,
    ProbeResult,
    ProbeScore,
    probe,
    probes,
    questions_of,
)
from lingraft.measure.probes.random_copy import random_copy
from lingraft.measure.probes.sort import sort

__all__ = [
    "ItemScore",
    "Probe",
    "ProbeContext",
    "ProbeResult",
    "ProbeScore",
    "arbitrary_labels",
    "associative_recall",
    "constant_offset",
    "copain",
    "copy_reverse",
    "flipped_labels",
    "item_lines",
    "items_manifest",
    "position",
    "probe",
    "probes",
    "questions_of",
    "random_copy",
    "sort",
]
