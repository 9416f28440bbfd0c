"""Listeners: both of ours are whole, and the silent one is silent."""

import pytest
from rich.console import Console

from lingraft.measurement import Measurement
from lingraft.pipeline.progress import Progress, Silent
from lingraft.terminal import TerminalProgress


@pytest.mark.parametrize("listener", [Silent(), TerminalProgress(Console())], ids=lambda it: type(it).__name__)
def test_our_listeners_can_be_told_everything(listener):
    assert isinstance(listener, Progress)


def test_an_object_that_cannot_be_told_everything_is_no_listener():
    assert not isinstance(object(), Progress)


def test_the_silent_one_says_nothing(capsys):
    silent = Silent()
    silent.phase("corpora")
    silent.note("look")
    silent.stage("first", 10, 128, 0)
    silent.step(1, {"eu": 2.0}, 1e-3, 100.0)
    silent.measured([Measurement("base", 0, "fertility", 2.0, "eu")])
    assert capsys.readouterr() == ("", "")
