"""The size of the parts that steps are cut into, --max_tokens_per_replica, where the user gives none.

It is found once, before the first step, by real steps of the worst shape, so that a device that is too small is met
at the start; and kept in the model folder, since another cut would draw other dropout masks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro import devices
from t2t_repro.data import batching
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.model_folder import hparams_fingerprint
from t2t_repro.models import size
from t2t_repro.progress import say
from t2t_repro.textfile import whole_file
from t2t_repro.training.step import ROUNDS_AT_ONCE, TrainStep

FILE_NAME = "part_size.json"

START = 1024
"""Positions that are tried first."""

CPU_LARGEST = 4096
"""Positions beyond which a CPU is no faster."""

UNTRIED = 4096
"""Positions where several workers train on GPUs: one that runs out of memory leaves the others waiting, so that they
cannot search together."""

CPU_SHARE = 0.5
"""Of this machine's memory, what its replicas may take. A GPU says when it is full; a machine swaps, or kills."""

MARGIN = 1.125
"""By so much what is tried is larger than what is found: memory is in pieces after some thousand steps."""

OTHER_EPOCHS = 1.25
"""By so much the largest part may be larger than one epoch's, since blocks are cut elsewhere in the next."""


@dataclass(frozen=True)
class Place:
    """What decides, for a model and its data, how large parts may be."""

    device: str
    """The name of the GPUs, or of the processor."""
    replicas: int
    """Devices of this machine that train side by side."""
    precision: str
    """Of the training."""
    memory: int
    """Bytes that all replicas share, where they are this machine's processor; 0 for GPUs, which have their own."""
    workers: int = 1
    """Machines that train together, all of this kind."""

    @property
    def devices(self) -> int:
        """Of all machines."""
        return self.workers * self.replicas

    def __str__(self) -> str:
        several = f"{self.workers} workers, each " if self.workers > 1 else ""
        return f"{several}{self.replicas} x {self.device}, {self.precision}"


@dataclass(frozen=True)
class Demand:
    """What the steps of a plan ask of a device."""

    longest: int
    """Tokens of the longest example, on either side."""
    largest: int
    """Positions, on either side, of the largest part where nothing is cut for memory's sake; no part is larger."""
    rounds: int
    """Parts of a replica in a step in which nothing is cut for memory's sake."""


def here(replicas: int, precision: str, workers: int = 1) -> Place:
    """The place where this process trains."""
    memory = 0 if tf.config.get_visible_devices("GPU") else devices.memory_limit()
    return Place(devices.names()[0], replicas, precision, memory, workers)


