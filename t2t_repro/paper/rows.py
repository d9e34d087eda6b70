"""The rows of the paper's Tables 2, 3 and 4: the figures that the paper prints, and our hparams set
for each row.

The figures are from Vaswani et al. 2017 (arXiv 1706.03762v5).
"""

from dataclasses import dataclass
from typing import Any

from t2t_repro.errors import unknown

PREFIX = "transformer_"
"""Prefix of the names of the Transformer's hparams sets. Users of t2t-reproduce may omit it in
--row.
"""
SUSTAINED_TFLOPS = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}
"""Sustained single-precision TFLOPS (10^12 operations per second) of GPUs, from a footnote in
section 6.1.
"""
TOKENS_PER_STEP = 25_000
"""Number of target tokens in a training step of the paper's models (section 5.1)."""


def flops_by_time(seconds: float, gpu_count: int, tflops: float) -> float:
    """Returns the operations of a training run by Table 2's method: time x number of GPUs x
    sustained operations/s.
    """
    return seconds * gpu_count * tflops * 1e12


@dataclass(frozen=True)
class Corpus:
    """A training corpus: the name of the problem, and mean numbers of tokens in a sentence with its
    end token.
    """

    problem: str
    source_length: int
    target_length: int


# Mean lengths are estimates: EN-DE has about 130 M tokens in 4.5 M sentences, EN-FR about 1.1 G in
# 36 M. Source and target have the same length, because a batch of the paper has 25,000 source and
# 25,000 target tokens (section 5.1).
EN_DE = Corpus("wmt_ende", 29, 29)
EN_FR = Corpus("wmt_enfr", 31, 31)
# 26 words of English with a mean of 5.8 characters, including spaces.
EN_DE_CHARACTERS = Corpus("wmt_ende", 150, 150)
# These mean lengths were measured on the treebank's free sample with a vocabulary of 8,000 entries.
PARSING = Corpus("wsj_parsing", 31, 63)
PARSING_SEMI = Corpus("wsj_parsing_semi", 31, 63)

# Vocabulary sizes for counting parameters. The paper states about 37,000 entries for EN-DE (section
# 5.1), but no single size reproduces all parameter counts in Table 3: big needs 35,368 to 36,344
# entries, all other rows 41,004 to 41,208.
BASE_VOCABULARY = 41_100
BIG_VOCABULARY = 36_000
EN_FR_VOCABULARY = 32_000


@dataclass(frozen=True)
class Experiment:
    """A training run of one hparams set on one corpus. None marks a published fact that we do not
    know.
    """

    hparams_set: str
    """Registered name of our hparams set."""
    corpus: Corpus
    vocab_size: int
    """Size of the shared vocabulary, for counting parameters and operations. It is published for
    our parsers and for the systems other than the Transformer, except Deep-Att.
    """
    parameters: int | None = None
    """Published number of parameters of the single system, rounded as in the publication."""
    tokens: float | None = None
    """Published number of target tokens in the whole training run, in the units of our vocabulary.
    If a publication states sentence pairs, they are multiplied by the corpus's mean length, which
    is an estimate.
    """


@dataclass(frozen=True)
class Row:
    """One row of a table in the paper."""

    table: int
    """Number of the table."""
    name: str
    """Text of the row's first cell, for example "(A)" or "Transformer (big)"."""
    figures: dict[str, Any]
    """Figures that the paper prints, by the names of columns of `tables.COLUMNS` without "paper_",
    and the number of training "steps" (section 5.2). A figure that Table 3 omits has base's value.
    """
    experiments: tuple[Experiment, ...] = ()
    """Our experiments for this row: none, as for ensembles, one, or in Table 2 one for each
    language pair.
    """


def _variation(
    row: str, name: str, perplexity: float, bleu_dev: float, **figures: float | str
) -> Row:
    """Returns one of Table 3's rows (A) to (E), which differs from base in `figures`."""
    measured = {"perplexity": perplexity, "bleu_dev": bleu_dev}
    return Row(3, row, measured | figures, (Experiment(PREFIX + name, EN_DE, BASE_VOCABULARY),))


BASE_FIGURES: dict[str, Any] = {
    "n": 6,
    "d_model": 512,
    "d_ff": 2048,
    "h": 8,
    "d_k": 64,
    "d_v": 64,
    "p_drop": 0.1,
    "eps_ls": 0.1,
    "steps": 100_000,
    "perplexity": 4.92,
    "bleu_dev": 25.8,
    "parameters": 65_000_000,
}
BIG_FIGURES = {
    "n": 6, "d_model": 1024, "d_ff": 4096, "h": 16, "p_drop": 0.3,
    "steps": 300_000, "perplexity": 4.33, "bleu_dev": 26.4, "parameters": 213_000_000,
}  # fmt: skip

