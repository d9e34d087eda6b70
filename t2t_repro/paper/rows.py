"""The rows of the paper's Tables 2, 3 and 4: the figures that the paper prints, and our hparams set for each row.

The figures are from Vaswani et al. 2017 (arXiv 1706.03762v5). None marks a cell that the paper leaves empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from t2t_repro.errors import unknown

PREFIX = "transformer_"
"""Prefix of the names of the Transformer's hparams sets. Users of t2t-reproduce may omit it in --row."""
SUSTAINED_TFLOPS = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}
"""Sustained single-precision TFLOPS (10^12 operations per second) of GPUs, from a footnote in section 6.1."""
TOKENS_PER_STEP = 25_000
"""Number of target tokens in a training step of the paper's models (section 5.1)."""


def flops_by_time(seconds: float, gpu_count: int, tflops: float) -> float:
    """Returns the operations of a training run by Table 2's method: time x number of GPUs x sustained operations/s."""
    return seconds * gpu_count * tflops * 1e12


@dataclass(frozen=True)
class Corpus:
    """A training corpus, with mean lengths for computing the number of operations in a training step.

    Attributes:
        problem: registered name of the problem.
        source_length: mean number of tokens in a source sentence, including the end token.
        target_length: mean number of tokens in a target sentence, including the end token.
    """

    problem: str
    source_length: int
    target_length: int


# Mean lengths are estimates: EN-DE has about 130 M tokens in 4.5 M sentences, EN-FR about 1.1 G in 36 M. Source and
# target have the same length, because a batch of the paper has 25,000 source and 25,000 target tokens (section 5.1).
EN_DE = Corpus("wmt_ende", 29, 29)
EN_FR = Corpus("wmt_enfr", 31, 31)
EN_DE_CHARACTERS = Corpus("wmt_ende", 150, 150)  # 26 words of English with a mean of 5.8 characters, including spaces
# These mean lengths were measured on the treebank's free sample with a vocabulary of 8,000 entries.
PARSING = Corpus("wsj_parsing", 31, 63)
PARSING_SEMI = Corpus("wsj_parsing_semi", 31, 63)

# Vocabulary sizes for counting parameters. The paper states about 37,000 entries for EN-DE (section 5.1), but no single
# size reproduces all parameter counts in Table 3: big needs 35,368 to 36,344 entries, all other rows 41,004 to 41,208.
BASE_VOCABULARY, BIG_VOCABULARY = 41_100, 36_000
EN_FR_VOCABULARY = 32_000


@dataclass(frozen=True)
class Experiment:
    """A training run of one hparams set on one corpus.

    Attributes:
        hparams_set: registered name of the hparams set.
        corpus: the training corpus.
        vocab_size: size of the shared vocabulary, for counting parameters and operations.
    """

    hparams_set: str
    corpus: Corpus
    vocab_size: int


