"""Compares transformers with t2t-decoder: prints the share of equal greedy outputs, and how far
logits differ.

    python benchmarks/huggingface.py --model=M --lines=FILE [--count=1000]

The script exports the model like t2t-exporter --format=huggingface. It compares the logits of
t2t-decoder's outputs.
"""

from __future__ import annotations

import itertools
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import torch
from absl import app, flags
from transformers import MarianMTModel, MarianTokenizer

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.decoding.translator import Translator
from t2t_repro.files.textfile import read_lines
from t2t_repro.huggingface.export import export_huggingface, piece_table
from t2t_repro.serving.model_card import ModelCard

MODEL = flags.DEFINE_string("model", None, "the model folder", required=True)
LINES = flags.DEFINE_string("lines", None, "text to translate, plain or .gz", required=True)
COUNT = flags.DEFINE_integer(
    "count", 1000, "maximum number of lines to translate; empty lines are skipped"
)


def main(argv: list[str]) -> None:
    folder = ModelFolder(MODEL.value)
    checkpoint = folder.checkpoint()
    vocabulary = folder.vocabulary
    lines = list(
        itertools.islice(
            (line.strip() for line in read_lines(LINES.value) if line.strip()), COUNT.value
        )
    )
    with tempfile.TemporaryDirectory() as export_dir:
        path = export_huggingface(
            folder, checkpoint, export_dir, ModelCard(folder, checkpoint, ("", ""), "", [])
        )
        tokenizer = MarianTokenizer.from_pretrained(path)
        marian = MarianMTModel.from_pretrained(path).eval()
    ours = [
        output.text
        for output in Translator.from_dir(MODEL.value, checkpoint, beam_size=1).translate(lines)
    ]
    model = folder.model(checkpoint)
    theirs = list[str]()
    differences = [0.0]
    pad = marian.config.pad_token_id
    _, ids = piece_table(vocabulary, pad)
    with torch.no_grad():
        for start in range(0, len(lines), 50):
            batch = tokenizer(lines[start : start + 50], return_tensors="pt", padding=True)
            outputs = marian.generate(**batch, num_beams=1, do_sample=False)
            theirs += tokenizer.batch_decode(outputs, skip_special_tokens=True)
        for line, output in zip(lines, ours, strict=True):
            rows = vocabulary.sources.encode([line]), vocabulary.encode([output])
            marian_logits = (
                marian(**tokenizer([line], text_target=[output], return_tensors="pt"))
                .logits[0]
                .numpy()
            )
            logits = np.asarray(model(*map(np.array, rows)))[0][:, ids]
            differences.append(np.abs(np.delete(marian_logits - logits, pad, axis=1)).max())
    different = [
        number
        for number, pair in enumerate(zip(ours, theirs, strict=True), 1)
        if pair[0] != pair[1]
    ]
    shown = f"; not lines {', '.join(map(str, different[:10]))}" if different else ""
    print(f"{checkpoint}: {len(lines) - len(different):,} of {len(lines):,} lines equal{shown}")
    print(f"largest difference of logits: {max(differences):.1e}")


if __name__ == "__main__":
    app.run(main)
