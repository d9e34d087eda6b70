"""Parsing as a user does it: from a treebank's folder to scored trees."""

from __future__ import annotations

from pathlib import Path

from programs import MINUTE, run
from t2t_repro.parsing.trees import read_trees
from t2t_repro.textfile import read_lines

WORDS = ("dog", "cat", "bird", "tree", "river")


def write_treebank(folder: Path) -> None:
    """Sections 02, 22 and 23 of small trees."""
    for section, count in (("02", 40), ("22", 5), ("23", 5)):
        (folder / "wsj" / section).mkdir(parents=True)
        nouns = [WORDS[number % 5] for number in range(count)]
        text = "".join(f"( (S (NP-SBJ (DT the) (NN {noun})) (VP (VBZ is)) (. .)) )\n" for noun in nouns)
        (folder / "wsj" / section / f"wsj_{section}01.mrg").write_text(text, "utf-8")


def test_the_road_from_a_treebank_to_scored_trees(tmp_path: Path) -> None:
    write_treebank(tmp_path / "tmp")
    data, model, parsed = tmp_path / "data", tmp_path / "model", tmp_path / "parsed"
    words, gold = (data / f"wsj_parsing.test.{end}" for end in ("words", "trees"))
    for program, *flags in (
        ("datagen", "--problem=wsj_parsing", f"--tmp_dir={tmp_path / 'tmp'}", f"--data_dir={data}", "--vocab_size=400",
         "--train_sections=02"),
        ("trainer", "--problem=wsj_parsing", "--hparams_set=transformer_tiny", f"--hparams={MINUTE}",
         f"--data_dir={data}", f"--output_dir={model}", "--train_steps=6", "--local_eval_frequency=1"),
        ("avg_checkpoints", f"--output_dir={model}"),  # as many as the hparams set says
        ("decoder", f"--output_dir={model}", f"--decode_from_file={words}", f"--decode_to_file={parsed}",
         "--decode_hparams=beam_size=2,extra_length=10"),
        ("evalb", f"--gold={gold}", f"--test={parsed}"),
    ):  # fmt: skip
        result = run(program, *flags)
        assert result.returncode == 0, result.stderr
        if program == "avg_checkpoints":
            assert result.stderr.count("model.ckpt-") == 1 + 5
        if program == "decoder":
            assert "trees" in result.stderr  # the repairs, of which an untrained model's outputs need some
    sentences = [" ".join(leaf.word for leaf in tree.leaves()) for tree in read_trees(str(parsed))]
    assert sentences == list(read_lines(str(words)))
    assert "Number of Valid sentence  =      5" in result.stdout
