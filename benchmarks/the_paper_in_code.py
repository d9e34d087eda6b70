"""Draws the pictures of the page docs/the_paper_in_code.md and writes the blocks of measured
figures in its text.

    python benchmarks/the_paper_in_code.py --work=FOLDER

The script trains a small model on numbers_ende in FOLDER, which takes a few minutes on a CPU. Then
it sends one sentence through the model, draws the pictures in docs/the_paper_in_code/, and rewrites
each block of the page, which is between `<!-- measured: NAME -->` and `<!-- end -->`. A second run
with the same FOLDER uses the trained model.

Shapes: B batch, H heads, S source length, T target length, D width, V vocabulary.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import app, flags
from keras import ops
from matplotlib.figure import Figure

from commands import run
from t2t_repro import registry
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data import batching
from t2t_repro.data.records import Records, find_shards
from t2t_repro.decoding import beam_search
from t2t_repro.decoding.batches import padded
from t2t_repro.decoding.search import target_log_probs
from t2t_repro.decoding.translator import Translator
from t2t_repro.models.transformer import Sinusoids
from t2t_repro.parsing.linearization import delinearise, linearise
from t2t_repro.parsing.trees import Tree
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.schedule import Schedule
from t2t_repro.visualization.attention import KINDS, Attention, attention_of
from t2t_repro.visualization.attention_picture import AXES, attention_picture

WORK = flags.DEFINE_string("work", None, "folder for data and model", required=True)

PAGE = Path(__file__).parents[1] / "docs" / "the_paper_in_code.md"
PICTURES = PAGE.with_suffix("")
SOURCE = "three hundred and ninety-five thousand and six"
TARGET = "dreihundertfünfundneunzigtausendsechs"
STEPS = 1000
WARMUP = 300
AVERAGED = 5
POSITION = 2
"""Position, counted from 0, of the target token whose smoothed label the page shows."""
HEAD = 1
"""Number, counted from 0, of the attention head that three_uses.png shows for each of the three
uses of attention.
"""


@dataclass
class Walk:
    """The trained model and the sentence pair that the page follows through the model."""

    folder: ModelFolder
    model: Any
    inputs: np.ndarray
    """Ids of the source sentence, int32 [1, S]."""
    targets: np.ndarray
    """Ids of the target sentence, int32 [1, T]."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the subwords of `ids`, each in backquotes for a Markdown table."""
        return [f"`{piece}`" for piece in self.folder.vocabulary.pieces(list(map(int, ids)))]


def train(work: str) -> None:
    """Trains the small model with the learning rate of the paper's equation 3 and averages its last
    checkpoints.
    """
    run("datagen", "--problem=numbers_ende", f"--data_dir={work}/data")
    run(
        "trainer",
        "--problem=numbers_ende",
        "--hparams_set=transformer_tiny",
        f"--data_dir={work}/data",
        f"--output_dir={work}/model",
        f"--train_steps={STEPS}",
        "--local_eval_frequency=100",
        "--random_seed=1",
        f"--hparams=learning_rate_schedule=constant*noam,learning_rate_constant=1.0,learning_rate_warmup_steps={WARMUP}",
        "--eval_decode_lines=0",
        "--log_step_count_steps=10",
        "--intra_op_parallelism_threads=1",
    )
    run("avg-checkpoints", f"--output_dir={work}/model", f"--num_last_checkpoints={AVERAGED}")


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns a Markdown table with these header cells and rows."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def dev_pairs() -> tuple[list[str], list[str]]:
    """Returns the sources and targets of the dev split, which the model is not trained on."""
    pairs = list(registry.problem("numbers_ende").generate("dev", ""))
    return [pair["inputs"] for pair in pairs], [pair["targets"] for pair in pairs]


def describe_model(walk: Walk) -> str:
    """Returns a sentence with the number of the model's parameters and of the dev pairs that it
    translates exactly.
    """
    parameters = sum(int(np.prod(variable.shape)) for variable in walk.model.trainable_variables)
    sources, targets = dev_pairs()
    translator = Translator(walk.model, walk.folder.vocabulary, walk.folder.problem.decode_hparams)
    outputs = [translation.text for translation in translator.translate(sources)]
    correct = sum(output == target for output, target in zip(outputs, targets, strict=True))
    return (
        f"It has {parameters:,} parameters and translates {correct} of {len(targets)} held-out "
        "numbers exactly."
    )


def describe_ids(walk: Walk) -> str:
    """Returns a table of the subwords and ids of the source and the target."""
    rows = []
    for name, (ids,) in (("source", walk.inputs), ("target", walk.targets)):
        rows.append([f"**{name}**", *walk.pieces(ids)])
        rows.append(["ids", *ids])
    width = max(map(len, rows))
    return table([""] * width, [row + [""] * (width - len(row)) for row in rows])


