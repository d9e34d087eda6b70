"""Tests that the first signal requests a stop, the second ends the process, and earlier handlers are restored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from t2t_repro.training.stop import StopSignals

SIGNALS = (signal.SIGTERM, signal.SIGINT)
UNTIL_REQUESTED = """
import time
from t2t_repro.training.stop import StopSignals
with StopSignals() as signals:
    print("ready", flush=True)
    end = time.monotonic() + 30
    while not signals.requested and time.monotonic() < end:
        time.sleep(0.01)"""
"""A program that waits for a signal inside a `with` block. Tests append indented code, which runs in the same block."""


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
    with StopSignals() as signals:
        assert not signals.requested
        os.kill(os.getpid(), number)
        assert signals.requested
        assert current_handlers() == [signal.SIG_DFL, signal.SIG_DFL]
    output = capfd.readouterr()
    assert output.out == ""
    assert f"{number.name}: finishing the step, then saving" in output.err and "once more" in output.err
    assert current_handlers() == [other, other]
    assert signals.requested


def test_handlers_are_restored_without_a_signal() -> None:
    with StopSignals() as signals:
        assert other not in current_handlers()
    assert not signals.requested
    assert current_handlers() == [other, other]


def test_handlers_are_restored_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), StopSignals():
        raise ZeroDivisionError
    assert current_handlers() == [other, other]


@pytest.mark.parametrize("ignored", SIGNALS)
def test_a_signal_that_is_ignored_stays_ignored(ignored: signal.Signals) -> None:
    """StopSignals does not handle a signal that the process ignores, as a program started with "&" ignores SIGINT."""
    [obeyed] = (number for number in SIGNALS if number != ignored)
    signal.signal(ignored, signal.SIG_IGN)
    with StopSignals() as signals:
        os.kill(os.getpid(), ignored)
        assert not signals.requested
        os.kill(os.getpid(), obeyed)
        assert signals.requested
        os.kill(os.getpid(), ignored)  # if this signal were not ignored, it would end the test
        assert signal.getsignal(ignored) == signal.SIG_IGN
    assert signal.getsignal(ignored) == signal.SIG_IGN
    assert signal.getsignal(obeyed) == other


def test_a_thread_can_train_without_signals() -> None:
    states = []

    def train() -> None:
        with StopSignals() as signals:
            states.append((signals.requested, current_handlers()))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert states == [(False, [other, other])]


@pytest.mark.parametrize("first", SIGNALS)
@pytest.mark.parametrize("second", SIGNALS)
def test_a_second_signal_ends_a_process_at_once(first: signal.Signals, second: signal.Signals) -> None:
    code = f"""{UNTIL_REQUESTED}
    print("finishing" if signals.requested else "not requested", flush=True)
    time.sleep(30)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(first)
    assert process.stdout.readline() == "finishing\n"
    assert process.poll() is None
    process.send_signal(second)
    _, output = process.communicate(timeout=30)
    assert process.returncode == -second
    assert output.count(f"{first.name}: finishing the step") == 1 and "Traceback" not in output


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_works_if_nobody_reads_standard_error(number: signal.Signals) -> None:
    """A signal stops training even if nobody reads standard error: Ctrl-C also ends the tee of `2>&1 | tee log`."""
    code = f"""{UNTIL_REQUESTED}
    from t2t_repro.console.progress import say
    say("saved")
    say("saved")
    print("saved" if signals.requested else "not requested", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    process.stderr.close()
    process.send_signal(number)
    assert process.stdout.read() == "saved\n"
    assert process.wait(30) == 0
    process.stdout.close()


def test_training_continues_if_standard_error_is_closed() -> None:
    speaks = "meter.advance(); say('saved')"
    code = f"from t2t_repro.console.progress import Progress, say; meter = Progress('training', 9, 'steps'); {speaks}"
    with open("/dev/full", "w") as full:
        assert subprocess.run([sys.executable, "-c", code], stderr=full, check=False).returncode == 0
    # The program draws the progress bar on a terminal, closes the terminal, and must continue.
    opened = "import os; ours, theirs = os.openpty(); os.dup2(theirs, 2); os.close(theirs)"
    closed = "os.close(ours); import time; time.sleep(0.2)"
    script = f"{opened}\n{code}\n{closed}\n{speaks}; print('done', flush=True)"
    result = subprocess.run(["nohup", sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.stdout == "done\n"


@pytest.mark.parametrize("second", SIGNALS)
def test_a_second_signal_ends_a_process_that_hangs_outside_python(second: signal.Signals) -> None:
    code = """
import hashlib
from t2t_repro.training.stop import StopSignals
with StopSignals():
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)  # wait until the process is inside pbkdf2_hmac
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(second)
    assert process.wait(20) in (128 + second, -second)
    process.stdout.close()
