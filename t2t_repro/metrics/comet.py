"""COMET (Rei et al. 2020): a trained model that compares translations with their sources and
references.

comet-score, the program of the package unbabel-comet, runs the model. This package needs older
versions of NumPy and protobuf than TensorFlow does, so it is installed in an environment of its
own.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric, Score, Signature

from t2t_repro.console.progress import say
from t2t_repro.errors import UserError, shortened

PROGRAM = "comet-score"


class Comet(Metric):
    """The mean of comet-score's scores of a translation's lines, times 100, as one of sacreBLEU's
    metrics.
    """

    def __init__(
        self,
        translations: Sequence[Sequence[str]],
        line_scores: Sequence[Sequence[float]],
        **signature: str | None,
    ) -> None:
        super().__init__()
        self._line_scores = dict(zip(map(tuple, translations), line_scores, strict=True))
        self._signature = signature

    def get_signature(self) -> Signature:
        signature = Signature({"num_refs": 1})
        # The version is not that of sacreBLEU.
        signature.info |= {"version": None, **self._signature}
        return signature

    def _extract_corpus_statistics(
        self, hypotheses: Sequence[str], references: Any
    ) -> list[list[float]]:
        return [[score, 1.0] for score in self._line_scores[tuple(hypotheses)]]

    def _aggregate_and_compute(self, stats: list[list[float]]) -> Score:
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    def _compute_score_from_stats(self, stats: Any) -> Score:
        return Score("COMET", 100 * float(stats[0] / stats[1]))

    # sacreBLEU's own metrics compute the statistics of a line with these.
    _preprocess_segment = _extract_reference_info = _compute_segment_statistics = NotImplemented


def comet(
    model: str,
    sources: Sequence[str],
    translations: Sequence[Sequence[str]],
    references: Sequence[str],
) -> Comet:
    """Runs comet-score on translations and returns their scores.

    `model` is the folder of a model that unbabel-comet has downloaded or trained, or its
    checkpoint. Raises UserError if comet-score or the model is missing, or comet-score fails.
    """
    path = shutil.which(PROGRAM)
    if not path:
        raise UserError(
            f"COMET needs the program {PROGRAM}; in another Python environment, run: pip install "
            "unbabel-comet 'setuptools<81'; then add that environment's folder bin to PATH"
        )
    program = Path(path).absolute()
    checkpoint = Path(model if model.endswith(".ckpt") else f"{model}/checkpoints/model.ckpt")
    checkpoint = checkpoint.absolute()
    folder = checkpoint.parent.parent
    for file in (checkpoint, folder / "hparams.yaml"):
        if not file.is_file():
            raise UserError(
                f"--comet_model={model}: no COMET model, because {file} does not exist; give its "
                "folder"
            )
    say(f"{PROGRAM} runs {model}; without a GPU, this may take minutes")
    names = [str(number) for number in range(len(translations))]
    texts = dict(zip(names, translations, strict=True)) | {"s": sources, "r": references}
    with tempfile.TemporaryDirectory() as work:
        for name, lines in texts.items():
            text = "".join(f"{line}\n" for line in lines)
            # A carriage return would end a line of comet-score.
            Path(work, name).write_text(text.replace("\r", " "), encoding="utf-8")
        command = [str(program), "-s", "s", "-r", "r", "-t", *names, "--model", str(checkpoint)]
        command += ["--to_json", "json", "--quiet", "--only_system"]
        # The model's folder lacks the encoder's tokenizer.
        offline = os.environ | {"HF_HUB_OFFLINE": "1"}
        process = subprocess.run(
            command, cwd=work, env=offline, capture_output=True, text=True, check=False
        )
        if process.returncode:
            reason = shortened(process.stderr.strip().rpartition("\n")[2])
            raise UserError(
                f"--comet_model={model}: {PROGRAM} failed: {reason}; docs/scoring.md lists what "
                "it needs"
            )
        rows = json.loads(Path(work, "json").read_text(encoding="utf-8"))
    name = folder.name
    if folder.parent.name == "snapshots":  # in Hugging Face's cache
        name = folder.parents[1].name.removeprefix("models--").replace("--", "/")
    packages = program.resolve().parents[1].glob("lib/python*/*-packages/unbabel_comet-*.dist-info")
    version = next((path.stem.split("-")[1] for path in packages), None)
    line_scores = [list(map(itemgetter("COMET"), rows[number])) for number in names]
    return Comet(translations, line_scores, model=name, version=version)
