"""Tests that COMET equals comet-score's own figures, and the significance of its differences."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from programs import error, succeed, write_lines
from t2t_repro.metrics.comet import Comet
from t2t_repro.metrics.significance import compare

PROGRAM = shutil.which("comet-score") or ""
MODEL = """
import sys, torch
from pathlib import Path
from comet.models import RegressionMetric
from pytorch_lightning import Trainer
from pytorch_lightning.core.saving import save_hparams_to_yaml
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizerFast
folder = Path(sys.argv[1])
(folder / "checkpoints").mkdir()
pieces = ["<s>", "<pad>", "</s>", "<unk>", *map(chr, range(33, 127)), "\\u2581", "<mask>"]
pieces_with_scores = [(piece, -float(number)) for number, piece in enumerate(pieces)]
tokenizer = Tokenizer(models.Unigram(pieces_with_scores, unk_id=3))
tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
XLMRobertaTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder / "encoder")
sizes = {"hidden_size": 16, "intermediate_size": 16}
sizes |= {"num_hidden_layers": 1, "num_attention_heads": 1}
config = XLMRobertaConfig(vocab_size=len(pieces), initializer_range=0.5, **sizes)
torch.manual_seed(1)
XLMRobertaModel(config, add_pooling_layer=False).save_pretrained(folder / "encoder")
model = RegressionMetric(pretrained_model=str(folder / "encoder"), hidden_sizes=[16])
trainer = Trainer(accelerator="cpu", logger=False)
trainer.strategy.connect(model)
trainer.save_checkpoint(folder / "checkpoints" / "model.ckpt", weights_only=True)
save_hparams_to_yaml(folder / "hparams.yaml", model.hparams)
"""
"""Writes the folder of a COMET model with random weights."""


@pytest.mark.skipif(not PROGRAM, reason="comet-score is not on PATH")
def test_scores_equal_those_of_comet_score(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    subprocess.run(
        [Path(PROGRAM).resolve().with_name("python"), "-c", MODEL, folder],
        check=True,
        capture_output=True,
    )
    texts = {"s": ["a dog", "two\u2028cats", "no"], "r": ["ein Hund", "zwei Katzen", "nein"]}
    texts |= {"a": ["der Hund", "Katzen", "ja"], "b": ["ein Hund", "zwei\u0085Katzen", "na ja"]}
    s, r, a, b = (write_lines(tmp_path / name, lines) for name, lines in texts.items())
    command = f"{PROGRAM} -s {s} -r {r} -t {a} {b} --model {folder}/checkpoints/model.ckpt"
    expected = subprocess.run(
        [*command.split(), "--only_system"], capture_output=True, text=True, check=True
    ).stdout
    flags = [f"--reference={r}", f"--source={s}", "--metrics=comet", f"--comet_model={folder}"]
    for path in (a, b):
        [expected_score] = re.findall(rf"^{path}\t.* (\S+)$", expected, re.MULTILINE)
        line = succeed("bleu", f"--translation={path}", *flags).stdout
        score, label, signature = line.split()[:3]
        assert float(score) == pytest.approx(100 * float(expected_score), abs=0.0101)
        assert label == "COMET" and signature.startswith("nrefs:1|model:model|version:2.")


def test_a_comparison_has_the_means_of_the_lines_and_names_the_model() -> None:
    line_scores = [[0.5, 0.31, 0.77], [0.72, 0.4, 0.71]]
    texts = [[f"{name} {number}" for number in range(3)] for name in "ab"]
    comet = Comet(texts, line_scores, model="tiny")
    rows, signature = compare(dict(zip("ab", texts, strict=True)), [texts[0]], comet)
    assert [row.score for row in rows] == pytest.approx(
        [100 * sum(line) / 3 for line in line_scores]
    )
    assert signature == "nrefs:1|bs:1000|ar:10000|seed:12345|model:tiny"
    assert rows[1].randomization_p == pytest.approx(2 / 8, abs=0.02)  # 2 of 8 exchanges differ more


def test_a_missing_program_and_a_missing_model_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_lines(tmp_path / "x", ["a"])
    flags = [f"--{name}={text}" for name in ("translation", "reference", "source")]
    flags += ["--metrics=comet", f"--comet_model={tmp_path}"]
    if PROGRAM:
        assert f"{tmp_path}/checkpoints/model.ckpt" in error("bleu", *flags)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "pip install unbabel-comet" in error("bleu", *flags)
