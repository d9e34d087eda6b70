"""The step plan and the cut of a step into micro-batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from t2t_repro.data import vocabulary
from t2t_repro.data.batching import BLOCKS, Plan, micro_batches, plan
from t2t_repro.textfile import read_lines

MULTI30K = Path(__file__).resolve().parents[3] / ".." / "shared" / "data" / "multi30k"


def news(count: int, longest: int = 256) -> np.ndarray:
    """Lengths as in news text: log-normal about 24 tokens, the sides alike but not equal."""
    random = np.random.default_rng(count)
    source = random.lognormal(3.2, 0.6, count)
    target = source * random.lognormal(0.05, 0.2, count)
    return np.clip(np.stack([source, target]), 2, longest).astype(np.int32)


def steps(laid_out: Plan) -> list[np.ndarray]:
    return [np.concatenate(laid_out.blocks(step)) for step in range(laid_out.steps)]


def whole(lengths: np.ndarray, max_tokens: int, replicas: int) -> list[np.ndarray]:
    """Returns the micro-batches of a step of one block."""
    return micro_batches(lengths, [np.arange(lengths.shape[1])], max_tokens, replicas)


def company(laid_out: Plan) -> set[frozenset[int]]:
    """The steps as sets of examples, without their order."""
    return {frozenset(examples.tolist()) for examples in steps(laid_out)}


def padding(lengths: np.ndarray, laid_out: Plan, max_tokens: int) -> float:
    """Share of the positions, over all micro-batches and both sides, that hold no token."""
    positions = tokens = 0
    for step in range(laid_out.steps):
        for examples in micro_batches(lengths, laid_out.blocks(step), max_tokens, 1):
            sides = lengths[:, examples]
            positions += int(sides.max(axis=1).sum()) * len(examples)
            tokens += int(sides.sum())
    return 1 - tokens / positions


def size(lengths: np.ndarray, examples: np.ndarray) -> int:
    """Returns the number of positions on the longer side of a micro-batch, with padding."""
    return len(examples) * int(lengths[:, examples].max()) if len(examples) else 0


@pytest.mark.parametrize("count", [1, 2, 7, 1000, 20_000])
@pytest.mark.parametrize("batch_size", [1, 100, 4096, 10**9])
def test_an_epoch_holds_each_example_once(count: int, batch_size: int) -> None:
    taken = np.concatenate(steps(plan(news(count), batch_size, 256, seed=1, epoch=0)))
    assert np.array_equal(np.sort(taken), np.arange(count))


def test_examples_with_a_longer_side_are_left_out() -> None:
    lengths = np.array([[5, 11, 5, 10, 12, 1], [5, 5, 11, 10, 12, 1]])
    taken = np.concatenate(steps(plan(lengths, 10, 10, seed=1, epoch=0)))
    assert sorted(taken.tolist()) == [0, 3, 5]


def test_where_all_are_too_long_there_is_no_step() -> None:
    assert plan(np.full((2, 4), 11), 10, 10, seed=1, epoch=0).steps == 0
    assert plan(np.empty((2, 0), np.int32), 10, 10, seed=1, epoch=0).steps == 0


@pytest.mark.parametrize("max_length", [256, 10**6, 10**9, 2**31 - 1])
def test_max_length_may_be_as_large_as_one_likes(max_length: int) -> None:
    assert len(np.concatenate(steps(plan(news(3000), 4096, max_length, seed=1, epoch=0)))) == 3000


def test_the_same_seed_and_epoch_give_the_same_plan() -> None:
    one, same = (plan(news(5000), 2048, 256, seed=3, epoch=4) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(steps(one), steps(same), strict=True))


@pytest.mark.parametrize(("seed", "epoch"), [(1, 1), (2, 0), (0, 1)])
def test_another_seed_or_epoch_gives_other_company(seed: int, epoch: int) -> None:
    lengths = news(5000)
    one, other = plan(lengths, 2048, 256, seed=1, epoch=0), plan(lengths, 2048, 256, seed=seed, epoch=epoch)
    assert len(company(one) & company(other)) < 0.05 * one.steps


def test_each_epoch_has_as_many_steps() -> None:
    for lengths in (news(3000), np.full((2, 50), 7)):
        assert len({plan(lengths, 500, 256, seed=1, epoch=epoch).steps for epoch in range(20)}) == 1


def test_steps_hold_about_batch_size_target_tokens() -> None:
    lengths = news(50_000)
    laid_out = plan(lengths, 4096, 256, seed=1, epoch=0)
    tokens = np.array([lengths[1, examples].sum() for examples in steps(laid_out)])
    assert abs(tokens.mean() / 4096 - 1) < 0.01
    assert tokens.min() > 0.6 * 4096 and tokens.max() < 1.5 * 4096


@pytest.mark.parametrize(("examples", "whole"), [(50_000, True), (600, False)])
def test_large_blocks_hold_a_multiple_of_eight_examples(examples: int, whole: bool) -> None:
    sizes = np.diff(plan(news(examples), 4096 if whole else 200, 256, seed=1, epoch=0).ends)
    assert np.all(sizes[:-1] % 8 == 0) == whole
    assert sizes.min() > 0 and sizes.sum() == examples


def test_no_step_is_empty() -> None:
    longest_last = np.array([[3, 3, 3, 200], [3, 3, 3, 200]])
    odd_one_between = np.array([[3] * 20 + [5] + [9] * 200, [3] * 20 + [200] + [9] * 200])
    for lengths in (longest_last, odd_one_between):
        for epoch in range(20):
            assert all(len(examples) for examples in steps(plan(lengths, 50, 256, seed=1, epoch=epoch)))


def test_short_and_long_steps_come_in_mixed_order() -> None:
    lengths = news(50_000)
    means = [lengths[1, examples].mean() for examples in steps(plan(lengths, 4096, 256, seed=1, epoch=0))]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2


def test_examples_of_equal_lengths_change_company_each_epoch() -> None:
    lengths = np.full((2, 1000), 10)
    one, other = (plan(lengths, 500, 256, seed=1, epoch=epoch) for epoch in range(2))
    assert max(len(step & again) for step in company(one) for again in company(other)) < 15


@pytest.mark.parametrize("replicas", [1, 2, 3, 8])
@pytest.mark.parametrize("max_tokens", [300, 2048, 10**6])
def test_micro_batches_hold_a_step_once_in_at_most_max_tokens(replicas: int, max_tokens: int) -> None:
    lengths = news(20_000)
    laid_out = plan(lengths, 4096, 256, seed=1, epoch=0)
    for step in range(laid_out.steps):
        cut = micro_batches(lengths, laid_out.blocks(step), max_tokens, replicas)
        assert np.array_equal(np.concatenate(cut), np.concatenate(laid_out.blocks(step)))
        assert len(cut) % replicas == 0
        assert all(size(lengths, examples) <= max_tokens for examples in cut)


def test_the_blocks_of_a_step_differ_in_length_and_the_examples_of_a_block_do_not() -> None:
    lengths = news(50_000)
    laid_out = plan(lengths, 4096, 256, seed=1, epoch=0)
    means = np.array([[lengths[1, block].mean() for block in laid_out.blocks(step)] for step in range(laid_out.steps)])
    assert means.shape == (laid_out.steps, BLOCKS)
    assert np.abs(means[:, 0] - means[:, 1]).mean() > 5
    spreads = [np.ptp(lengths[1, block]) for step in range(laid_out.steps) for block in laid_out.blocks(step)]
    assert np.median(spreads) <= 4


def test_micro_batches_of_examples_in_any_order_hold_at_most_max_tokens() -> None:
    random = np.random.default_rng(1)
    for _ in range(300):
        sides = random.integers(1, 50, (2, random.integers(1, 60)))
        cut = whole(sides, 60, int(random.integers(1, 5)))
        assert np.array_equal(np.concatenate(cut), np.arange(sides.shape[1]))
        assert all(size(sides, examples) <= 60 for examples in cut)


def test_a_step_that_fits_is_one_micro_batch_for_each_replica() -> None:
    lengths = np.full((2, 12), 10)
    assert [len(examples) for examples in whole(lengths, 120, 1)] == [12]
    assert [len(examples) for examples in whole(lengths, 119, 1)] == [6, 6]
    assert [len(examples) for examples in whole(lengths, 120, 4)] == [3, 3, 3, 3]


def test_the_longer_side_counts() -> None:
    assert len(whole(np.array([[10, 10], [1, 1]]), 19, 1)) == len(whole(np.array([[1, 1], [10, 10]]), 19, 1)) == 2


def test_fewer_examples_than_replicas_leave_micro_batches_empty() -> None:
    assert sorted(len(examples) for examples in whole(np.full((2, 2), 10), 100, 4)) == [0, 0, 1, 1]


def test_a_longer_example_is_a_micro_batch_of_its_own_and_the_others_stay_together() -> None:
    lengths = np.array([[10] * 100 + [300], [10] * 100 + [300]])
    cut = whole(lengths, 250, 1)
    assert [examples.tolist() for examples in cut if 100 in examples] == [[100]]
    assert all(size(lengths, examples) <= 250 for examples in cut[:-1])
    assert len(cut) <= 10


def test_micro_batches_are_few() -> None:
    lengths = news(20_000)
    counted = needed = 0
    laid_out = plan(lengths, 25_000, 256, seed=1, epoch=0)
    for step, examples in enumerate(steps(laid_out)):
        counted += len(micro_batches(lengths, laid_out.blocks(step), 4096, 1))
        needed += int(np.ceil(lengths[:, examples].max(axis=0).sum() / 4096))
    assert counted < 1.3 * needed


def test_little_of_news_text_is_padding() -> None:
    lengths = news(100_000)
    assert padding(lengths, plan(lengths, 4096, 256, seed=1, epoch=0), 2048) < 0.02
    assert padding(lengths, plan(lengths, 25_000, 256, seed=1, epoch=1), 4096) < 0.04


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="needs ../shared/data/multi30k")
def test_less_than_four_percent_of_multi30k_is_padding() -> None:
    sides = [list(read_lines(str(MULTI30K / f"train.{language}.gz"))) for language in ("en", "de")]
    words = vocabulary.train([text for side in sides for text in side], 8000)
    lengths = np.array([[len(ids) for ids in words.encode(side)] for side in sides], np.int32)
    for epoch in range(3):
        assert padding(lengths, plan(lengths, 4096, 256, seed=1, epoch=epoch), 2048) < 0.04
