"""Tests a model whose vocabulary another program made, from the data to the served model."""

from pathlib import Path

import tensorflow as tf

from odd_lines import odd_lines
from programs import LOOKUP, SMALL, refused, run, succeed, write_lines, write_pairs
from sentencepieces import trained


def test_a_model_of_spm_train_is_trained_decoded_and_served(tmp_path: Path) -> None:
    (tmp_path / "foreign.model").write_bytes(trained())
    (tmp_path / "cut.model").write_bytes(trained()[:400])
    data = tmp_path / "data"
    folder = tmp_path / "model"
    text = [
        f"--{name}={write_pairs(tmp_path, name, numbers)}"
        for name, numbers in (("train", range(1000, 1200)), ("dev", range(2000, 2010)))
    ]
    datagen = ["datagen", "--problem=text_files", *text, f"--data_dir={data}"]
    refused(run(*datagen, f"--vocab_file={tmp_path / 'cut.model'}"), "cut.model")
    assert not data.exists()
    succeed(*datagen, f"--vocab_file={tmp_path / 'foreign.model'}")
    succeed(
        "trainer",
        "--problem=text_files",
        "--hparams_set=transformer_tiny",
        f"--hparams={SMALL}",
        f"--data_dir={data}",
        f"--output_dir={folder}",
        "--train_steps=20",
        *LOOKUP,
    )
    lines = [line for line in odd_lines(60) if len(line) < 60]
    files = (
        f"--decode_from_file={write_lines(tmp_path / 'in', lines)}",
        f"--decode_to_file={tmp_path / 'out'}",
    )
    model = f"--output_dir={folder}", "--decode_hparams=beam_size=2,extra_length=3", LOOKUP[0]
    succeed("decoder", *model, *files)
    succeed("exporter", *model, f"--export_dir={tmp_path / 'export'}")
    served = tf.saved_model.load(str(tmp_path / "export" / "1")).signatures["serving_default"](
        tf.constant(lines)
    )
    expected = (tmp_path / "out").read_bytes().decode().split("\n")[:-1]
    assert [text.decode() for text in served["outputs"].numpy()] == expected
