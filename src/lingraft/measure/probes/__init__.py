"""Probes of in-context learning that need no knowledge of any language. One file per probe."""

from lingraft.measure.probes.copain import copain
from lingraft.measure.probes.probe import Probe, ProbeContext, ProbeScore, probe, probes
from lingraft.measure.probes.random_copy import random_copy

__all__ = ["Probe", "ProbeContext", "ProbeScore", "copain", "probe", "probes", "random_copy"]
