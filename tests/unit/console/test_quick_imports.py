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


@pytest.mark.parametrize("was_enabled", [True, False])
@pytest.mark.parametrize("was_imported", [True, False])
def test_the_block_pauses_the_garbage_collector_and_hides_matplotlib(
    was_enabled: bool, was_imported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: None)  # otherwise the objects of other tests would be excluded
    monkeypatch.setitem(sys.modules, "matplotlib", sys)
    if not was_imported:
        monkeypatch.delitem(sys.modules, "matplotlib")
    if not was_enabled:
        gc.disable()
    try:
        with pytest.raises(ZeroDivisionError), quick_imports():
            assert not gc.isenabled()
            assert sys.modules["matplotlib"] is (sys if was_imported else None)
            raise ZeroDivisionError
        assert gc.isenabled() == was_enabled and ("matplotlib" in sys.modules) == was_imported
    finally:
        gc.enable()


def test_programs_load_tensorflow_without_matplotlib_and_freeze_its_objects() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
