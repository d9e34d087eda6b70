"""After a user's mistake, a program prints one line with the remedy, exits with code 2 and leaves
no partial file.
"""

from pathlib import Path

import pytest

from programs import TrainedModel, refused, run, write_pairs

MODEL_PROGRAMS = ("decoder", "exporter", "avg-checkpoints")
DATAGEN = "datagen --problem=text_files --data_dir={tmp}/d --vocab_size=300"
TRAINER = (
    "trainer --problem=text_files --data_dir={data} --output_dir={tmp}/m "
    "--hparams_set=transformer_tiny"
)
MODEL = "--output_dir={model}"
MISTAKES = [
    (f"{DATAGEN} --train={{dev}} --dev={{dev}} --vocab_sise=300", "vocab_sise", "vocab_size"),
    ("datagen", "--problem is required"),
    (
        f"{TRAINER} --vocab_size=341",
        "--vocab_size=341: the data in {data} was made with --vocab_size=340; omit the",
    ),
    (f"{TRAINER} --best_by=f1", "--best_by", "bleu"),
    (f"{TRAINER} --best_by=bleu --eval_decode_lines=0", "--best_by=bleu", "--eval_decode_lines="),
    (
        f"{TRAINER} --max_checkpoints_by_score=2 --save_checkpoints_secs=9",
        "--max_checkpoints_by_score",
        "omit",
    ),
    (f"{TRAINER} --freeze=embeding --dry_run", "embeding", "embedding"),
    (f"{TRAINER} --generate_data --dry_run", "--generate_data has no effect"),
    (f"decoder {MODEL}", "standard input:2: not UTF-8"),
    (
        f"avg-checkpoints {MODEL} --num_best_checkpoints=99",
        "--num_best_checkpoints=99",
        "--num_last_checkpoints",
    ),
    (f"avg-checkpoints {MODEL} --nocompare --data_dir=D", "--data_dir is for the comparison"),
    *((program, "--output_dir is required") for program in MODEL_PROGRAMS),
    *(
        (f"{program} --output_dir={{tmp}}", "not a model folder", "t2t-trainer")
        for program in MODEL_PROGRAMS
    ),
]
"""For each mistake: the command line, and what the message must name: the file or flag, and the
cure.
"""


@pytest.fixture(scope="module")
def places(trained: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Writes the files of the commands in `MISTAKES`. Returns the names that the commands use for
    their paths.
    """
    tmp = tmp_path_factory.mktemp("mistakes")
    dev = write_pairs(tmp, "dev", range(20))
    return {"dev": dev, "tmp": str(tmp), "data": str(trained.data), "model": str(trained.folder)}


@pytest.mark.parametrize(("command", "words"), [(first, rest) for first, *rest in MISTAKES])
def test_a_mistake_is_named_with_its_cure(
    command: str, words: list[str], places: dict[str, str]
) -> None:
    result = run(*command.format(**places).split(), input="one\nz\udcfcei\n")
    refused(result, *(word.format(**places) for word in words))
    assert result.stdout == ""
    for name in ("d", "m"):
        assert not Path(places["tmp"], name).exists()