def attention(walk: Walk) -> dict[str, Attention]:
    """Returns the attention of the model for the sentence pair, by the name of its kind."""
    return attention_of(walk.model, walk.folder.vocabulary, walk.inputs[0], walk.targets[0])


def describe_shapes(walk: Walk) -> str:
    """Returns a table of the shapes that the model's main tensors have for the sentence pair."""
    model = walk.model
    # Of the first layer.
    weights = {kind: saved.weights[:1] for kind, saved in attention(walk).items()}
    hparams = walk.folder.hparams
    embedded = model.embedding(walk.inputs)
    embedded = embedded + model.source_position(embedded)
    kernel = model.encoder[0].feed_forward.kernel1
    logits = model(walk.inputs, walk.targets)
    rows = [
        ("source ids", "[B, S]", walk.inputs.shape),
        ("embedding + position; output of each encoder layer", "[B, S, D]", embedded.shape),
        (
            "queries of one encoder layer, for all heads",
            "[B, H, S, d_k]",
            (*weights["encoder"].shape[:3], hparams.key_channels // hparams.num_heads),
        ),
        ("attention weights of that layer", "[B, H, S, S]", weights["encoder"].shape),
        (
            "inside the feed-forward network of that layer",
            "[B, S, d_ff]",
            (*embedded.shape[:2], kernel.shape[1]),
        ),
        (
            "self-attention weights of one decoder layer, masked",
            "[B, H, T, T]",
            weights["decoder"].shape,
        ),
        ("cross-attention weights of that layer", "[B, H, T, S]", weights["cross"].shape),
        ("logits", "[B, T, V]", logits.shape),
    ]
    return table(["tensor", "shape", "here"], [(*row[:2], list(map(int, row[2]))) for row in rows])


def describe_predictions(walk: Walk) -> str:
    """Returns a table with a column for each position: the token that the decoder reads, and the
    one it predicts.
    """
    probabilities = np.asarray(ops.softmax(walk.model(walk.inputs, walk.targets)))[0]
    predicted = probabilities.argmax(axis=1)
    reads = ["zeros", *walk.pieces(walk.targets[0, :-1].tolist())]
    shown = [f"{row.max():.4f}" for row in probabilities]
    rows = [
        ["reads", *reads],
        ["predicts", *walk.pieces(predicted.tolist())],
        ["with probability", *shown],
    ]
    return table(["position", *range(len(predicted))], rows)


def draw_attention(walk: Walk) -> None:
    """Draws two pictures: all cross-attention heads of the last layer, and one head of each kind of
    attention.
    """
    kinds = attention(walk)
    (PICTURES / "attention.png").write_bytes(attention_picture(kinds["cross"]))
    figure = Figure((10, 3.6), layout="constrained")
    panels = figure.subplots(1, 3)
    for panel, (kind, name) in zip(panels, KINDS.items(), strict=True):
        image = panel.imshow(
            kinds[kind].weights[-1, HEAD], cmap="Blues", vmin=0, vmax=1, aspect="auto"
        )
        panel.set_title(name, size=9)
        panel.set_ylabel(AXES[kind][0], size=9)
        panel.set_xlabel(AXES[kind][1], size=9)
        panel.set_xticks(range(len(kinds[kind].keys)), kinds[kind].keys, rotation=90, size=8)
        panel.set_yticks(range(len(kinds[kind].queries)), kinds[kind].queries, size=8)
        panel.tick_params(length=0)
    figure.colorbar(image, ax=panels, ticks=(0, 1), label="attention weight")
    figure.savefig(PICTURES / "three_uses.png", dpi=80)


def describe_embedding(walk: Walk) -> str:
    """Returns sentences with the mean norms of the source's embedding vectors and of its position
    vectors.
    """
    rows = np.asarray(walk.model.embedding.table)[walk.inputs[0]]
    width = rows.shape[1]
    positions = np.asarray(walk.model.source_position(rows[None]))[0]
    norms = [
        float(np.linalg.norm(vectors, axis=1).mean())
        for vectors in (rows, rows * width**0.5, positions)
    ]
    return (
        "The embedding vectors of the source sentence have a mean Euclidean norm of "
        f"{norms[0]:.2f}. After the multiplication by √{width} it is {norms[1]:.1f}. Position "
        f"vectors have norm {norms[2]:.1f}."
    )


def draw_positions(walk: Walk) -> None:
    """Draws the sinusoidal position vectors of the first 60 positions, in the small model's
    width.
    """
    width = walk.folder.hparams.hidden_size
    signal = np.asarray(Sinusoids(width)(np.zeros((1, 60, width))))[0]
    figure = Figure((7, 2.8), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(signal, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    axes.set(xlabel=f"channel: {width // 2} sines, then {width // 2} cosines", ylabel="position")
    figure.colorbar(image, ticks=(-1, 0, 1), label="value")
    figure.savefig(PICTURES / "positions.png", dpi=80)


def describe_batch(walk: Walk) -> str:
    """Returns a table of the first training step: one row for each block of sentences of similar
    length.
    """
    records = Records(find_shards(f"{WORK.value}/data", "numbers_ende", "train"))
    hparams = walk.folder.hparams
    epoch = batching.plan(records.lengths, hparams.batch_size, hparams.max_length, seed=1, epoch=0)
    rows = []
    for number, block in enumerate(epoch.blocks(0), 1):
        source, target = records.lengths[:, block]
        padding = 1 - target.sum() / (target.max() * len(target))
        spans = [
            " to ".join(map(str, sorted({side.min(), side.max()}))) for side in (source, target)
        ]
        rows.append((number, len(block), *spans, target.sum(), f"{padding:.1%}"))
    header = ["block", "sentences", "source tokens per sentence", "target tokens per sentence",
              "target tokens, all sentences", "target padding"]  # fmt: skip
    return f"An epoch has {epoch.steps} steps. This is the first step:\n\n{table(header, rows)}"


def draw_learning_rate(walk: Walk) -> None:
    """Draws the learning rate of equation 3 over the steps, for the small model and for the paper's
    base model.

    The small model's panel also shows the rates logged in its training.
    """
    lines = map(json.loads, (walk.folder.path / "metrics.jsonl").read_text("utf-8").splitlines())
    logged = [(line["step"], line["learning_rate"]) for line in lines if "learning_rate" in line]
    figure = Figure((9, 2.8), layout="constrained")
    small, base = figure.subplots(1, 2)
    for axes, hparams, steps in (
        (small, walk.folder.hparams, STEPS), (base, registry.hparams("transformer_base"), 100_000)
    ):  # fmt: skip
        drawn_steps = np.unique(np.linspace(1, steps, 500).astype(int))
        rates = [float(Schedule(hparams)(step - 1)) for step in drawn_steps]
        axes.plot(drawn_steps, rates, linewidth=1, label="equation 3")
        axes.set(
            xlabel="step",
            ylabel="learning rate",
            xlim=(0, steps),
            ylim=0,
            xticks=(0, steps // 2, steps),
        )
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_title(
            f"width {hparams.hidden_size}, {hparams.learning_rate_warmup_steps:,} warmup steps",
            size=9,
        )
    small.plot(*zip(*logged[::4], strict=True), ".", markersize=4, label="logged in training")
    small.legend(fontsize=8)
    figure.savefig(PICTURES / "learning_rate.png", dpi=80)


def describe_label(walk: Walk) -> str:
    """Returns a table of one token's smoothed label and predicted probabilities, and a sentence
    with its loss.
    """
    logits = np.asarray(walk.model(walk.inputs, walk.targets))[:, POSITION : POSITION + 1]
    label = walk.targets[:, POSITION : POSITION + 1]
    smoothing = walk.folder.hparams.label_smoothing
    vocab_size = logits.shape[-1]
    probabilities = np.asarray(ops.softmax(logits))[0, 0]
    likely = [int(i) for i in np.argsort(-probabilities) if i != label[0, 0]][:3]
    off = smoothing / (vocab_size - 1)
    rows = [(*walk.pieces(label[0]), f"{1 - smoothing:.4f}", f"{probabilities[label[0, 0]]:.4f}")]
    rows += [(*walk.pieces([i]), f"{off:.6f}", f"{probabilities[i]:.6f}") for i in likely]
    rest = vocab_size - 1 - len(likely)
    rows.append((f"{rest} others, together", f"{rest * off:.4f}",
                 f"{1 - probabilities[[label[0, 0], *likely]].sum():.4f}"))  # fmt: skip
    losses = [float(smoothed_cross_entropy(logits, label, rate)) for rate in (smoothing, 0.0)]
    return (
        f"{table(['piece', 'smoothed label', 'probability in the model'], rows)}\n\nWith "
        f"smoothing, the loss of this token is {losses[0]:.4f} nats; the entropy of the label is "
        f"already subtracted. Without smoothing, the loss is {losses[1]:.4f} nats."
    )


def describe_averaging(walk: Walk) -> str:
    """Returns a table of the dev losses of the last checkpoints and of the averaged checkpoint."""
    sources, targets = dev_pairs()
    vocabulary = walk.folder.vocabulary
    inputs, outputs = (padded(vocabulary.encode(texts)) for texts in (sources, targets))
    rows = []
    for checkpoint in [*walk.folder.checkpoints()[-AVERAGED:], walk.folder.checkpoint()]:
        log_probs, _ = target_log_probs(walk.folder.model(checkpoint), inputs, outputs)
        name = "average" if "averaged" in checkpoint else f"step {checkpoint.rpartition('-')[2]}"
        rows.append((name, f"{-float(tf.reduce_sum(log_probs)) / np.count_nonzero(outputs):.5f}"))
    return table(["checkpoint", "dev loss, nats per token"], rows)


def describe_search(walk: Walk) -> str:
    """Returns a table of the beam search: the alive and the finished hypotheses after each
    position.
    """
    decode_hparams = walk.folder.problem.decode_hparams
    limits = tf.constant([walk.inputs.shape[1] + decode_hparams.extra_length])

    def show(ids: Any, values: Any) -> str:
        rows = [
            (row.numpy().tolist(), float(value))
            for row, value in zip(ids[0], values[0], strict=True)
        ]
        texts = [
            (" ".join(walk.folder.vocabulary.pieces([i for i in row if i])), value)
            for row, value in rows
        ]
        return "<br>".join(
            f"`{text}` {value:.2f}" for text, value in texts if value > beam_search.MISSING
        )

    scoring = beam_search.Scoring(walk.model.decode_step)
    cache = walk.model.start(decode_hparams.beam_size)
    memory = walk.model.encode(walk.inputs)
    state = beam_search.first_state(cache, memory, limits, decode_hparams)
    rows = []
    is_done = tf.constant([False])
    while not is_done[0]:
        state, candidates = beam_search.find_candidates(state, scoring, decode_hparams.beam_size)
        state, selection = beam_search.keep_best(state, candidates, scoring, decode_hparams)
        is_done = beam_search.find_done(state, decode_hparams)
        bound = (
            state.alive_log_probs[0, 0]
            / beam_search.length_penalty(limits, decode_hparams.alpha)[0]
        )
        rows.append(
            (
                int(state.t),
                show(state.alive_ids, state.alive_log_probs),
                show(state.finished_ids, state.finished_scores),
                f"{float(bound):.2f}",
            )
        )
        if not is_done[0]:
            state = beam_search.remove_done(
                state, selection.parents, is_done, decode_hparams, scoring
            )
    return table(["t", "alive hypotheses, log P", "finished hypotheses, score", "bound"], rows)


def describe_parsing(walk: Walk) -> str:
    """Returns a table of a parse tree, its linearised sequence, a damaged sequence, and the tree
    repaired from it.
    """
    tree = Tree("S", (
        Tree("NP", (Tree("DT", word="The"), Tree("JJ", word="small"), Tree("NN", word="model"))),
        Tree("VP", (Tree("VBZ", word="reads"), Tree("NP", (Tree("NNS", word="papers"),)))),
        Tree(".", word="."),
    ))  # fmt: skip
    words = [leaf.word for leaf in tree.leaves()]
    target = linearise(tree)
    damaged = target.replace(" )NP )VP", " )VP").removesuffix(" )S")
    repaired, repairs = delinearise(damaged, words)
    lines = [
        ("tree", tree),
        ("inputs", " ".join(words)),
        ("targets", target),
        ("a damaged output", damaged),
        ("the tree made from it", repaired),
        ("repairs", repairs),
    ]
    return table(["", ""], [(name, f"`{text}`") for name, text in lines])


BLOCKS = {
    "model": describe_model,
    "ids": describe_ids,
    "shapes": describe_shapes,
    "predictions": describe_predictions,
    "embedding": describe_embedding,
    "batch": describe_batch,
    "label": describe_label,
    "averaging": describe_averaging,
    "search": describe_search,
    "parsing": describe_parsing,
}
"""For each block of the page, by its name: the function that returns the block's text."""


def main(argv: list[str]) -> None:
    """Trains the model if --work has none, draws the pictures and rewrites the page's measured
    blocks.
    """
    work = WORK.value
    if not (Path(work) / "model" / "averaged").exists():
        train(work)
    folder = ModelFolder(f"{work}/model")
    ids = [np.array(folder.vocabulary.encode([text]), np.int32) for text in (SOURCE, TARGET)]
    walk = Walk(folder, folder.model(folder.checkpoint()), *ids)
    PICTURES.mkdir(exist_ok=True)
    for draw in (draw_attention, draw_positions, draw_learning_rate):
        draw(walk)
    page = PAGE.read_text("utf-8")
    for name in re.findall(r"<!-- measured: (\w+) -->", page):
        before, start, rest = page.partition(f"<!-- measured: {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        page = f"{before}{start}{BLOCKS[name](walk)}\n{end}{after}"
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    app.run(main)
