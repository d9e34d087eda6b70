"""All programs work with user-defined code: a problem, an hparams set, and models."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from programs import refused, run, succeed

PAGE = Path(__file__).parents[2] / "docs" / "write_your_own_model.md"
MINE = '''
"""A user's own code."""
from dataclasses import replace
import keras
from t2t_repro import registry
from t2t_repro.problem import Problem

@registry.register_problem
class Shouting(Problem):
    """Text to capitals."""
    num_train_shards = 1
    def generate(self, split, tmp_dir):
        for number in range(200 if split == "train" else 10):
            yield {"inputs": f"text {number}", "targets": f"TEXT {number}"}

@registry.register_hparams
def minute():
    """A very small set."""
    return replace(registry.hparams("transformer_tiny"), num_hidden_layers=1, hidden_size=16, filter_size=16,
                   num_heads=2, train_steps=2)

@registry.register_model
class Plain(keras.Model):
    """Predicts each token from the token before it; it has no search."""
    def __init__(self, hparams, vocab_size, target_space_id, precision):
        super().__init__()
        self.embedding = keras.layers.Embedding(vocab_size, hparams.hidden_size)
        self.dropout = keras.layers.Dropout(0.1)
        self.logits = keras.layers.Dense(vocab_size)

    def call(self, inputs, targets, training=False):
        previous = keras.ops.pad(targets, ((0, 0), (1, 0)))[:, :-1]
        return self.logits(self.dropout(self.embedding(previous)))
