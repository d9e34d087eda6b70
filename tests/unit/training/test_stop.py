"""Tests that the first signal requests a stop, the second ends the process, and earlier handlers are restored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from t2t_repro.training.stop import StopSignals

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def other(number: int, frame: FrameType | None) -> None:
    """Fails the test. The tests set this signal handler before they use StopSignals, and no signal may call it."""
    raise AssertionError("not to be called")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Sets `other` as the handler of SIGTERM and SIGINT before each test, and restores the handlers afterwards."""
    restored = {number: signal.signal(number, other) for number in SIGNALS}
    yield
    for number, handler in restored.items():
        signal.signal(number, handler)


def current_handlers() -> list[object]:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_requests_a_stop_and_a_second_would_end_the_process(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ZeroDivisionError), StopSignals() as signals:
        assert not signals.requested
        os.kill(os.getpid(), number)
        assert signals.requested
        assert current_handlers() == [signal.SIG_DFL, signal.SIG_DFL]
        raise ZeroDivisionError
    output = capfd.readouterr()
    assert (output.out, output.err.count(f"{number.name}: finishing the step, then saving")) == ("", 1)
    assert current_handlers() == [other, other]
    with StopSignals() as signals:
        assert other not in current_handlers()
    assert not signals.requested
    assert current_handlers() == [other, other]


@pytest.mark.parametrize("ignored", SIGNALS)
def test_a_signal_that_is_ignored_stays_ignored(ignored: signal.Signals) -> None:
    """StopSignals does not handle a signal that the process ignores, as a program started with "&" ignores SIGINT."""
    signal.signal(ignored, signal.SIG_IGN)
    with StopSignals() as signals:
        os.kill(os.getpid(), ignored)
        assert not signals.requested
        for number in SIGNALS:  # if `ignored` were not ignored, it would end the test
            os.kill(os.getpid(), number)
        assert signals.requested
    assert signal.getsignal(ignored) == signal.SIG_IGN


def start(code: str) -> subprocess.Popen[str]:
    """Starts a process that runs `code` inside StopSignals, and waits until it does."""
    script = (
        "import hashlib, time\nfrom t2t_repro.training.stop import StopSignals\n"
        f"with StopSignals() as signals:\n    print('ready', flush=True)\n    {code}"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    return process


def test_a_signal_works_if_nobody_reads_standard_error() -> None:
    """A signal stops training even if nobody reads standard error: Ctrl-C also ends the tee of `2>&1 | tee log`."""
    with start("while not signals.requested: time.sleep(0.01)") as process:
        assert process.stderr
        process.stderr.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.mark.parametrize("second", SIGNALS)
def test_a_second_signal_ends_a_process_that_hangs_outside_python(second: signal.Signals) -> None:
    with start('hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)') as process:
        time.sleep(0.5)  # wait until the process is inside pbkdf2_hmac
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(second)
        assert process.wait(20) in (128 + second, -second)
