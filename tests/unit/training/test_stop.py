"""Tests that the first signal requests a stop, the second ends the process, and earlier handlers
are restored.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from t2t_repro.training.stop import StopSignals

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def other(number: int, frame: FrameType | None) -> None:
    """Fails the test. The tests set this signal handler before they use StopSignals, and no signal
    may call it.
    """
    raise AssertionError("not to be called")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Sets `other` as the handler of the signals before each test, and restores the handlers
    afterwards.
    """
    restored = {number: signal.signal(number, other) for number in SIGNALS}
    yield
    for number, handler in restored.items():
        signal.signal(number, handler)


def is_requested(signals: StopSignals, number: signal.Signals, seconds: float) -> bool:
    """Sends a signal to this process. Returns whether it requests a stop within some seconds."""
    os.kill(os.getpid(), number)
    deadline = time.monotonic() + seconds
    while not signals.requested and time.monotonic() < deadline:
        time.sleep(0.01)
    return signals.requested


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_requests_a_stop_unless_the_process_ignores_it(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ZeroDivisionError), StopSignals() as signals:
        assert not signals.requested and is_requested(signals, number, 20)
        raise ZeroDivisionError
    output = capfd.readouterr()
    assert (output.out, output.err.count(f"{number.name}: finishing the step, then saving")) == (
        "",
        1,
    )
    assert [signal.getsignal(each) for each in SIGNALS] == [other] * 3
    # A program that a shell starts with "&" ignores SIGINT.
    signal.signal(number, signal.SIG_IGN)
    with StopSignals() as signals:
        assert not is_requested(signals, number, 0.1)
        handled = next(each for each in SIGNALS if each != number)
        assert is_requested(signals, handled, 20)
    assert signal.getsignal(number) == signal.SIG_IGN


SCRIPT = """
import hashlib
from t2t_repro.training.stop import StopSignals
with StopSignals() as signals:
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""


def test_a_second_signal_ends_a_process_that_hangs_and_whose_output_nobody_reads() -> None:
    """Ctrl-C also ends the tee of `t2t-trainer 2>&1 | tee log`."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stderr and process.stdout.readline() == b"ready\n"
        time.sleep(0.2)  # wait until the process is inside pbkdf2_hmac
        process.stderr.close()
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 128 + signal.SIGINT
