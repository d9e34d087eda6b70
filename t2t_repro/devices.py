"""This machine's devices, its memory, and how TensorFlow computes on them."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

import tensorflow as tf


def use_exact_float32() -> None:
    """Switches TF32 off. With it, GPUs since Ampere round the factors of matrix products to 10 of their 23 bits."""
    tf.config.experimental.enable_tensor_float_32_execution(False)


def set_threads(intra_op: int, inter_op: int) -> None:
    """Sets how many CPU threads an operation may use, and how many operations may run at the same time.

    If a number is 0, TensorFlow chooses it. Call this before TensorFlow computes anything.
    """
    if intra_op:
        tf.config.threading.set_intra_op_parallelism_threads(intra_op)
    if inter_op:
        tf.config.threading.set_inter_op_parallelism_threads(inter_op)


def names() -> list[str]:
    """Returns the names of the visible GPUs, or the name of this machine's processor if there are none."""
    if gpus := tf.config.get_visible_devices("GPU"):
        return [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus]
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        processor = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), processor)
    return [f"{processor}, {os.cpu_count()} cores"]


def memory_limit(control_groups: Path = Path("/sys/fs/cgroup"), memberships: Path = Path("/proc/self/cgroup")) -> int:
    """Returns the bytes of memory that this process may use: the machine's memory, or a control group's lower limit.

    Args:
        control_groups: folder in which Linux shows the control groups, of version 1 or 2.
        memberships: list of the control groups of this process.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    lines = memberships.read_text().splitlines() if memberships.is_file() else []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            root, name = control_groups, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = control_groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        # The limits of the enclosing groups apply too. In a container, `group` is often a path of the host that does
        # not exist here; then the container's limit is at the root.
        inner = root / group.strip("/")
        for folder in (inner, *inner.parents):
            with contextlib.suppress(OSError, ValueError):  # the file does not exist, or says "max"
                limits.append(int((folder / name).read_text()))
    return min(limits)
