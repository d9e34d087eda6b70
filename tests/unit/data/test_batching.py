"""Tests the plan of an epoch's steps, and the cutting of a step into micro-batches."""

import hashlib
import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from properties import few
from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.data import batching
from t2t_repro.data.batching import Plan, first_steps, micro_batches, padding, plan
from user_errors import user_error


def news(count: int, longest: int = 256) -> np.ndarray:
    """Returns random source and target lengths [2, count], distributed as in news text (median 24
    tokens).
    """
    random = np.random.default_rng(count)
    source = random.lognormal(3.2, 0.6, count)
    target = source * random.lognormal(0.05, 0.2, count)
    return np.clip(np.stack([source, target]), 2, longest).astype(np.int32)


def steps(epoch_plan: Plan) -> list[np.ndarray]:
    """Returns, for each step of an epoch, the indices of the step's examples."""
    return [np.concatenate(epoch_plan.blocks(step)) for step in range(epoch_plan.steps)]


PLANS = {
    "203fcc98320e": (5000, 1000, 60, 1, 0),
    "27e472113566": (5000, 1000, 60, 1, 1),
    "30ee9312e4a5": (300, 200, 2**31 - 1, 2, 7),
}
"""For the hash of a plan: the number of examples, and the arguments batch_size, max_length, seed
and epoch.
"""


@pytest.mark.parametrize("slice_size", [7, batching.SLICE])
def test_plans_are_the_recorded_ones(monkeypatch: pytest.MonkeyPatch, slice_size: int) -> None:
    """With other plans, the training of an existing model folder could not be resumed."""
    monkeypatch.setattr(batching, "SLICE", slice_size)
    for expected, (count, *arguments) in PLANS.items():
        halves = StoredCorpus("a", stop=count // 2), StoredCorpus("b", start=count // 2, stop=count)
        ours = plan(news(count), *arguments, corpora=halves)  # type: ignore[arg-type]
        arrays = (
            np.asarray(array, np.int64).tobytes() for array in (ours.order, ours.ends, ours.shuffle)
        )
        assert hashlib.sha256(b"".join(arrays)).hexdigest()[:12] == expected


def test_padding_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.array([[2, 4, 3, 5], [3, 3, 1, 5]])
    # Examples 0 and 1 have 12 tokens. Padded to 4 source and 3 target tokens, they need 2 * (4 + 3)
    # = 14 positions. Examples 2 and 3 have 14 tokens. Padded to 5 source and 5 target tokens, they
    # need 2 * (5 + 5) = 20 positions.
    pairs = [[np.array([0, 1])], [np.array([2, 3])]]
    assert padding(lengths, pairs) == pytest.approx(1 - 26 / 34)
    assert padding(lengths, pairs[:1]) == pytest.approx(1 - 12 / 14)
    assert padding(lengths, [[np.array([example]) for example in range(4)]]) == 0.0
    assert padding(lengths, [[*pairs[0], np.empty(0, np.int32)]]) == pytest.approx(1 - 12 / 14)
    assert padding(lengths, []) == 0.0
    lengths = np.array([[2, 2, 1, 9], [2, 2, 1, 9]])
    epoch_plan = Plan(np.arange(4), np.array([0, 2, 4]), np.array([[0], [1]]))
    assert padding(lengths, first_steps(lengths, epoch_plan, 4096)) == pytest.approx(1 - 28 / 44)
    # Examples 2 and 3 have different lengths. If max_tokens is 5, each is its own micro-batch,
    # without padding.
    assert padding(lengths, first_steps(lengths, epoch_plan, 5)) == 0.0
    monkeypatch.setattr(batching, "COUNTED_STEPS", 1)
    assert padding(lengths, first_steps(lengths, epoch_plan, 4096)) == 0.0


def plain_cuts(lengths: list[int], limit: int) -> list[int]:
    """Returns the boundaries of micro-batches. Adds one example at a time, until the next one
    exceeds the limit.
    """
    cuts = [0]
    for position in range(1, len(lengths)):
        if (position + 1 - cuts[-1]) * max(lengths[cuts[-1] : position + 1]) > limit:
            cuts.append(position)
    return [*cuts, len(lengths)]


@few
@example([[1, 1, 1]], 10, 2)
@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=25), min_size=1, max_size=3),
    st.integers(1, 150),
    st.integers(1, 4),
)
def test_micro_batches_equal_those_of_a_search_over_all_limits(
    sides: list[list[int]], max_tokens: int, replicas: int
) -> None:
    count = max(len(plain_cuts(side, max_tokens)) - 1 for side in sides)
    while count * len(sides) % replicas:
        count += 1
    expected = []
    start = 0
    for side in sides:
        limits = (
            limit for limit in range(1, max_tokens + 1) if len(plain_cuts(side, limit)) - 1 <= count
        )
        cuts = plain_cuts(side, next(limits)) if count > 1 else [0, len(side)]
        cuts += [len(side)] * (count + 1 - len(cuts))
        expected += [list(range(start + a, start + b)) for a, b in itertools.pairwise(cuts)]
        start += len(side)
    lengths = np.array([[length for side in sides for length in side]] * 2, np.int32)
    blocks = np.split(np.arange(start), np.cumsum([len(side) for side in sides])[:-1])
    assert [
        cut.tolist() for cut in micro_batches(lengths, blocks, max_tokens, replicas)
    ] == expected


LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60)
"""Source length and target length of each example."""


@few
@given(
    LENGTHS,
    st.integers(1, 200),
    st.integers(1, 50),
    st.integers(0, 2**32 - 1),
    st.integers(0, 10**6),
)
def test_any_plan_has_each_short_example_once_and_no_empty_block(
    pairs: list[tuple[int, int]], batch_size: int, max_length: int, seed: int, epoch: int
) -> None:
    lengths = np.array(pairs, np.int32).T
    one, same, next_epoch = (
        plan(lengths, batch_size, max_length, seed, number) for number in (epoch, epoch, epoch + 1)
    )
    short = [example for example, pair in enumerate(pairs) if max(pair) <= max_length]
    assert sorted(one.order.tolist()) == short
    assert sorted(example for step in steps(one) for example in step.tolist()) == short
    assert all(len(block) for step in range(one.steps) for block in one.blocks(step))
    assert [step.tolist() for step in steps(one)] == [step.tolist() for step in steps(same)]
    assert one.steps == next_epoch.steps


def corpora_of(sizes: list[int], weights: list[float]) -> list[StoredCorpus]:
    starts = [0, *itertools.accumulate(sizes)]
    return [
        StoredCorpus(f"corpus{number}", weight, "", starts[number], starts[number + 1])
        for number, weight in enumerate(weights)
    ]


@few
@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.data())
def test_weights_give_each_corpus_its_share_of_each_epoch_and_use_its_examples_equally(
    sizes: list[int], data: st.DataObject
) -> None:
    weights = [data.draw(st.sampled_from([0.25, 1.0, 2.0, 3.7])) for _ in sizes]
    length = st.tuples(st.integers(1, 9), st.integers(1, 9))
    lengths = np.array(data.draw(st.lists(length, min_size=sum(sizes), max_size=sum(sizes)))).T
    longest = data.draw(st.integers(6, 9))
    batch_size = data.draw(st.integers(1, 60))
    corpora = corpora_of(sizes, weights)
    short = np.flatnonzero(lengths.max(axis=0) <= longest)
    members = np.split(short, np.searchsorted(short, [corpus.start for corpus in corpora[1:]]))
    total = int(lengths[1, short].sum())
    shares = [total * weight / sum(weights) for weight in weights]
    if not total or any(
        share > 100 * lengths[1, group].sum() for share, group in zip(shares, members, strict=True)
    ):
        return
    uses = np.zeros(len(lengths[0]), int)
    plans = [plan(lengths, batch_size, longest, 1, epoch, corpora) for epoch in range(7)]
    assert len({each.steps for each in plans}) == 1
    for number, epoch in enumerate(plans):
        examples = np.concatenate(steps(epoch))
        assert set(examples) <= set(short)
        assert all(len(block) for step in range(epoch.steps) for block in epoch.blocks(step))
        np.add.at(uses, examples, 1)
        for group, share in zip(members, shares, strict=True):
            # Up to the longest example, and rounding to whole tokens.
            used = lengths[1, examples[np.isin(examples, group)]].sum()
            assert abs(used - share) <= 9 + 1
            counts = uses[group]
            assert counts.max() - counts.min() <= 1
            assert lengths[1, group] @ counts <= (number + 1) * share + 9
    again = plan(lengths, batch_size, longest, 1, 3, corpora)
    assert again.order.tolist() == plans[3].order.tolist()
    assert again.shuffle.tolist() == plans[3].shuffle.tolist()


def test_an_epoch_of_weighted_corpora_depends_on_its_number_and_the_seed() -> None:
    lengths = news(6000)
    corpora = corpora_of([4000, 1500, 500], [1, 4, 3])
    orders = [
        sorted(plan(lengths, 1000, 100, seed, epoch, corpora).order.tolist())
        for seed, epoch in ((5, 0), (5, 1), (6, 0))
    ]
    assert orders[0] != orders[1] and orders[0] != orders[2]
    assert "corpus2" in user_error(
        plan, lengths, 1000, 100, 5, 0, corpora_of([4000, 1998, 2], [1, 1, 1])
    )
