"""Parsing with all programs, from the folder of a treebank to scored trees."""

from pathlib import Path

from programs import LOOKUP, SMALL, succeed
from t2t_repro.files.textfile import read_lines
from t2t_repro.parsing.trees import read_trees
from treebanks import write_treebank


def test_a_treebank_becomes_scored_trees(tmp_path: Path) -> None:
    write_treebank(tmp_path / "tmp")
    data = tmp_path / "data"
    model = tmp_path / "model"
    parsed = tmp_path / "parsed"
    words, gold = (data / f"wsj_parsing.test.{end}" for end in ("words", "trees"))
    for program, *flags in (
        (
            "datagen",
            "--problem=wsj_parsing",
            f"--tmp_dir={tmp_path / 'tmp'}",
            f"--data_dir={data}",
            "--vocab_size=400",
            "--train_sections=02",
        ),
        (
            "trainer",
            "--problem=wsj_parsing",
            "--hparams_set=transformer_tiny",
            f"--hparams={SMALL},num_last_checkpoints=5",
            f"--data_dir={data}",
            f"--output_dir={model}",
            "--train_steps=6",
            "--local_eval_frequency=1",
            "--eval_decode_lines=0",
            *LOOKUP,
        ),
        (
            "avg-checkpoints",
            f"--output_dir={model}",
            "--nocompare",
            LOOKUP[0],
        ),  # 5 checkpoints, as the hparams say
        (
            "decoder",
            f"--output_dir={model}",
            f"--decode_from_file={words}",
            f"--decode_to_file={parsed}",
            "--decode_hparams=beam_size=2,extra_length=10",
            LOOKUP[0],
        ),
        ("evalb", f"--gold={gold}", f"--test={parsed}"),
    ):
        result = succeed(program, *flags)
        if program == "avg-checkpoints":
            assert result.stderr.count("model.ckpt-") == 1 + 5
        if program == "decoder":
            # T2t-decoder reports the number of trees that it repaired.
            assert "trees" in result.stderr
    sentences = [" ".join(leaf.word for leaf in tree.leaves()) for tree in read_trees(str(parsed))]
    assert sentences == list(read_lines(str(words)))
    assert "Number of Valid sentence  =      5" in result.stdout
