"""What --dry_run says: what would be trained, in what steps, in how much memory. Nothing is built or written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from t2t_repro.data import batching
from t2t_repro.data.summary import MAX_STEPS
from t2t_repro.hparam import HParams
from t2t_repro.models import size
from t2t_repro.tables import Column, Table, to_text
from t2t_repro.training import part_size
from t2t_repro.training.step import ROUNDS_AT_ONCE


def describe(
    hparams: HParams,
    vocab_size: int,
    lengths: np.ndarray,
    epoch: batching.Plan,
    place: part_size.Place,
    folder: Path,
    max_tokens: int = 0,
    parameters: int = 0,
) -> str:
    """A training, for people.

    Args:
        hparams: how to train. Memory and weights are the Transformer's, by formula.
        vocab_size: entries of the vocabulary.
        lengths: int [2, N], source and target tokens of each example of the train split.
        epoch: the plan of its first epoch, with one step at least.
        place: where it would be trained.
        folder: the model folder, which need not be there.
        max_tokens: --max_tokens_per_replica; 0 is what the folder has, or what will be tried.
        parameters: the model's, where it is not the Transformer.
    """
    max_tokens, origin = _part_size(hparams, vocab_size, lengths, epoch, place, folder, max_tokens)
    cuts = Cuts.of(lengths, epoch, max_tokens, place.devices)
    worst = max(
        cuts.at_once(),
        key=lambda parts: sum(size.activations(hparams, vocab_size, part, place.precision) for part in parts),
    )
    memory = size.step_memory(hparams, vocab_size, worst, place.precision, cuts.rounds > ROUNDS_AT_ONCE)
    tokens = np.add.reduceat(lengths[1, epoch.order], epoch.ends[:-1], dtype=np.int64)[epoch.shuffle].sum(axis=1)
    left_out = lengths.shape[1] - len(epoch.order)
    of_steps = f" of the first {len(cuts.steps):,} steps" if len(cuts.steps) < epoch.steps else ""
    facts = [
        ("model", f"{hparams.model}, {parameters or size.parameters(hparams, vocab_size):,} parameters"),
        ("trained on", str(place)),
        ("examples", f"{len(epoch.order):,} an epoch; {left_out:,} longer than {hparams.max_length} tokens left out"),
        (
            "steps",
            f"{epoch.steps:,} an epoch; {hparams.train_steps:,} in all are "
            f"{hparams.train_steps / epoch.steps:,.1f} epochs",
        ),
        ("target tokens a step", f"{tokens.min():,} to {tokens.max():,}, {tokens.mean():,.0f} on average"),
        ("padding", f"{cuts.padding:.1%} of all positions{of_steps}"),
        ("positions of a part", f"{max_tokens:,} at most, {origin}"),
    ]
    widest = max(len(name) for name, _ in facts)
    return "\n".join(
        [
            *(f"{name.ljust(widest)}  {value}" for name, value in facts),
            "",
            to_text([cuts.table(of_steps), _memory_table(memory, worst)], COLUMNS),
        ]
    )


@dataclass(frozen=True)
class Cuts:
    """How the steps of a plan are cut into parts, the first `MAX_STEPS` of them.

    Attributes:
        steps: for each step its parts, empty ones too.
        replicas: devices that take them side by side.
        padding: share of positions, 0 .. 1.
    """

    steps: list[list[size.Shape]]
    replicas: int
    padding: float

    @classmethod
    def of(cls, lengths: np.ndarray, epoch: batching.Plan, max_tokens: int, replicas: int) -> Cuts:
        """The cuts of an epoch; arguments as for `batching.parts`."""
        steps, filled, positions = [], 0, 0
        for step in range(min(epoch.steps, MAX_STEPS)):
            shapes = []
            for part in batching.parts(lengths, epoch.blocks(step), max_tokens, replicas):
                source, target = lengths[:, part].max(axis=1, initial=0).tolist()
                shapes.append((len(part), source, target))
                filled += int(lengths[:, part].sum())
                positions += len(part) * (source + target)
            steps.append(shapes)
        return cls(steps, replicas, 1.0 - filled / positions)

    @property
    def rounds(self) -> int:
        """Parts of a replica in the step that has the most."""
        return max(map(len, self.steps)) // self.replicas

    def at_once(self) -> Iterator[list[size.Shape]]:
        """The parts that a replica computes at once, for each replica in each step."""
        for parts in self.steps:
            if len(parts) <= ROUNDS_AT_ONCE * self.replicas:
                yield from (parts[replica :: self.replicas] for replica in range(self.replicas))
            else:
                yield from ([part] for part in parts)

    def table(self, of_steps: str) -> Table:
        """How many parts a step has."""
        largest: Counter[int] = Counter()
        count = Counter(map(len, self.steps))
        for parts in self.steps:
            for examples, source, target in parts:
                largest[len(parts)] = max(largest[len(parts)], examples * max(source, target))
        lines = [
            {"parts": parts, "steps": count[parts], "share": count[parts] / len(self.steps), "positions": positions}
            for parts, positions in sorted(largest.items())
        ]
        return Table("parts", f"Parts of a step{of_steps}", lines)


def _part_size(
    hparams: HParams,
    vocab_size: int,
    lengths: np.ndarray,
    epoch: batching.Plan,
    place: part_size.Place,
    folder: Path,
    max_tokens: int,
) -> tuple[int, str]:
    """The positions of a part, and where the number comes from."""
    if max_tokens:
        return max_tokens, "as --max_tokens_per_replica says"
    asked = part_size.demand(lengths, epoch, place.devices)
    if kept := part_size.kept(folder, place, hparams, vocab_size, asked):
        return kept, f"as {folder / part_size.FILE_NAME} says"
    if place.workers > 1 and not place.memory:
        return part_size.UNTRIED, "tried at the start"
    if place.memory:
        found = part_size.by_formula(place, hparams, vocab_size, asked)
        if found:
            return found, "by this machine's memory; tried at the start"
        return asked.longest, "a single example, which is too much for this machine's memory"
    return asked.largest, "so that nothing is cut; how many fit is found at the start"


def _memory_table(memory: size.Memory, parts: list[size.Shape]) -> Table:
    shapes = " and ".join(f"{examples:,} x ({source:,} + {target:,})" for examples, source, target in parts)
    lines = [
        {"what": "weights", "bytes": memory.weights},
        {"what": "Adam's moments", "bytes": memory.moments},
        {"what": "gradients", "bytes": memory.gradients},
        {"what": f"activations of {shapes} positions", "bytes": memory.activations},
        {"what": "together", "bytes": memory.total},
    ]
    return Table("memory", "Memory of a replica, by the Transformer's formulas, without the program itself", lines)


COLUMNS = [
    Column("parts", "parts", "{:,}".format),
    Column("steps", "steps", "{:,}".format),
    Column("share", "share", "{:.1%}".format),
    Column("positions", "largest part", "{:,} positions".format),
    Column("what", ""),
    Column("bytes", "MB", lambda value: f"{value / 1e6:,.0f}"),
]
