"""Measures how fast a vocabulary encodes and decodes lines of text, in one thread.

    python benchmarks/encode_text.py --vocab_file=M/vocab.translate_ende_wmt32k.32768.subwords
    --lines=a.en,a.de

Prints lines per second of processor time.
"""

from __future__ import annotations

import time

from absl import app, flags

from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.files.textfile import read_lines

VOCAB_FILE = flags.DEFINE_string("vocab_file", None, "vocabulary", required=True)
LINES = flags.DEFINE_list("lines", None, "text files", required=True)


def main(argv: list[str]) -> None:
    """Encodes and decodes all lines once, and compares the decoded lines with the lines."""
    vocabulary = load_vocabulary(VOCAB_FILE.value)
    lines = [line for path in LINES.value for line in read_lines(path)]
    start = time.process_time()
    ids = vocabulary.encode(lines, num_threads=1)
    middle = time.process_time()
    decoded = vocabulary.decode(ids)
    end = time.process_time()
    characters, tokens = (sum(map(len, values)) / len(lines) for values in (lines, ids))
    print(f"{len(lines):,} lines of {characters:.0f} characters and {tokens:.1f} ids")
    print(
        f"encoding: {len(lines) / (middle - start):,.0f} lines/s, decoding: "
        f"{len(lines) / (end - middle):,.0f} lines/s"
    )
    print(f"decoded lines that differ: {sum(a != b for a, b in zip(lines, decoded, strict=True))}")


if __name__ == "__main__":
    app.run(main)