@dataclass(frozen=True)
class Row:
    """One row of a table in the paper.

    Attributes:
        table: number of the table.
        row: text of the row's first cell, for example "(A)" or "Transformer (big)".
        hparams_set: our hparams set for this row; "" if we have none, as for ensembles.
        hparams_set_enfr: our hparams set for EN-FR; only in Table 2, in rows where `hparams_set` is for EN-DE.
        corpus: training corpus of `hparams_set`.
        vocab_size: size of the shared vocabulary; 0 if `hparams_set` is "". Our parsers and the systems other than the
            Transformer have published sizes, except Deep-Att. For the Transformer's translation, we
            chose two sizes (base's and big's) with which our parameter counts round to the paper's.
        vocab_size_enfr: size of the shared vocabulary for `hparams_set_enfr`.
        n, d_model, d_ff, h, d_k, d_v, p_drop, eps_ls: Table 3's columns; None means base's value.
        note: description of Table 3's row (E), the only variation that is not a number.
        steps: training steps, the same for both language pairs (section 5.2).
        perplexity: perplexity per word-piece on newstest2013.
        bleu_dev: BLEU on newstest2013.
        parameters: number of parameters, rounded to millions.
        bleu_ende, bleu_enfr: BLEU on newstest2014.
        flops_ende, flops_enfr: training cost in floating-point operations.
        training: Table 4's second column, the kind of training data: "WSJ only".
        f1: labelled F1 on section 23.
    """

    table: int
    row: str
    hparams_set: str = ""
    hparams_set_enfr: str = ""
    corpus: Corpus = EN_DE
    vocab_size: int = 0
    vocab_size_enfr: int = EN_FR_VOCABULARY
    n: int | None = None
    d_model: int | None = None
    d_ff: int | None = None
    h: int | None = None
    d_k: int | None = None
    d_v: int | None = None
    p_drop: float | None = None
    eps_ls: float | None = None
    note: str | None = None
    steps: int | None = None
    perplexity: float | None = None
    bleu_dev: float | None = None
    parameters: int | None = None
    bleu_ende: float | None = None
    bleu_enfr: float | None = None
    flops_ende: float | None = None
    flops_enfr: float | None = None
    training: str | None = None
    f1: float | None = None

    def experiments(self) -> list[Experiment]:
        """Returns our experiments for this row: none, one, or in Table 2 one for each language pair."""
        experiments = [
            Experiment(self.hparams_set, self.corpus, self.vocab_size),
            Experiment(self.hparams_set_enfr, EN_FR, self.vocab_size_enfr),
        ]
        return [experiment for experiment in experiments if experiment.hparams_set]


def _system(
    row: str, bleu: tuple[float | None, float | None], flops: tuple[float | None, float | None], **ours: Any
) -> Row:
    """Returns a row of Table 2 for a system that is not a Transformer. `bleu` and `flops` are for EN-DE and EN-FR."""
    return Row(2, row, bleu_ende=bleu[0], bleu_enfr=bleu[1], flops_ende=flops[0], flops_enfr=flops[1], **ours)


def _variation(
    row: str, name: str, perplexity: float, bleu_dev: float, millions: int | None = None, **changes: float | str
) -> Row:
    """Returns one of Table 3's rows (A) to (E), which differs from base in `changes`."""
    parameters = None if millions is None else millions * 10**6
    return Row(
        3, row, PREFIX + name, vocab_size=BASE_VOCABULARY, perplexity=perplexity, bleu_dev=bleu_dev,
        parameters=parameters, **changes,  # type: ignore[arg-type]
    )  # fmt: skip


def _parser(row: str, training: str, f1: float) -> Row:
    """Returns a row of Table 4 for a parser that is not a Transformer."""
    return Row(4, row, training=training, f1=f1)


BASE = Row(
    3, "base", "transformer_base", vocab_size=BASE_VOCABULARY,
    n=6, d_model=512, d_ff=2048, h=8, d_k=64, d_v=64, p_drop=0.1, eps_ls=0.1,
    steps=100_000, perplexity=4.92, bleu_dev=25.8, parameters=65_000_000,
)  # fmt: skip
BIG = Row(
    3, "big", "transformer_big", vocab_size=BIG_VOCABULARY, n=6, d_model=1024, d_ff=4096, h=16,
    p_drop=0.3, steps=300_000, perplexity=4.33, bleu_dev=26.4, parameters=213_000_000,
)  # fmt: skip