ROWS = (
    Row(2, "ByteNet", {"bleu_ende": 23.75}, (Experiment("bytenet", EN_DE_CHARACTERS, 323),)),
    Row(
        2,
        "Deep-Att + PosUnk",
        {"bleu_enfr": 39.2, "flops_enfr": 1.0e20},
        # Zhou et al. 2016, section 4.3: 10 days, and nearly 1.5 days for a pass over the 36 M
        # sentence pairs.
        (
            Experiment(
                "deep_att", EN_FR, EN_FR_VOCABULARY, tokens=10 / 1.5 * 36e6 * EN_FR.target_length
            ),
        ),
    ),
    Row(
        2,
        "GNMT + RL",
        {"bleu_ende": 24.6, "bleu_enfr": 39.92, "flops_ende": 2.3e19, "flops_enfr": 1.4e20},
        # Shazeer et al. 2017, tables 2 and 3. Wu et al. 2016, section 8.3: the learning rate is
        # halved every 200,000 steps, from step 1.2 M to step 2.0 M. A step has 128 sentence pairs.
        (
            Experiment("gnmt", EN_DE, 32_000, 278 * 10**6),
            Experiment(
                "gnmt", EN_FR, EN_FR_VOCABULARY, 278 * 10**6, 2.0e6 * 128 * EN_FR.target_length
            ),
        ),
    ),
    Row(
        2,
        "ConvS2S",
        {"bleu_ende": 25.16, "bleu_enfr": 40.46, "flops_ende": 9.6e18, "flops_enfr": 1.5e20},
        (
            Experiment("convs2s_ende", EN_DE, 40_000, 216 * 10**6),  # Wu et al. 2019
            Experiment("convs2s_enfr", EN_FR, 40_000),
        ),
    ),
    Row(
        2,
        "MoE",
        {"bleu_ende": 26.03, "bleu_enfr": 40.56, "flops_ende": 2.0e19, "flops_enfr": 1.2e20},
        # Shazeer et al. 2017, tables 2 and 3
        (
            Experiment("moe", EN_DE, 32_000, 8_700 * 10**6),
            Experiment("moe", EN_FR, EN_FR_VOCABULARY, 8_700 * 10**6),
        ),
    ),
    Row(2, "Deep-Att + PosUnk ensemble", {"bleu_enfr": 40.4, "flops_enfr": 8.0e20}),
    Row(
        2,
        "GNMT + RL ensemble",
        {"bleu_ende": 26.30, "bleu_enfr": 41.16, "flops_ende": 1.8e20, "flops_enfr": 1.1e21},
    ),
    Row(
        2,
        "ConvS2S ensemble",
        {"bleu_ende": 26.36, "bleu_enfr": 41.29, "flops_ende": 7.7e19, "flops_enfr": 1.2e21},
    ),
    # We chose the sizes of the vocabularies of the Transformer's translation, with which our
    # parameter counts round to the paper's.
    Row(
        2,
        "Transformer (base)",
        {
            "steps": 100_000,
            "bleu_ende": 27.3,
            "bleu_enfr": 38.1,
            "flops_ende": 3.3e18,
            "flops_enfr": 3.3e18,
        },
        (
            Experiment(
                "transformer_base", EN_DE, BASE_VOCABULARY, 65 * 10**6, 100_000 * TOKENS_PER_STEP
            ),
            Experiment(
                "transformer_base", EN_FR, EN_FR_VOCABULARY, tokens=100_000 * TOKENS_PER_STEP
            ),
        ),
    ),
    Row(
        2,
        "Transformer (big)",
        {
            "steps": 300_000,
            "bleu_ende": 28.4,
            "bleu_enfr": 41.8,
            "flops_ende": 2.3e19,
            "flops_enfr": 2.3e19,
        },
        (
            Experiment(
                "transformer_big", EN_DE, BIG_VOCABULARY, 213 * 10**6, 300_000 * TOKENS_PER_STEP
            ),
            Experiment(
                "transformer_big_enfr", EN_FR, EN_FR_VOCABULARY, tokens=300_000 * TOKENS_PER_STEP
            ),
        ),
    ),
    Row(3, "base", BASE_FIGURES, (Experiment("transformer_base", EN_DE, BASE_VOCABULARY),)),
    _variation("(A)", "h1", 5.29, 24.9, h=1, d_k=512, d_v=512),
    _variation("(A)", "h4", 5.00, 25.5, h=4, d_k=128, d_v=128),
    _variation("(A)", "h16", 4.91, 25.8, h=16, d_k=32, d_v=32),
    _variation("(A)", "h32", 5.01, 25.4, h=32, d_k=16, d_v=16),
    _variation("(B)", "k128", 5.16, 25.1, d_k=16, parameters=58_000_000),
    _variation("(B)", "k256", 5.01, 25.4, d_k=32, parameters=60_000_000),
    _variation("(C)", "l2", 6.11, 23.7, n=2, parameters=36_000_000),
    _variation("(C)", "l4", 5.19, 25.3, n=4, parameters=50_000_000),
    _variation("(C)", "l8", 4.88, 25.5, n=8, parameters=80_000_000),
    _variation("(C)", "hs256", 5.75, 24.5, d_model=256, d_k=32, d_v=32, parameters=28_000_000),
    _variation("(C)", "hs1024", 4.66, 26.0, d_model=1024, d_k=128, d_v=128, parameters=168_000_000),
    _variation("(C)", "ff1024", 5.12, 25.4, d_ff=1024, parameters=53_000_000),
    _variation("(C)", "ff4096", 4.75, 26.2, d_ff=4096, parameters=90_000_000),
    _variation("(D)", "dr0", 5.77, 24.6, p_drop=0.0),
    _variation("(D)", "dr2", 4.95, 25.5, p_drop=0.2),
    _variation("(D)", "ls0", 4.67, 25.3, eps_ls=0.0),
    _variation("(D)", "ls2", 5.47, 25.7, eps_ls=0.2),
    _variation("(E)", "pos_emb", 4.92, 25.7, note="learned positions"),
    Row(3, "big", BIG_FIGURES, (Experiment("transformer_big", EN_DE, BIG_VOCABULARY),)),
    Row(4, "Vinyals & Kaiser et al. (2014)", {"training": "WSJ only", "f1": 88.3}),
    Row(4, "Petrov et al. (2006)", {"training": "WSJ only", "f1": 90.4}),
    Row(4, "Zhu et al. (2013)", {"training": "WSJ only", "f1": 90.4}),
    Row(4, "Dyer et al. (2016), discriminative", {"training": "WSJ only", "f1": 91.7}),
    Row(
        4,
        "Transformer (4 layers)",
        {"training": "WSJ only", "f1": 91.3},
        (Experiment("transformer_parsing_4layer", PARSING, 16_000),),
    ),
    Row(4, "Zhu et al. (2013)", {"training": "semi-supervised", "f1": 91.3}),
    Row(4, "Huang & Harper (2009)", {"training": "semi-supervised", "f1": 91.3}),
    Row(4, "McClosky et al. (2006)", {"training": "semi-supervised", "f1": 92.1}),
    Row(4, "Vinyals & Kaiser et al. (2014)", {"training": "semi-supervised", "f1": 92.1}),
    Row(
        4,
        "Transformer (4 layers)",
        {"training": "semi-supervised", "f1": 92.7},
        (Experiment("transformer_parsing_4layer_semi", PARSING_SEMI, 32_000),),
    ),
    Row(4, "Luong et al. (2015)", {"training": "multi-task", "f1": 93.0}),
    Row(4, "Dyer et al. (2016)", {"training": "generative", "f1": 93.3}),
)
"""All rows of Tables 2, 3 and 4, in the paper's order."""


