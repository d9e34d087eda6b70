"""Tests of how TensorFlow uses memory, of exact float32 in all computations, and of the support of
bfloat16.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from t2t_repro import devices
from t2t_repro.errors import memory_shortage
from user_errors import user_error


@pytest.mark.parametrize(
    ("memberships", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "3000\n", "a/memory.max": "2000\n"}, 2000),
        ("0::/elsewhere/c\n", {"memory.max": "4000\n"}, 4000),
        ("5:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "5000\n"}, 5000),
        ("5:memory:/host/path\n", {"memory/memory.limit_in_bytes": "6000\n"}, 6000),
        (
            "5:cpu:/a\n0::/a\n",
            {"a/memory.max": "max\n", "memory/a/memory.limit_in_bytes": "7\n"},
            None,
        ),
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
    ("configure", "calls"),
    [
        (devices.use_one_gpu, [("visible", "a"), ("grows", "a", True)]),
        (lambda: devices.use_one_gpu(7), [("visible", "b"), ("grows", "b", True)]),
        (
            devices.let_memory_grow,
            [("grows", "a", True), ("grows", "b", True), ("grows", "c", True)],
        ),
        (devices.hide_gpus, [("visible",)]),
    ],
    ids=["one GPU", "the eighth of three", "all", "none"],
)
def test_gpus_are_configured_before_tensorflow_computes(
    configure: Callable[[], None], calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    visible = ["a", "b", "c"]
    actual = list[tuple[Any, ...]]()

    def set_visible(gpus: list[str], kind: str) -> None:
        visible[:] = gpus
        actual.append(("visible", *gpus))

    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: visible)
    monkeypatch.setattr(tf.config, "set_visible_devices", set_visible)
    monkeypatch.setattr(
        tf.config.experimental, "set_memory_growth", lambda *call: actual.append(("grows", *call))
    )
    configure()
    assert actual == calls


@pytest.mark.parametrize(
    ("cores", "gpus", "threads"), [(2, [], (1, 2)), (20, [], (2, 8)), (20, ["a"], None)]
)
def test_batches_share_the_cores(
    cores: int, gpus: list[str], threads: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda process: set(range(cores)))
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
    monkeypatch.setattr(
        devices, "set_threads", lambda intra_op, inter_op: calls.append((intra_op, inter_op))
    )
    devices.share_cores()
    assert calls == ([threads] if threads else [])


PROCESSORS = [
    ("flags\t\t: fma avx512f avx512_bf16 avx512_vnni", True),
    ("Features\t: fp asimd i8mm bf16", True),
    ("flags\t\t: fma avx2 avx512f avx512_vnni", False),
]
GPUS = [((7, 5), False), ((8, 0), True), ((9, 0), True), (None, True)]
"""Compute capabilities, and whether a GPU multiplies bfloat16 numbers and rounded float32 numbers.
"""


def test_bfloat16_and_tf32_need_a_device_with_their_instructions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpuinfo"
    visible = []
    details = {}
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: visible)
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    assert devices.multiplies("bfloat16", file)  # without a description of the processor
    for processor, is_supported in PROCESSORS:
        file.write_text(f"{processor}\n")
        assert [devices.multiplies(kind, file) for kind in ("bfloat16", "tf32")] == [
            is_supported,
            False,
        ]
    visible = [tf.config.PhysicalDevice("GPU:0", "GPU")]
    devices.require_precision("float32")
    for capability, is_supported in GPUS:
        details = {"device_name": "Some GPU"} | (
            {"compute_capability": capability} if capability else {}
        )
        assert [devices.multiplies(kind, file) for kind in ("bfloat16", "tf32")] == [
            is_supported
        ] * 2
        if is_supported:
            devices.require_precision("bfloat16")
        else:
            assert "bfloat16: Some GPU has no bfloat16 instru" in user_error(
                devices.require_precision, "bfloat16"
            )


SHORTAGES = [
    "{{function_node __wrapped__Add}} failed to allocate memory [Op:Add]",
    (
        "Failed copying input tensor from CPU:0 to GPU:0 in order to run _EagerConst: Dst tensor "
        "is not initialized."
    ),
    "CUDA Runtime error: Failed to load kernel: cudaErrorMemoryAllocation: out of memory",
    "Blas xGEMMBatched launch failed : a.shape=[8,4,4], b.shape=[8,4,4]",
]
"""Texts of InternalErrors that TensorFlow 2.11 to 2.21 raises if a GPU is out of memory."""


def test_a_memory_shortage_is_recognized_by_its_text() -> None:
    errors = [
        tf.errors.InternalError(None, None, f"Graph execution error:\n\n{text}\n\t [[x]]")
        for text in SHORTAGES
    ]
    assert [memory_shortage(error) for error in errors] == [
        "failed to allocate memory",
        *SHORTAGES[1:],
    ]
    tensor = "OOM when allocating tensor with shape[8,9] and type float"
    for text, shortage in (
        (f"{tensor} on /job:localhost/device:GPU:0 by allocator", tensor),
        ("?", None),
    ):
        error = tf.errors.ResourceExhaustedError(None, None, text)
        assert memory_shortage(error) == (shortage or "ResourceExhaustedError")
    for other in (
        tf.errors.InternalError(None, None, "Connection reset by peer"),
        tf.errors.DataLossError(None, None, "out of memory"),
        tf.errors.ResourceExhaustedError(None, None, "m/events.out.v2; No space left on device"),
        ValueError("out of memory"),
    ):
        assert memory_shortage(other) == ""


@pytest.mark.parametrize(
    ("gpus", "before", "expected"),
    [
        ([], {}, {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "3"}),
        (
            [],
            {"TF_CPU_ALLOCATOR_USE_BFC": "0"},
            {"TF_CPU_ALLOCATOR_USE_BFC": "0", "TF_CPU_BFC_MEM_LIMIT_IN_MB": "3"},
        ),
        (["GPU:0"], {}, {}),
    ],
)
def test_freed_memory_is_kept_without_a_gpu_unless_the_user_refuses(
    monkeypatch: pytest.MonkeyPatch,
    gpus: list[str],
    before: dict[str, str],
    expected: dict[str, str],
) -> None:
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
    monkeypatch.setattr(devices, "memory_limit", lambda: 4 * 2**20 - 1)
    monkeypatch.setattr(devices.os, "environ", before)
    devices.keep_freed_memory()
    assert devices.os.environ == expected