ROWS = (
    _system("ByteNet", (23.75, None), (None, None),
            hparams_set="bytenet", corpus=EN_DE_CHARACTERS, vocab_size=323),
    _system("Deep-Att + PosUnk", (None, 39.2), (None, 1.0e20),
            hparams_set="deep_att", corpus=EN_FR, vocab_size=EN_FR_VOCABULARY),
    _system("GNMT + RL", (24.6, 39.92), (2.3e19, 1.4e20),
            hparams_set="gnmt", hparams_set_enfr="gnmt", vocab_size=32_000),
    _system("ConvS2S", (25.16, 40.46), (9.6e18, 1.5e20),
            hparams_set="convs2s_ende", hparams_set_enfr="convs2s_enfr", vocab_size=40_000, vocab_size_enfr=40_000),
    _system("MoE", (26.03, 40.56), (2.0e19, 1.2e20),
            hparams_set="moe", hparams_set_enfr="moe", vocab_size=32_000),
    _system("Deep-Att + PosUnk ensemble", (None, 40.4), (None, 8.0e20)),
    _system("GNMT + RL ensemble", (26.30, 41.16), (1.8e20, 1.1e21)),
    _system("ConvS2S ensemble", (26.36, 41.29), (7.7e19, 1.2e21)),
    Row(2, "Transformer (base)", "transformer_base", "transformer_base", vocab_size=BASE_VOCABULARY, steps=BASE.steps,
        bleu_ende=27.3, bleu_enfr=38.1, flops_ende=3.3e18, flops_enfr=3.3e18),
    Row(2, "Transformer (big)", "transformer_big", "transformer_big_enfr", vocab_size=BIG_VOCABULARY, steps=BIG.steps,
        bleu_ende=28.4, bleu_enfr=41.8, flops_ende=2.3e19, flops_enfr=2.3e19),
    BASE,
    _variation("(A)", "h1", 5.29, 24.9, h=1, d_k=512, d_v=512),
    _variation("(A)", "h4", 5.00, 25.5, h=4, d_k=128, d_v=128),
    _variation("(A)", "h16", 4.91, 25.8, h=16, d_k=32, d_v=32),
    _variation("(A)", "h32", 5.01, 25.4, h=32, d_k=16, d_v=16),
    _variation("(B)", "k128", 5.16, 25.1, 58, d_k=16),
    _variation("(B)", "k256", 5.01, 25.4, 60, d_k=32),
    _variation("(C)", "l2", 6.11, 23.7, 36, n=2),
    _variation("(C)", "l4", 5.19, 25.3, 50, n=4),
    _variation("(C)", "l8", 4.88, 25.5, 80, n=8),
    _variation("(C)", "hs256", 5.75, 24.5, 28, d_model=256, d_k=32, d_v=32),
    _variation("(C)", "hs1024", 4.66, 26.0, 168, d_model=1024, d_k=128, d_v=128),
    _variation("(C)", "ff1024", 5.12, 25.4, 53, d_ff=1024),
    _variation("(C)", "ff4096", 4.75, 26.2, 90, d_ff=4096),
    _variation("(D)", "dr0", 5.77, 24.6, p_drop=0.0),
    _variation("(D)", "dr2", 4.95, 25.5, p_drop=0.2),
    _variation("(D)", "ls0", 4.67, 25.3, eps_ls=0.0),
    _variation("(D)", "ls2", 5.47, 25.7, eps_ls=0.2),
    _variation("(E)", "pos_emb", 4.92, 25.7, note="learned positions"),
    BIG,
    _parser("Vinyals & Kaiser et al. (2014)", "WSJ only", 88.3),
    _parser("Petrov et al. (2006)", "WSJ only", 90.4),
    _parser("Zhu et al. (2013)", "WSJ only", 90.4),
    _parser("Dyer et al. (2016), discriminative", "WSJ only", 91.7),
    Row(4, "Transformer (4 layers)", "transformer_parsing_4layer", corpus=PARSING, vocab_size=16_000,
        training="WSJ only", f1=91.3),
    _parser("Zhu et al. (2013)", "semi-supervised", 91.3),
    _parser("Huang & Harper (2009)", "semi-supervised", 91.3),
    _parser("McClosky et al. (2006)", "semi-supervised", 92.1),
    _parser("Vinyals & Kaiser et al. (2014)", "semi-supervised", 92.1),
    Row(4, "Transformer (4 layers)", "transformer_parsing_4layer_semi", corpus=PARSING_SEMI, vocab_size=32_000,
        training="semi-supervised", f1=92.7),
    _parser("Luong et al. (2015)", "multi-task", 93.0),
    _parser("Dyer et al. (2016)", "generative", 93.3),
)  # fmt: skip
"""All rows of Tables 2, 3 and 4, in the paper's order."""