def find_hparams_set(row: str, problem: str) -> str:
    """Returns the name of the hparams set that reproduces a row on a problem.

    `row` is the name of an hparams set in `ROWS`, with or without `PREFIX`; UserError for another
    name. On the problem wmt_enfr, row "big" has the set transformer_big_enfr; on any other problem,
    transformer_big.
    """
    names = {ours.hparams_set for paper_row in ROWS for ours in paper_row.experiments}
    name = row if row in names else PREFIX + row.removeprefix(PREFIX)
    if name not in names:
        if not row.startswith(PREFIX):
            names = {name.removeprefix(PREFIX) for name in names}
        raise unknown("row", row, names)
    for paper_row in ROWS:
        sets = [ours.hparams_set for ours in paper_row.experiments]
        # A row with two experiments has EN-DE and EN-FR.
        if problem == EN_FR.problem and len(sets) == 2 and name == sets[0]:
            return sets[1]
    return name


def printed_figures(hparams_set: str, problem: str) -> dict[str, float]:
    """Returns the paper's figures for an hparams set on a problem, under "steps", "perplexity" and
    the names of test sets.

    The paper's scores on newstest2014 have the key "wmt14/full", the test set with all 3,003 pairs;
    see docs/data.md.
    """
    bleu = "bleu_enfr" if problem == EN_FR.problem else "bleu_ende"
    names = {
        "perplexity": "perplexity",
        "bleu_dev": "wmt13",
        bleu: "wmt14/full",
        "f1": "test",
        "steps": "steps",
    }
    printed: dict[str, float] = {}
    for row in ROWS:
        pairs = [(ours.hparams_set, ours.corpus.problem) for ours in row.experiments]
        if (hparams_set, problem) not in pairs:
            continue
        # Figures that Table 3 omits are those of base.
        figures = BASE_FIGURES | row.figures if row.table == 3 else row.figures
        printed |= {names[name]: figure for name, figure in figures.items() if name in names}
    return printed
