"""Published facts about the single systems in Table 2: their parameters, and their training time, hardware and tokens.

All facts are from the systems' own publications or, if `Published.source` says so, from later ones that state them.
"""

from __future__ import annotations

from dataclasses import dataclass

from t2t_repro.paper import rows
from t2t_repro.paper.rows import EN_DE, EN_FR, TOKENS_PER_STEP


@dataclass(frozen=True)
class Published:
    """Published facts about a system for one language pair. None marks a fact for which we know no publication.

    Attributes:
        source: the publications, with their sections or tables.
        parameters: number of parameters, rounded as in the publication.
        days: training time in days.
        gpu_count: number of GPUs.
        gpu: type of the GPUs, a key of `rows.SUSTAINED_TFLOPS`.
        target_tokens: number of target tokens in the whole training run, in the units of our vocabulary. If a
            publication states sentence pairs, they are multiplied by the corpus's mean length, which is an estimate.
    """

    source: str
    parameters: int | None = None
    days: float | None = None
    gpu_count: int = 0
    gpu: str = ""
    target_tokens: float | None = None

    @property
    def flops_by_time(self) -> float | None:
        """Operations of the training run by Table 2's method: time x number of GPUs x sustained operations/s."""
        if self.days is None:
            return None
        return rows.flops_by_time(self.days * 24 * 3600, self.gpu_count, rows.SUSTAINED_TFLOPS[self.gpu])


ENDE, ENFR = EN_DE.problem, EN_FR.problem
SHAZEER_ENDE, SHAZEER_ENFR = "Shazeer et al. 2017, table 3", "Shazeer et al. 2017, table 2"
PUBLISHED = {
    ("ByteNet", ENDE): Published("Kalchbrenner et al. 2016"),
    # The publication states 4 to 8 machines with 4 GPUs each. Table 2's FLOPs agree with 8 machines. A pass over the
    # 36 M sentence pairs takes nearly 1.5 days.
    ("Deep-Att + PosUnk", ENFR): Published(
        "Zhou et al. 2016, section 4.3",
        days=10, gpu_count=8 * 4, gpu="K40", target_tokens=10 / 1.5 * 36e6 * EN_FR.target_length,
    ),
    ("GNMT + RL", ENDE): Published(SHAZEER_ENDE, parameters=278 * 10**6, days=1, gpu_count=96, gpu="K80"),
    # The learning rate is halved every 200,000 steps, from step 1.2 M to step 2.0 M. A step has 128 sentence pairs.
    ("GNMT + RL", ENFR): Published(
        f"Wu et al. 2016, section 8.3; {SHAZEER_ENFR}",
        parameters=278 * 10**6, days=6, gpu_count=96, gpu="K80", target_tokens=2.0e6 * 128 * EN_FR.target_length,
    ),
    ("ConvS2S", ENDE): Published(
        "Gehring et al. 2017, section 5.1; Wu et al. 2019",
        parameters=216 * 10**6, days=18.5, gpu_count=1, gpu="M40",
    ),
    ("ConvS2S", ENFR): Published("Gehring et al. 2017, section 5.1", days=37, gpu_count=8, gpu="M40"),
    ("MoE", ENDE): Published(SHAZEER_ENDE, parameters=8_700 * 10**6, days=1, gpu_count=64, gpu="K40"),
    ("MoE", ENFR): Published(SHAZEER_ENFR, parameters=8_700 * 10**6, days=6, gpu_count=64, gpu="K40"),
} | {
    (f"Transformer ({row.row})", problem): Published(
        "Vaswani et al. 2017, section 5 and table 3",
        parameters=row.parameters if problem == ENDE else None,
        days=(row.hours or 0) / 24, gpu_count=rows.GPU_COUNT, gpu=rows.HARDWARE,
        target_tokens=(row.steps or 0) * TOKENS_PER_STEP,
    )
    for row in (rows.BASE, rows.BIG)
    for problem in (ENDE, ENFR)
}  # fmt: skip
"""Published facts by first cell of the row in Table 2 and name of the problem, in the paper's order."""

REMARKS = {
    "ByteNet": (
        "We know no published number of parameters or amount of training. A token is a character, so a sentence has "
        "about five times as many tokens as in the other systems."
    ),
    "Deep-Att": (
        "We know no published number of parameters. The publication's vocabularies hold words; ours has 32,000 "
        "wordpieces, so its embeddings and softmax are smaller. Ours has no peephole connections. Tokens: 10 days "
        "at nearly 1.5 days per pass over 36 M pairs, of 31 tokens each, which is our estimate. GPUs: 4 to 8 machines "
        "with 4 each; the paper's FLOPs agree with 8."
    ),
    "GNMT": (
        "We cannot explain why our formula gives 1% more parameters: the publication does not list its matrices. "
        "Shazeer et al. count 214 M multiplications per token; our formula gives 215 M. EN-FR tokens: 2.0 M steps of "
        "128 pairs, of 31 tokens each, which is our estimate. We assume that the steps of all asynchronous replicas "
        "count; the publication does not say it. No number of steps is published for EN-DE. BLEU is after refinement "
        "by reinforcement learning (RL); the paper's FLOPs cover only the training before."
    ),
    "ConvS2S": (
        "Our formula gives the published number with 43,000 vocabulary entries, to which 40,000 merges can lead, and "
        "1,024 positions instead of 256. The layers are those of the authors' code. In the text of the publication, "
        "EN-DE has narrower layers, with which the model would have 188 M parameters. No number of steps is published. "
        "At the full sustained rate, the paper's FLOPs correspond to 83 passes over 4.5 M pairs in EN-DE, and to "
        "115 passes over 36 M pairs in EN-FR."
    ),
    "MoE": (
        "Our formula gives the published number of parameters. Shazeer et al. count 85 M multiplications per token. "
        "Our formula gives 89 M, of which 4 M are in gating networks that choose from all 2,048 experts at once; "
        "theirs choose in two levels. Batches have about 16,000 words per GPU, but no number of steps is published. "
        "At the full sustained rate, the paper's FLOPs correspond to 286 passes in EN-DE, and to 201 passes in EN-FR."
    ),
    "Transformer": (
        "We chose the sizes of the EN-DE vocabularies so that the numbers of parameters agree. No number is "
        "published for EN-FR, which has 32,000 entries."
    ),
    "Shares": (
        "The paper's FLOPs are what the GPUs could compute in the training time. They include padding, all other "
        "operations and waiting. No publication says how the time divides. LSTM systems probably have lower shares "
        "because LSTMs compute one position after the other, in small products, and because machines exchange "
        "gradients."
    ),
}
"""For each family of systems: why figures differ, and what its publication leaves open."""