@dataclass(frozen=True)
class Published:
    """Published facts about a single system of Table 2, for one language pair. None marks a fact that we do not know.

    Attributes:
        parameters: number of parameters, rounded as in the publication.
        tokens: number of target tokens in the whole training run, in the units of our vocabulary. If a publication
            states sentence pairs, they are multiplied by the corpus's mean length, which is an estimate.
    """

    parameters: int | None = None
    tokens: float | None = None


PUBLISHED = {
    ("ByteNet", EN_DE.problem): Published(),
    # Zhou et al. 2016, section 4.3: 10 days, and nearly 1.5 days for a pass over the 36 M sentence pairs.
    ("Deep-Att + PosUnk", EN_FR.problem): Published(tokens=10 / 1.5 * 36e6 * EN_FR.target_length),
    # Shazeer et al. 2017, tables 2 and 3. Wu et al. 2016, section 8.3: the learning rate is halved every 200,000 steps,
    # from step 1.2 M to step 2.0 M. A step has 128 sentence pairs.
    ("GNMT + RL", EN_DE.problem): Published(278 * 10**6),
    ("GNMT + RL", EN_FR.problem): Published(278 * 10**6, 2.0e6 * 128 * EN_FR.target_length),
    ("ConvS2S", EN_DE.problem): Published(216 * 10**6),  # Wu et al. 2019
    ("ConvS2S", EN_FR.problem): Published(),
    ("MoE", EN_DE.problem): Published(8_700 * 10**6),  # Shazeer et al. 2017, tables 2 and 3
    ("MoE", EN_FR.problem): Published(8_700 * 10**6),
    ("Transformer (base)", EN_DE.problem): Published(BASE.parameters, 100_000 * TOKENS_PER_STEP),
    ("Transformer (base)", EN_FR.problem): Published(tokens=100_000 * TOKENS_PER_STEP),
    ("Transformer (big)", EN_DE.problem): Published(BIG.parameters, 300_000 * TOKENS_PER_STEP),
    ("Transformer (big)", EN_FR.problem): Published(tokens=300_000 * TOKENS_PER_STEP),
}
"""Published facts by first cell of the row in Table 2 and name of the problem, in the paper's order."""


def find_hparams_set(row: str, problem: str) -> str:
    """Returns the name of the hparams set that reproduces a row on a problem.

    On the problem wmt_enfr, row "big" has the set transformer_big_enfr; on any other problem, transformer_big.

    Args:
        row: name of an hparams set in `ROWS`, with or without `PREFIX`.
        problem: registered name of the problem.

    Raises UserError if no row has that set.
    """
    enfr_sets = {row.hparams_set: row.hparams_set_enfr for row in ROWS if row.hparams_set_enfr}
    names = {experiment.hparams_set for row in ROWS for experiment in row.experiments()}
    name = row if row in names else PREFIX + row.removeprefix(PREFIX)
    if name not in names:
        raise unknown("row", row, names if row.startswith(PREFIX) else [name.removeprefix(PREFIX) for name in names])
    return enfr_sets.get(name, name) if problem == EN_FR.problem else name


def printed_figures(hparams_set: str, problem: str) -> dict[str, float]:
    """Returns the paper's figures for an hparams set on a problem. Keys are "steps", "perplexity" and test sets' names.

    The paper's scores on newstest2014 have the key "wmt14/full", the test set with all 3,003 pairs; see docs/data.md.
    """
    figures: list[tuple[str, float | None]] = []
    for row in ROWS:
        if (row.hparams_set, row.corpus.problem) == (hparams_set, problem):
            steps = row.steps or (BASE.steps if row.table == 3 else None)  # an empty cell means base's value
            bleu = row.bleu_enfr if row.corpus == EN_FR else row.bleu_ende
            figures += [("steps", steps), ("perplexity", row.perplexity)]
            figures += [("wmt13", row.bleu_dev), ("wmt14/full", bleu), ("test", row.f1)]
        if (row.hparams_set_enfr, EN_FR.problem) == (hparams_set, problem):
            figures += [("steps", row.steps), ("wmt14/full", row.bleu_enfr)]
    return {name: figure for name, figure in figures if figure is not None}
