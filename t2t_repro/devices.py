"""GPUs, threads and memory of this machine, as TensorFlow uses them."""

import contextlib
import os
import platform
from pathlib import Path

import tensorflow as tf

from t2t_repro.errors import UserError

MAX_BATCHES = 8
"""Maximum number of batches that a decoding translates at the same time; each needs memory."""
BFLOAT16_INSTRUCTIONS = {"avx512_bf16", "amx_bf16", "bf16"}
"""Linux's names for instructions that multiply bfloat16 numbers; "bf16" is the name on ARM."""
AMPERE = (8, 0)
"""Lowest compute capability of NVIDIA GPUs that multiply matrices in bfloat16 or TF32."""


def let_memory_grow() -> None:
    """Makes TensorFlow allocate memory of the visible GPUs only when it needs the memory, not
    almost all at once.

    This function, `use_one_gpu` and `hide_gpus` have no effect if TensorFlow has already computed
    something.
    """
    with contextlib.suppress(RuntimeError):
        for gpu in tf.config.get_visible_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)


def use_one_gpu(index: int = 0) -> None:
    """Makes TensorFlow use only one GPU, if there is any, and allocate its memory only when it
    needs the memory.

    `index` is that of the GPU among the visible GPUs, modulo their number: of two GPUs, 0 and 2 are
    the first.
    """
    if gpus := tf.config.get_visible_devices("GPU"):
        with contextlib.suppress(RuntimeError):
            tf.config.set_visible_devices([gpus[index % len(gpus)]], "GPU")
        let_memory_grow()


def hide_gpus() -> None:
    """Makes TensorFlow use only the CPU."""
    with contextlib.suppress(RuntimeError):
        tf.config.set_visible_devices([], "GPU")


def use_tf32(is_on: bool) -> None:
    """Switches TF32 on or off. It has no effect on CPUs, and on GPUs before Ampere.

    With TF32, GPUs multiply float32 matrices several times as fast, but round each factor's
    mantissa from 23 to 10 bits. TensorFlow switches it on by default.
    """
    tf.config.experimental.enable_tensor_float_32_execution(is_on)


def multiplies(kind: str, cpu_information: Path = Path("/proc/cpuinfo")) -> bool:
    """Returns True if TensorFlow's devices have instructions for "bfloat16" or "tf32".

    Without them, TensorFlow computes in bfloat16 more slowly than in float32, and in float32
    instead of TF32. If `cpu_information`, in which Linux describes the processor, is missing,
    bfloat16 counts as supported.
    """
    if gpus := tf.config.get_visible_devices("GPU"):
        details = map(tf.config.experimental.get_device_details, gpus)
        return all(gpu.get("compute_capability", AMPERE) >= AMPERE for gpu in details)
    if kind == "tf32":
        return False
    if not cpu_information.is_file():
        return True
    return not BFLOAT16_INSTRUCTIONS.isdisjoint(cpu_information.read_text().split())


def require_precision(precision: str) -> None:
    """Raises UserError if a precision of decoding would be slower than float32 on TensorFlow's
    devices.
    """
    if precision == "bfloat16" and not multiplies("bfloat16"):
        raise UserError(
            f"--precision=bfloat16: {names()[0]} has no bfloat16 instructions; omit the flag"
        )


def keep_freed_memory() -> None:
    """Makes TensorFlow keep the memory of freed tensors for new ones. Call it before TensorFlow
    computes anything.

    By default, TensorFlow returns the memory of large tensors to the operating system, which clears
    every page before the next tensor can use it. This takes up to a fifth of the time of a training
    step, and hardly any in decoding.

    After this call, TensorFlow raises ResourceExhaustedError if tensors need more than
    `memory_limit`. The function has no effect if there is a GPU, or if the user has set the
    environment variable TF_CPU_ALLOCATOR_USE_BFC=0.
    """
    if not tf.config.get_visible_devices("GPU"):
        os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")
        os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", str(memory_limit() >> 20))


def set_threads(intra_op: int, inter_op: int) -> None:
    """Sets how many CPU threads TensorFlow uses. Call this function before TensorFlow computes
    anything.

    At most `intra_op` threads compute one operation, and at most `inter_op` operations run at the
    same time; 0 lets TensorFlow choose.
    """
    if intra_op:
        tf.config.threading.set_intra_op_parallelism_threads(intra_op)
    if inter_op:
        tf.config.threading.set_inter_op_parallelism_threads(inter_op)


def share_cores() -> None:
    """Makes the batches of a decoding run side by side, each on one CPU core. Has no effect if
    there is a GPU.

    Two batches on two cores take less time than one after the other with both cores for each of its
    operations. On machines with many cores, at most `MAX_BATCHES` batches run at a time, and share
    the cores.
    """
    cores = len(os.sched_getaffinity(0))
    batches = min(cores, MAX_BATCHES)
    if not tf.config.get_visible_devices("GPU"):
        with contextlib.suppress(RuntimeError):
            set_threads(cores // batches, batches)


def names() -> list[str]:
    """Returns the names of the visible GPUs. If there is no GPU, returns the name of this machine's
    processor.
    """
    if gpus := tf.config.get_visible_devices("GPU"):
        return [
            tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
            for gpu in gpus
        ]
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        processor = next(
            (line.partition(":")[2].strip() for line in file if line.startswith("model name")),
            processor,
        )
    return [f"{processor}, {os.cpu_count()} cores"]


def memory_limit(
    control_groups: Path = Path("/sys/fs/cgroup"), memberships: Path = Path("/proc/self/cgroup")
) -> int:
    """Returns the number of bytes of memory that this process may use.

    This is the machine's memory, or the memory limit of a Linux control group (cgroup, version 1 or
    2) if that is lower. Linux shows the limits of all groups in the folder `control_groups`, and
    lists those of this process in the file `memberships`.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    lines = memberships.read_text().splitlines() if memberships.is_file() else []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        # Version 2 has a single tree of groups, version 1 a tree for each list of controllers.
        root = control_groups / controllers
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        # The limits of enclosing groups apply too; their files are in the parent folders. In a
        # container, `group` is often a path of the host, which does not exist in the container.
        # Then `root` has the container's limit.
        inner = root / group.strip("/")
        for folder in (inner, *inner.parents):
            # There is no limit if the file is missing or contains "max".
            with contextlib.suppress(OSError, ValueError):
                limits.append(int((folder / name).read_text()))
    return min(limits)