def demand(lengths: np.ndarray, epoch: batching.Plan, replicas: int) -> Demand:
    """What the steps of a training ask for.

    Args:
        lengths: int [2, N], source and target tokens of each example.
        epoch: the plan of one epoch, with one step at least.
        replicas: the number of parts is a multiple of this many.
    """
    blocks = epoch.shuffle.shape[1]
    pieces = replicas // math.gcd(replicas, blocks)
    widest = np.maximum.reduceat(lengths.max(axis=0)[epoch.order], epoch.ends[:-1]).astype(np.int64)
    examples = -(-np.diff(epoch.ends) // pieces)
    largest = math.ceil(OTHER_EPOCHS * int((widest * examples).max()))
    return Demand(int(widest.max()), largest, pieces * blocks // replicas)


def find(
    folder: Path,
    place: Place,
    hparams: HParams,
    vocab_size: int,
    asked: Demand,
    step: TrainStep,
    variables: Sequence[Any],
    writes: bool = True,
    least: Callable[[int], int] = lambda number: number,
) -> int:
    """The --max_tokens_per_replica of a training: as the folder has it for this place, or else by trying.

    On GPUs the largest part is tried that fits, up to the largest that the plan can need. On a CPU the formula of
    `models.size` decides, so that the machine never swaps, and what it gives is tried. The same machine gives the same.
    Several workers all call it; they try what the smallest of them holds by the formula, or `UNTRIED` on GPUs.

    Args:
        folder: the model folder.
        place: where it is trained.
        hparams: the model's.
        vocab_size: entries of the vocabulary.
        asked: what the plan asks for.
        step: the training's.
        variables: all that a step changes, weights and optimizer; they come out as they went in.
        writes: whether this is the worker that writes and speaks.
        least: the smallest of the workers' numbers, in each of them; all must call it.

    Raises:
        UserError: not even one example fits, or the file cannot be written.
    """
    path = folder / FILE_NAME
    if found := least(kept(folder, place, hparams, vocab_size, asked)):
        return found
    if path.exists() and writes:
        say(f"{path}: of another place or model, or damaged; trying again ({place})")
    trial = Trial(step, asked, place.devices)
    with unchanged(variables):
        if place.memory or place.workers > 1:
            found = least(by_formula(place, hparams, vocab_size, asked) if place.memory else UNTRIED)
            if found and not trial.fits(found, accumulates=False):
                found = 0
        else:
            found = search(trial.fits, asked)
    if not found:
        raise _too_little(place, asked)
    if writes:
        values = {"max_tokens_per_replica": found, **dataclasses.asdict(place), **_needs(hparams, vocab_size, asked)}
        with whole_file(path, "w") as file:
            file.write(json.dumps(values, indent=2) + "\n")
        say(f"--max_tokens_per_replica={found} fits here ({place}); kept in {path}")
    return found


def _too_little(place: Place, asked: Demand) -> UserError:
    if not place.memory and place.workers > 1:
        return UserError(
            f"{place}: too little memory for parts of {UNTRIED:,} positions; give all workers "
            f"--max_tokens_per_replica={UNTRIED // 2}, or less"
        )
    has, cures = "too little memory", ["a lower max_length or a smaller model by --hparams"]
    if place.precision == "float32":
        cures.append("--precision=mixed_bfloat16")
    if place.memory:
        amount = f"{place.memory / 2**30:.1f} GB" if place.workers == 1 else "one worker's memory"
        has = f"{CPU_SHARE:.0%} of {amount}, training's share, is too little"
        cures.append(f"--max_tokens_per_replica={asked.longest}, which tries all the same")
    return UserError(
        f"{place}: {has} for parts of one example with {asked.longest:,} tokens a side; give " + ", or ".join(cures)
    )


def kept(folder: Path, place: Place, hparams: HParams, vocab_size: int, asked: Demand) -> int:
    """What was found before for this model and data in this place; 0 where nothing was, or the file is damaged.

    A machine may have other memory than it had, as long as the formula allows as much.
    """
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        content = dict(json.loads((folder / FILE_NAME).read_text("utf-8")))
        found, memory = content.pop("max_tokens_per_replica", 0), content.pop("memory", None)
        now = {**dataclasses.asdict(place), **_needs(hparams, vocab_size, asked)}
        if bool(memory) != bool(now.pop("memory")) or content != now or not found > 0:
            return 0
        if not place.memory or found <= by_formula(place, hparams, vocab_size, asked):
            return int(found)
    return 0


def _needs(hparams: HParams, vocab_size: int, asked: Demand) -> dict[str, Any]:
    """What the file says of the model and its data."""
    model = {"hparams_fingerprint": hparams_fingerprint(hparams), "vocab_size": vocab_size}
    return model | dataclasses.asdict(asked)


def by_formula(place: Place, hparams: HParams, vocab_size: int, asked: Demand) -> int:
    """The largest part that this machine's memory holds by `size.step_memory`; 0 where not even an example fits."""

    def fits(positions: int) -> bool:
        part = (_examples(positions, asked.longest), asked.longest, asked.longest)
        parts = [part] * ROUNDS_AT_ONCE
        needed = size.step_memory(hparams, vocab_size, parts, place.precision, accumulates=True).total
        return place.replicas * needed <= CPU_SHARE * place.memory

    return search(fits, dataclasses.replace(asked, largest=CPU_LARGEST))


def search(fits: Callable[[int], bool], asked: Demand) -> int:
    """The number of positions that fit, to a quarter; `asked.largest` (or `START`) where that fits; 0 where none does.

    Args:
        fits: whether parts of so many positions do. Its last call was with a size that fits, if there is one.
        asked: what the plan asks for.
    """
    largest = max(asked.largest, START)
    low, high = 0, START
    while fits(high):
        if high == largest:
            return high
        low, high = high, min(2 * high, largest)
    while high - low > low // 4:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        elif not low and _examples(middle, asked.longest) == 1:
            return 0
        else:
            high = middle
    # A failure may have left memory in pieces, and gradients half summed.
    while low and not fits(low):
        low = 3 * low // 4 if _examples(low, asked.longest) > 1 else 0
    return low


def _examples(positions: int, longest: int) -> int:
    """Examples of the longest kind in a part that is tried for so many positions."""
    return math.ceil(MARGIN * positions / longest)


class Trial:
    """Tries parts of examples that are all as long as the longest, with real steps.

    Args:
        step: the training's.
        asked: what the plan asks for.
        replicas: devices that train side by side.
    """

    def __init__(self, step: TrainStep, asked: Demand, replicas: int) -> None:
        self._step, self._asked, self._replicas = step, asked, replicas

    def fits(self, positions: int, accumulates: bool = True) -> bool:
        """Whether parts of so many positions fit. It changes weights and optimizer.

        Args:
            accumulates: where the plan has more parts than are computed at once, take such a step first; the sums of
                gradients take memory from then on.
        """
        asked = self._asked
        examples = _examples(min(positions, max(asked.largest, START)), asked.longest)
        part = (np.ones((examples, asked.longest), np.int32),) * 2
        rounds = [asked.rounds]
        if positions < asked.largest:
            rounds = [ROUNDS_AT_ONCE + 1, ROUNDS_AT_ONCE] if accumulates else [ROUNDS_AT_ONCE]
        try:
            for count in rounds:
                parts = [part] * (count * self._replicas)
                self._step(parts, len(parts) * part[1].size, (0, 0)).numpy()  # waits for the device
        except tf.errors.ResourceExhaustedError:
            return False
        return True


@contextmanager
def unchanged(variables: Sequence[Any]) -> Iterator[None]:
    """Gives Keras variables back, after the block, the values that they had before it."""
    before = [variable.numpy() for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)


def advice(error: Exception, max_tokens: int) -> UserError:
    """The error for a device that ran out of memory in the middle of a training.

    Args:
        error: what TensorFlow raised.
        max_tokens: the positions of a part so far; 0 where not even the weights fit.
    """
    where = re.search(r"OOM when allocating .*?(?= on /job|\n|$)", str(error))
    cure = (
        f"give --max_tokens_per_replica={max(max_tokens // 2, 1)} with the same command, which goes on from the last "
        "checkpoint"
        if max_tokens
        else "its weights alone are too many; take a smaller --hparams_set, or a larger device"
    )
    return UserError(f"the device has too little memory ({where[0] if where else type(error).__name__}); {cure}")
