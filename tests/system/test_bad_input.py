"""After a user's mistake, a program prints one line with the remedy, exits with code 2 and leaves no partial file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from disks import largest_file
from programs import LOOKUP, SMALL, TrainedModel, refused, run, succeed, write_pairs
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data.records import find_shards, index_path

SET = "--hparams_set=transformer_tiny"
MODEL_PROGRAMS = ("decoder", "exporter", "avg-checkpoints")
DATAGEN = "datagen --problem=text_files --data_dir={tmp}/d --vocab_size=300"
TRAINER = f"trainer --problem=text_files --data_dir={{data}} --output_dir={{tmp}}/m {SET}"
MODEL = "--output_dir={model}"
MISTAKES = [
    (f"{DATAGEN} --train={{tmp}}/a.en,{{tmp}}/no.de --dev={{dev}}", "no.de: no such file"),
    (f"{DATAGEN} --train={{tmp}}/a.en,{{tmp}} --dev={{dev}}", "{tmp}: cannot be read"),
    (f"{DATAGEN} --train={{tmp}}/a.en --dev={{dev}}", "--train=", "name two files"),
    (f"{DATAGEN} --train={{tmp}}/a.gz,{{tmp}}/a.en --dev={{dev}}", "a.gz: cut off or damaged gzip file"),
    (f"{DATAGEN} --train={{tmp}}/a.en,{{tmp}}/longer --dev={{dev}}", "a.en has 50 lines", "longer has 52"),
    (f"{DATAGEN} --train={{dev}} --dev={{tmp}}/a.en,{{tmp}}/longer", "a.en has 50 lines", "longer has 52"),
    (f"{DATAGEN} --train={{tmp}}/a.en,{{tmp}}/latin --dev={{dev}}", "latin:42: not UTF-8", "0xfc", "iconv"),
    (f"{DATAGEN} --train={{tmp}}/empty,{{tmp}}/empty --dev={{dev}}", "no pair is left in its train split"),
    (f"{DATAGEN} --train={{dev}} --dev={{tmp}}/blank,{{tmp}}/blank", "no pair is left in its dev split"),
    (f"{DATAGEN} --train={{dev}} --dev={{dev}} --vocab_size=many", "--vocab_size=many", "int"),
    (f"{DATAGEN} --train={{dev}} --dev={{dev}} --vocab_size=20", "--vocab_size=20", "or more"),
    (f"{DATAGEN} --train={{dev}} --dev={{dev}} --vocab_sise=300", "vocab_sise", "vocab_size"),
    ("datagen --problem=text_file", "unknown problem 'text_file'", "'text_files'"),
    ("datagen", "--problem is required"),
    ("datagen text_files", "unexpected argument 'text_files'"),
    (f"{TRAINER} --vocab_size=341", "--vocab_size=341: the data in {data} was made with --vocab_size=340; omit the"),
    (f"{TRAINER} --vocab_size=341 --dry_run", "--vocab_size=341: the data in {data} was made with --vocab_size=340"),
    (f"{TRAINER} --generate_data --dry_run", "omit --generate_data"),
    (f"{TRAINER} --hparams=max_length=2", "all 1,000 pairs are longer than max_length=2", "max_length=N"),
    (f"{TRAINER} --hparams=hiden_size=32", "'hiden_size'", "'hidden_size'"),
    (f"{TRAINER} --hparams=hidden_size=32.0", "hidden_size=32.0", "int"),
    (f"{TRAINER} --hparams=num_heads=3", "num_heads=3 does not divide"),
    (f"{TRAINER} --model=transfomer", "unknown model 'transfomer'", "'transformer'"),
    (f"{TRAINER} --hparams_set=transformer_tinny", "'transformer_tinny'", "'transformer_tiny'"),
    (f"{TRAINER} --train_steps=x", "train_steps"),
    (f"{TRAINER} --random_seed=4294967296", "--random_seed=4294967296"),
    (f"{TRAINER} --random_seed=-1", "--random_seed=-1"),
    (f"{TRAINER} --data_dir={{others}}", "no data of problem 'text_files'", "holds others", "run t2t-datagen --prob"),
    (f"{TRAINER} {MODEL} --hparams={SMALL},label_smoothing=0.2", "label_smoothing 0.1, not 0.2", "--output_dir"),
    (f"{TRAINER} {MODEL} --hparams={SMALL} --train_steps=70 --random_seed=9", "--random_seed 1, not 9"),
    (f"trainer --problem=numbers_ende --train_size=300 --vocab_size=340 --data_dir={{tmp}}/n {SET} {MODEL} "
     f"--hparams={SMALL}", "numbers_ende", "--output_dir"),
    (f"decoder {MODEL} --decode_hparams=beam=4", "'beam'", "'beam_size'"),
    (f"decoder {MODEL} --checkpoint_path=x", "--checkpoint_path=x"),
    (f"decoder {MODEL} --decode_from_file={{tmp}}/latin --decode_to_file={{tmp}}/m", "latin:42: not UTF-8"),
    (f"decoder {MODEL}", "standard input:2: not UTF-8"),
    (f"avg-checkpoints {MODEL} --num_last_checkpoints=9", "holds 3 checkpoints", "=9"),
    *((f"avg-checkpoints {MODEL} --nocompare --{flag}", f"--{flag.partition('=')[0]} is for the comparison")
      for flag in ("data_dir=D", "eval_steps=0", "eval_decode_lines=5")),
    *((program, "--output_dir is required") for program in MODEL_PROGRAMS),
    *((f"{program} --output_dir={{tmp}}", "not a model folder", "t2t-trainer") for program in MODEL_PROGRAMS),
    *((f"{program} --output_dir={{bare}}", "no checkpoint yet", "t2t-trainer") for program in MODEL_PROGRAMS),
]  # fmt: skip
"""For each mistake: the command line, and what the message must name: the file or flag, and the cure."""


@pytest.fixture(scope="module")
def places(trained: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Writes the files of the commands in `MISTAKES`. Returns the names that the commands use for their paths."""
    tmp = tmp_path_factory.mktemp("mistakes")
    numbers = [f"{number}\n" for number in range(50)]
    texts = {
        "a.en": numbers,
        "a.gz": numbers,
        "longer": [*numbers, "eins\n", "zwei\n"],
        "empty": [],
        "blank": [" \n"] * 3,
    }
    for name, lines in texts.items():
        (tmp / name).write_text("".join(lines))
    (tmp / "latin").write_bytes(b"z\n" * 41 + b"z\xfcei\n" + b"z\n" * 8)
    shutil.copytree(trained.data, tmp / "others")
    (tmp / "others" / "text_files.json").rename(tmp / "others" / "others.json")
    (tmp / "bare").mkdir()
    for path in trained.folder.iterdir():
        if path.is_file() and not path.name.startswith(("model.ckpt", "checkpoint")):
            shutil.copy(path, tmp / "bare")
    dev = write_pairs(tmp, "dev", range(20))
    paths = {"tmp": tmp, "data": trained.data, "model": trained.folder, "others": tmp / "others", "bare": tmp / "bare"}
    return {"dev": dev} | {name: str(path) for name, path in paths.items()}


