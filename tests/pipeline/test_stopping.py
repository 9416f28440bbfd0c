"""Signals: the first asks, the second stops at once, and afterwards all is as it was."""

import signal
import threading

import pytest

from lingraft.errors import InterruptedRunError
from lingraft.pipeline.stopping import Stopper

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_and_the_next_check_stops(number):
    with Stopper() as stopper:
        stopper.check("step 'base'")
        signal.raise_signal(number)
        assert stopper.requested
        with pytest.raises(InterruptedRunError, match="stopped after step 'base'; what was done is kept"):
            stopper.check("step 'base'")


@pytest.mark.parametrize("number", SIGNALS)
def test_the_second_signal_stops_at_once(number):
    with Stopper():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


@pytest.mark.parametrize("number", SIGNALS)
def test_afterwards_signals_do_what_they_did_before(number):
    before = signal.getsignal(number)

    def fail_inside() -> None:
        with Stopper():
            assert signal.getsignal(number) != before
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - our own
        fail_inside()
    assert signal.getsignal(number) is before


def test_outside_the_main_thread_no_signal_is_caught():
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with Stopper() as stopper:
            seen.extend([signal.getsignal(signal.SIGINT), stopper.requested])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before, False]