'''  # noqa: E501
TRAIN = (
    "--problem=shouting",
    "--hparams_set=minute",
    "--local_eval_frequency=1",
    "--data_dir=data",
)
TEXTS = "text 7\n\ntext 12\n"
PAIRS = "text 7\tTEXT 7\ntext 12\tTEXT 1\n"
SHORT = "--decode_hparams=extra_length=3"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Returns a function that runs a program. The user-defined code and its problem's data are
    ready in a folder.
    """
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine").mkdir()
    example, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    for name, code in (
        ("__init__", "from mine import code, example\n"),
        ("code", MINE),
        ("example", example),
    ):
        (folder / "mine" / f"{name}.py").write_text(code)

    def run_in_folder(
        program: str, *arguments: str, runs: Callable[..., Any] = succeed, input: str = ""
    ) -> Any:
        # Eager mode, because tracing takes longer than a few steps. The exporter and the model
        # "plain" are traced.
        tf.config.run_functions_eagerly(
            program in ("decoder", "trainer") and "--model=plain" not in arguments
        )
        try:
            return runs(program, "--t2t_usr_dir=mine", *arguments, cwd=folder, input=input)
        finally:
            tf.config.run_functions_eagerly(False)

    run_in_folder("datagen", "--problem=shouting", "--vocab_size=300", "--data_dir=data")
    run_in_folder.folder = folder  # type: ignore[attr-defined]
    return run_in_folder


def log_probs(programs: Any, output_dir: str) -> list[float]:
    """Returns the log-probabilities that t2t-decoder --score_file gives to the lines of `PAIRS`."""
    (programs.folder / "pairs.tsv").write_text(PAIRS)
    lines = programs("decoder", output_dir, "--score_file=pairs.tsv").stdout.splitlines()
    assert len(lines) == 2
    return [float(line.split("\t")[0]) for line in lines]


def counted_parameters(text: str, name: str) -> str:
    [number] = re.findall(rf"{name}[:,] ([\d,]+) parameters", text)
    return number


def test_the_recurrent_model_of_the_page_with_its_own_hparams_runs_through_every_program(
    programs: Any,
) -> None:
    folder = programs.folder
    model = "--output_dir=recurrent"
    own = ("--model=recurrent", "--hparams=memory_size=12")
    listing = programs("trainer", "--registry_help").stdout
    assert all(name in listing for name in ("shouting", "minute", "recurrent_tiny", "plain"))
    training = programs("trainer", *TRAIN, *own, model, "--train_steps=1", "--eval_decode_lines=2")
    assert "step 1: dev loss" in training.stderr
    other = programs("trainer", *TRAIN, own[0], "--hparams=memory_size=10", model, runs=run)
    refused(other, "memory_size 12, not 10", "--output_dir")
    assert (
        "step 2: dev loss"
        in programs("trainer", *TRAIN, *own, model, "--eval_decode_lines=0").stderr
    )
    assert json.loads((folder / "recurrent" / "hparams.json").read_text())["memory_size"] == 12
    planned = programs("trainer", *TRAIN, *own, "--output_dir=new", "--dry_run")
    assert counted_parameters(planned.stdout, "recurrent") == counted_parameters(
        training.stderr, "recurrent"
    )
    programs("avg-checkpoints", model, "--num_last_checkpoints=2", "--nocompare")
    refused(
        programs("decoder", model, "--hparams=memory_size=10", runs=run, input=TEXTS),
        "memory_size=12",
    )
    refused(
        programs("trainer", *TRAIN, "--hparams=memory_size=9", "--output_dir=new", runs=run),
        "'memory_size'",
    )
    decoded = programs(
        "decoder", model, SHORT, "--output_format=jsonl", input=TEXTS
    ).stdout.splitlines()
    texts = [json.loads(line)["hypotheses"][0] for line in decoded]
    assert len(texts) == 3 and texts[1] == "" and texts[0]
    scores = log_probs(programs, model)

    programs("exporter", model, SHORT)
    served = tf.saved_model.load(str(folder / "recurrent" / "export" / "1")).signatures
    outputs = served["serving_default"](inputs=tf.constant(TEXTS.splitlines()))["outputs"]
    assert [text.decode() for text in outputs.numpy()] == texts
    sources, targets = zip(*(pair.split("\t") for pair in PAIRS.splitlines()), strict=True)
    served_scores = served["score"](inputs=tf.constant(sources), targets=tf.constant(targets))[
        "log_probs"
    ]
    assert served_scores.numpy() == pytest.approx(scores, abs=1e-3)

    for flags in (
        ["--decode_hparams=coverage_penalty=0.2"],
        ["--output_format=jsonl", "--output_attention"],
    ):
        result = programs("decoder", model, *flags, runs=run, input=TEXTS)
        refused(result, "model 'recurrent' has no attention for", "omit it")


def test_a_model_without_a_search_trains_and_scores(programs: Any) -> None:
    training = programs(
        "trainer", *TRAIN, "--model=plain", "--output_dir=plain", "--eval_decode_lines=0"
    )
    assert "step 2: dev loss" in training.stderr
    planned = programs("trainer", *TRAIN, "--model=plain", "--output_dir=new", "--dry_run")
    assert counted_parameters(planned.stdout, "plain") == counted_parameters(
        training.stderr, "plain"
    )
    averaging = programs("avg-checkpoints", "--output_dir=plain", "--num_last_checkpoints=2").stderr
    assert "dev loss" in averaging and "BLEU" not in averaging
    assert all(log_prob < 0 for log_prob in log_probs(programs, "--output_dir=plain"))
    for program, *flags in (
        ("decoder", "--output_dir=plain"),
        ("decoder", "--output_dir=plain", "--decode_from_file=pairs.tsv", "--decode_to_file=out"),
        ("exporter", "--output_dir=plain"),
    ):
        result = programs(program, *flags, runs=run, input=TEXTS)
        refused(
            result,
            "model 'plain' has no method encode",
            "--score_file",
            "docs/write_your_own_model.md",
        )
    assert (
        not list(programs.folder.glob("out*"))
        and not (programs.folder / "plain" / "export").exists()
    )
    refusal = programs("trainer", *TRAIN, "--model=plain", "--output_dir=new", runs=run)
    refused(refusal, "no method encode", "--eval_decode_lines=0")