@pytest.mark.parametrize(("command", "words"), [(first, rest) for first, *rest in MISTAKES])
def test_a_mistake_is_named_with_its_cure(command: str, words: list[str], places: dict[str, str]) -> None:
    result = run(*command.format(**places).split(), input="one\nz\udcfcei\n")
    refused(result, *(word.format(**places) for word in words))
    assert result.stdout == ""
    for name in ("d", "m"):
        assert not Path(places["tmp"], name).exists()


def test_a_damaged_shard_is_named_and_a_wrong_index_made_again(trained: TrainedModel, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(trained.data, data)
    shards = find_shards(data, "text_files", "train")
    index_path(shards[0]).write_bytes(index_path(shards[1]).read_bytes())
    shard = bytearray(shards[2].read_bytes())
    shard[len(shard) // 2] ^= 1
    shards[2].write_bytes(shard)
    flags = [*trained.flags, f"--data_dir={data}", f"--output_dir={tmp_path / 'm'}", "--eval_decode_lines=0", *LOOKUP]
    result = run("trainer", *flags, "--train_steps=1000")
    refused(result, f"{shards[2]}: record ", "is damaged (its checksum differs); copy the file here")
    assert f"{index_path(shards[0])}: does not match its shard; rebuilding it" in result.stderr


def test_a_vocabulary_that_does_not_fit_is_refused(trained: TrainedModel, tmp_path: Path) -> None:
    model = tmp_path / "m"
    shutil.copytree(trained.folder, model)
    pairs = write_pairs(tmp_path, "train", range(5000, 5100))
    data = f"--data_dir={tmp_path / 'data'}"
    succeed("datagen", "--problem=text_files", f"--train={pairs}", f"--dev={pairs}", "--vocab_size=300", data)
    shutil.copy(next((tmp_path / "data").glob("vocab.*")), next(model.glob("vocab.*")))
    for program in MODEL_PROGRAMS:
        flags = ["--num_last_checkpoints=2"] if program == "avg-checkpoints" else []
        result = run(program, f"--output_dir={model}", *flags, input="one\n")
        refused(result, "fingerprint", "put the right vocabulary back")
    assert not (model / "export").exists()
    refused(run("trainer", *trained.flags, data), "vocabulary of fingerprint", "--output_dir")


def test_a_damaged_checkpoint_is_named(trained: TrainedModel, tmp_path: Path) -> None:
    shutil.copytree(trained.folder, tmp_path / "m", ignore=shutil.ignore_patterns("averaged", "best"))
    for path in (tmp_path / "m").glob("model.ckpt-*.data*"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused(run("decoder", f"--output_dir={tmp_path / 'm'}", input="one\n"), "model.ckpt-60", "damaged")


def test_a_second_training_in_the_same_folder_is_refused(trained: TrainedModel) -> None:
    with ModelFolder.locked(trained.folder):
        refused(
            run("trainer", *trained.flags, "--train_steps=70"), "another t2t-trainer or t2t-reproduce is at work there"
        )


def test_a_full_disk_leaves_no_half_written_file(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = [f"--{split}={trained.text / split}.en,{trained.text / split}.de" for split in ("train", "dev")]
    with largest_file(4_000):
        generated = run("datagen", "--problem=text_files", *texts, "--vocab_size=600", "--data_dir=d")
    refused(generated, "cannot be written", "free space")
    assert not (tmp_path / "d").exists()

    model, flags = tmp_path / "m", [*trained.flags, "--output_dir=m", "--eval_decode_lines=0", *LOOKUP]
    succeed("trainer", *flags, "--train_steps=40")
    before = {path.name: path.read_bytes() for path in model.iterdir() if path.is_file()}
    with largest_file(4_000):
        result = run("trainer", *flags, "--train_steps=41")
    refused(result, "checkpoint 41 cannot be written", "free space")
    after = {path.name: path.read_bytes() for path in model.iterdir() if path.is_file()}
    after["hparams.json"] = before["hparams.json"]
    # The failed run may have added lines for step 41 to metrics.jsonl. A run that resumes from step 40 drops them.
    assert after.pop("metrics.jsonl").startswith(before.pop("metrics.jsonl"))
    assert after == before

    with largest_file(4_000):
        refused(run("avg-checkpoints", "--output_dir=m", "--num_last_checkpoints=2", LOOKUP[0]), "cannot be written")
        refused(run("exporter", "--output_dir=m", LOOKUP[0]), "File too large")
    assert not list((model / "averaged").iterdir())
    assert not list((model / "export").iterdir())
