"""t2t-trainer logs metrics, pictures and translations, and ends early if the loss stops falling or
is not finite.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from programs import LOOKUP, SMALL, TrainedModel, refused, run, succeed
from t2t_repro.data.records import Records, find_shards

DECODED_LINES = 10
"""Number of dev lines that an evaluation decodes."""


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]


def flags(trained: TrainedModel, folder: Path, rate: str) -> list[str]:
    """Returns t2t-trainer's flags for the model Lookup and the shared model's data; `rate` is the
    learning rate.
    """
    hparams = SMALL.replace("learning_rate_constant=2.0", f"learning_rate_constant={rate}")
    return [
        *trained.flags,
        f"--output_dir={folder}",
        f"--hparams={hparams}",
        "--eval_decode_lines=0",
        *LOOKUP,
    ]


def test_metrics_have_every_figure(trained: TrainedModel) -> None:
    lines = metrics(trained.folder)
    messages = (trained.text / "messages").read_text()
    steps, evaluations = (
        [line for line in lines if name in line] for name in ("train_loss", "dev_loss")
    )
    assert [line["step"] for line in steps] == [10, 20, 30, 40, 50, 60]
    assert [line["step"] for line in evaluations] == [20, 40, 60]
    for line in steps:
        # The factors of SMALL's learning rate: the constant, the linear warmup over 100 steps
        # (counted from 0), the inverse root decay, which does not change during the warmup, and the
        # inverse root of the hidden size.
        rate = 2.0 * (line["step"] - 1) / 100 * 100**-0.5 * 32**-0.5
        assert line["learning_rate"] == pytest.approx(rate, rel=1e-5)
        assert line["gradient_norm"] > 0 and 0 <= line["padding"] < 0.5
        assert line["source_tokens_per_second"] > 0 and line["target_tokens_per_second"] > 0
    seconds = [line["seconds"] for line in steps]
    assert seconds == sorted(seconds) and seconds[0] > 0
    for line in evaluations:
        assert line["dev_perplexity"] == pytest.approx(math.exp(line["dev_loss"]))
        assert 0 <= line["dev_accuracy"] <= 1
        assert f"step {line['step']}: dev loss {line['dev_loss']:.4f}" in messages
        assert f"|lines:{DECODED_LINES}" in line["signature"] and "tok:13a" in line["signature"]
        assert [len(translation) for translation in line["dev_translations"]] == [3] * 5
    best = min(evaluations, key=lambda line: line["dev_loss"])["step"]
    [index] = (trained.folder / "best").glob("*.index")
    assert (
        index.name == f"model.ckpt-{best}.index"
        and f"--checkpoint_path={index.with_suffix('')}" in messages
    )
    assert f"to decode: t2t-decoder --output_dir={trained.folder} " in messages


def test_tensorboard_has_the_same_figures_and_translations_and_attention(
    trained: TrainedModel,
) -> None:
    lines = metrics(trained.folder)
    events = EventAccumulator(
        str(trained.folder / "tensorboard"), size_guidance={"tensors": 0, "scalars": 0}
    )
    events.Reload()
    names = {name for line in lines for name, value in line.items() if isinstance(value, float)} - {
        "seconds"
    }
    tags = {
        name: re.sub("^(?:(dev)_|(?:train_)?)", lambda match: f"{match[1] or 'train'}/", name)
        for name in names
    }
    assert set(events.Tags()["scalars"]) == {*tags.values()} and {"dev/bleu", "train/loss"} < {
        *tags.values()
    }
    for name in names:
        points = {event.step: event.value for event in events.Scalars(tags[name])}
        assert points == pytest.approx(
            {line["step"]: line[name] for line in lines if name in line}, rel=1e-6
        )
    [attention] = events.Tags()["images"]
    assert [image.step for image in events.Images(attention)] == [20, 40, 60]
    assert events.Images(attention)[0].encoded_image_string.startswith(b"\x89PNG")
    [translations] = events.Tags()["tensors"]
    text = events.Tensors(translations)[-1].tensor_proto.string_val[0].decode()
    assert text.startswith("| source | reference | output |\n| --- ") and len(text.split("\n")) == 7


def test_training_stops_early_without_a_lower_dev_loss(
    trained: TrainedModel, tmp_path: Path
) -> None:
    # The learning rate is almost 0, so no later evaluation has a lower dev loss than the first.
    arguments = [
        *flags(trained, tmp_path / "m", "1e-30"),
        "--early_stopping_patience=2",
        "--local_eval_frequency=3",
        "--train_steps=100",
        "--save_checkpoints_secs=600",
    ]
    for _ in range(2):
        result = succeed("trainer", *arguments)
        assert (
            "--early_stopping_patience=2 ended the run after step 9; omit this flag"
            in result.stderr
        )
        assert "resuming" not in result.stderr
        assert [line["step"] for line in metrics(tmp_path / "m") if "dev_loss" in line] == [3, 6, 9]
        assert [path.name for path in (tmp_path / "m/best").glob("*.index")] == [
            "model.ckpt-3.index"
        ]
        assert [path.name for path in (tmp_path / "m").glob("*.index")] == ["model.ckpt-9.index"]
    refused(
        run("trainer", *arguments, "--precision=tf32"),
        "trained with --precision 'float32', not 'tf32'",
    )


def test_a_loss_that_is_not_finite_ends_the_training_and_its_examples_are_listed(
    trained: TrainedModel, tmp_path: Path
) -> None:
    model = tmp_path / "m"
    arguments = ["--local_eval_frequency=1", "--train_steps=20"]
    result = run("trainer", *flags(trained, model, "1e38"), *arguments)
    refused(result, "which is not finite", "the last good checkpoint is", "not_finite-")
    assert "--precision" not in result.stderr  # the run is in float32 already
    step = int(re.findall(r"step (\d+): loss", result.stderr)[-1])
    good = re.findall(r"the last good checkpoint is (\S+);", result.stderr)[0]
    # model.ckpt-(step - 1) may be damaged, because the loss of its weights is not finite. The last
    # good checkpoint is therefore model.ckpt-(step - 2), if it exists.
    assert good == "none" if step <= 2 else good == str(model / f"model.ckpt-{step - 2}")
    records = Records(find_shards(trained.data, "text_files", "train"))
    # {(shard, number of the record in the shard): length of its target}
    lengths = {
        tuple(map(str, records.locate(number))): len(records[number][1])
        for number in range(len(records))
    }
    rows = [
        tuple(line.split("\t"))
        for line in (model / f"not_finite-{step}.tsv").read_text().splitlines()
    ]
    assert set(rows) <= lengths.keys() and len(set(rows)) == len(rows)
    assert 200 < sum(lengths[row] for row in rows) < 800  # a batch has about 400 target tokens
    assert f"not_finite-{step}.tsv lists its {len(rows)} examples" in result.stderr
