"""Tests of the machine's memory limit, and of exact float32 in all computations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from t2t_repro import devices
from t2t_repro.decoding import Translator
from t2t_repro.hparam import DecodeHParams
from t2t_repro.training.distribution import make_strategy


@pytest.mark.parametrize(
    ("memberships", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "3000\n", "a/memory.max": "2000\n"}, 2000),
        ("0::/a/b\n", {"a/b/memory.max": "3000\n", "a/memory.max": "max\n"}, 3000),
        ("0::/\n", {"memory.max": "4000\n"}, 4000),
        ("0::/elsewhere/c\n", {"memory.max": "4000\n"}, 4000),
        ("5:cpu,memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "5000\n"}, 5000),
        ("5:memory:/host/path\n", {"memory/memory.limit_in_bytes": "6000\n"}, 6000),
        ("5:memory:/a\n", {"memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ("5:cpu:/a\n0::/a\n", {"a/memory.max": "max\n", "memory/a/memory.limit_in_bytes": "7\n"}, None),
        ("", {"memory.max": "4000\n"}, None),
    ],
)
def test_the_memory_limit_is_the_machines_or_a_control_groups(
    tmp_path: Path, memberships: str, files: dict[str, str], expected: int | None
) -> None:
    (tmp_path / "memberships").write_text(memberships)
    for name, text in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(text)
    with open("/proc/meminfo") as file:
        machine = 1024 * int(file.readline().split()[1])
    limit = devices.memory_limit(tmp_path / "cgroup", tmp_path / "memberships")
    assert limit == (expected or pytest.approx(machine, rel=0.02))


@pytest.mark.parametrize(
    "compute",
    [make_strategy, lambda: Translator(None, None, DecodeHParams())],
    ids=["training", "decoding"],
)
def test_float32_is_exact(compute: Callable[[], Any]) -> None:
    tf.config.experimental.enable_tensor_float_32_execution(True)
    compute()
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
