"""Tests that quick_imports restores the garbage collector and matplotlib, and that programs use it."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from t2t_repro.console.quick_imports import quick_imports

SCRIPT = """
import gc, sys
from t2t_repro.bin import program
program.load_tensorflow()
assert "matplotlib" not in sys.modules and gc.isenabled()
assert gc.get_freeze_count() > 5 * len(gc.get_objects())
import matplotlib
"""


@pytest.fixture(autouse=True)
def frozen_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the tests from excluding the objects of other tests from garbage collection."""
    monkeypatch.setattr(gc, "freeze", lambda: None)


@pytest.mark.parametrize("error", [None, ImportError])
def test_the_garbage_collector_pauses_inside_the_block(error: type[Exception] | None) -> None:
    if error:
        with pytest.raises(error), quick_imports():
            raise error
    else:
        with quick_imports():
            assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with quick_imports():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_matplotlib_cannot_be_imported_inside_the_block_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    with quick_imports(), pytest.raises(ImportError):
        import matplotlib  # noqa: F401
    assert "matplotlib" not in sys.modules


def test_matplotlib_stays_if_it_was_imported_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", sys)
    with quick_imports():
        import matplotlib
    assert matplotlib is sys and sys.modules["matplotlib"] is sys


def test_programs_load_tensorflow_without_matplotlib_and_freeze_its_objects() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
