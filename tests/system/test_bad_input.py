"""After a user's mistake, a program prints one line with the remedy, exits with code 2 and leaves no partial file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from disks import largest_file
from programs import LOOKUP, SMALL, TrainedModel, refused, run, succeed, write_pairs
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data.records import find_shards, index_path

MODEL_PROGRAMS = ("decoder", "exporter", "avg-checkpoints")


def datagen(folder: Path, train: str, dev: str = "", **flags: str) -> subprocess.CompletedProcess[str]:
    """Runs t2t-datagen on text files and returns its result. The data goes to FOLDER/data.

    Args:
        train: the value of --train.
        dev: the value of --dev; by default, 20 valid pairs.
        flags: other flags by name.
    """
    dev = dev or write_pairs(folder / "good", "dev", range(20))
    settings = {"train": train, "dev": dev, "vocab_size": "300", "data_dir": f"{folder / 'data'}"} | flags
    return run("datagen", "--problem=text_files", *(f"--{name}={value}" for name, value in settings.items()))


def test_an_unreadable_corpus_is_named(tmp_path: Path) -> None:
    train = write_pairs(tmp_path, "train", range(50))
    source, target = train.split(",")
    refused(datagen(tmp_path, f"{source},{tmp_path / 'none.de'}"), "none.de: no such file")
    refused(datagen(tmp_path, f"{source},{tmp_path}"), f"{tmp_path}: cannot be read", "directory")
    refused(datagen(tmp_path, source), "--train=", "name two files")
    shutil.copy(source, f"{source}.gz")
    refused(datagen(tmp_path, f"{source}.gz,{target}"), "train.en.gz: cut off or damaged gzip file")
    assert not (tmp_path / "data").exists()


def test_files_of_different_lengths_are_named_with_their_lengths(tmp_path: Path) -> None:
    train = write_pairs(tmp_path, "train", range(50))
    with open(tmp_path / "train.de", "a", encoding="utf-8") as file:
        file.write("eins\nzwei\n")
    refused(datagen(tmp_path, train), "train.en has 50 lines", "train.de has 52")
    good = write_pairs(tmp_path / "good", "train", range(50))
    refused(datagen(tmp_path, good, dev=train), "train.en has 50 lines", "train.de has 52")
    assert not (tmp_path / "data").exists()


def test_invalid_utf8_is_named_with_its_line(tmp_path: Path, trained: TrainedModel) -> None:
    train = write_pairs(tmp_path, "train", range(50))
    bad = tmp_path / "train.de"
    lines = bad.read_bytes().split(b"\n")
    lines[41] = b"z\xfcei"
    bad.write_bytes(b"\n".join(lines))
    refused(datagen(tmp_path, train), "train.de:42: not UTF-8", "0xfc", "iconv")
    assert not (tmp_path / "data").exists()

    model, output = f"--output_dir={trained.folder}", tmp_path / "output"
    refused(run("decoder", model, f"--decode_from_file={bad}", f"--decode_to_file={output}"), "train.de:42: not UTF-8")
    assert not output.exists()
    piped = run("decoder", model, input="one\nz\udcfcei\n")
    refused(piped, "standard input:2: not UTF-8")
    assert piped.stdout == ""


def test_an_empty_corpus_is_refused(tmp_path: Path) -> None:
    for name, text in (("none", ""), ("blank", " \n\n")):
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text(text)
        paths = f"{tmp_path / name}.en,{tmp_path / name}.de"
        refused(datagen(tmp_path, paths), "no pair is left in its train split")
        train = write_pairs(tmp_path, "train", range(50))
        refused(datagen(tmp_path, train, dev=paths), "no pair is left in its dev split")
    assert not (tmp_path / "data").exists()


def test_a_bad_setting_of_a_problem_is_named(tmp_path: Path) -> None:
    train = write_pairs(tmp_path, "train", range(50))
    refused(datagen(tmp_path, train, vocab_size="many"), "--vocab_size=many", "int")
    refused(datagen(tmp_path, train, vocab_size="20"), "--vocab_size=20", "or more")
    refused(datagen(tmp_path, train, vocab_sise="300"), "vocab_sise", "vocab_size")
    refused(run("datagen", "--problem=text_file"), "unknown problem 'text_file'", "'text_files'")
    refused(run("datagen"), "--problem is required")
    refused(run("datagen", "text_files"), "unexpected argument 'text_files'")


def test_a_setting_other_than_the_datas_is_refused(trained: TrainedModel, tmp_path: Path) -> None:
    flags = [*trained.flags, f"--output_dir={tmp_path / 'm'}"]
    for more in ([], ["--dry_run"]):
        result = run("trainer", *flags, "--vocab_size=341", *more)
        refused(result, f"--vocab_size=341: the data in {trained.data} was made with --vocab_size=340; omit the flag")
    assert list(tmp_path.iterdir()) == []
    succeed("trainer", *flags, "--vocab_size=340", "--dry_run")
    refused(run("trainer", *flags, "--generate_data", "--dry_run"), "omit --generate_data")


def test_flags_of_a_comparison_that_is_not_made_are_refused(trained: TrainedModel) -> None:
    for flag in ("data_dir=D", "eval_steps=0", "eval_decode_lines=5"):
        result = run("avg-checkpoints", f"--output_dir={trained.folder}", "--nocompare", f"--{flag}")
        refused(result, f"--{flag.partition('=')[0]} is for the comparison")


def test_data_with_only_overlong_pairs_is_refused(trained: TrainedModel, tmp_path: Path) -> None:
    flags = [*trained.flags, "--hparams=max_length=2", f"--output_dir={tmp_path / 'm'}"]
    refused(run("trainer", *flags), "all 1,000 pairs are longer than max_length=2", "max_length=N")
    assert not (tmp_path / "m").exists()


def test_a_data_directory_of_another_problem_is_refused(trained: TrainedModel, tmp_path: Path) -> None:
    data, model = tmp_path / "d", tmp_path / "m"
    shutil.copytree(trained.data, data)
    (data / "text_files.json").rename(data / "others.json")
    result = run("trainer", *trained.flags, f"--data_dir={data}", f"--output_dir={model}")
    refused(result, "no data of problem 'text_files'", "holds others", "run t2t-datagen --problem=text_files")


def test_a_model_folder_of_another_problem_is_refused(trained: TrainedModel, tmp_path: Path) -> None:
    flags = ["--hparams_set=transformer_tiny", f"--hparams={SMALL}", f"--output_dir={trained.folder}"]
    result = run(
        "trainer", "--problem=numbers_ende", f"--data_dir={tmp_path / 'd'}", "--train_size=300", "--vocab_size=340",
        *flags,
    )  # fmt: skip
    refused(result, "numbers_ende", "--output_dir")


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
    assert datagen(tmp_path, write_pairs(tmp_path, "train", range(5000, 5100))).returncode == 0
    shutil.copy(next((tmp_path / "data").glob("vocab.*")), next(model.glob("vocab.*")))
    for program in MODEL_PROGRAMS:
        flags = ["--num_last_checkpoints=2"] if program == "avg-checkpoints" else []
        result = run(program, f"--output_dir={model}", *flags, input="one\n")
        refused(result, "fingerprint", "put the right vocabulary back")
    assert not (model / "export").exists()
    refused(
        run("trainer", *trained.flags, f"--data_dir={tmp_path / 'data'}"), "vocabulary of fingerprint", "--output_dir"
    )


def test_a_bad_override_or_name_is_refused_with_the_nearest_one(trained: TrainedModel, tmp_path: Path) -> None:
    flags = [*trained.flags, f"--output_dir={tmp_path / 'm'}"]
    refused(run("trainer", *flags, "--hparams=hiden_size=32"), "'hiden_size'", "'hidden_size'")
    refused(run("trainer", *flags, "--hparams=hidden_size=32.0"), "hidden_size=32.0", "int")
    refused(run("trainer", *flags, "--hparams=num_heads=3"), "num_heads=3 does not divide")
    refused(run("trainer", *flags, "--model=transfomer"), "unknown model 'transfomer'", "'transformer'")
    refused(run("trainer", *flags, "--hparams_set=transformer_tinny"), "'transformer_tinny'", "'transformer_tiny'")
    refused(run("trainer", *flags, "--train_steps=x"), "train_steps")
    refused(run("decoder", f"--output_dir={trained.folder}", "--decode_hparams=beam=4"), "'beam'", "'beam_size'")
    assert not (tmp_path / "m").exists()


def test_a_missing_model_folder_or_checkpoint_is_named(trained: TrainedModel, tmp_path: Path) -> None:
    for program in MODEL_PROGRAMS:
        refused(run(program), "--output_dir is required")
        refused(run(program, f"--output_dir={tmp_path}"), "not a model folder", "t2t-trainer")
    for path in trained.folder.iterdir():
        if path.is_file() and not path.name.startswith(("model.ckpt", "checkpoint")):
            shutil.copy(path, tmp_path)
    for program in MODEL_PROGRAMS:
        refused(run(program, f"--output_dir={tmp_path}"), "no checkpoint yet", "t2t-trainer")
    model = f"--output_dir={trained.folder}"
    refused(run("avg-checkpoints", model, "--num_last_checkpoints=9"), "holds 3 checkpoints", "=9")
    refused(run("decoder", model, "--checkpoint_path=x"), "--checkpoint_path=x")


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


def test_a_resume_with_other_hparams_is_refused(trained: TrainedModel) -> None:
    flags = [*trained.flags, "--train_steps=70"]
    smoothing = f"--hparams={SMALL},label_smoothing=0.2"
    refused(run("trainer", *flags, smoothing), "label_smoothing 0.1, not 0.2", "--output_dir")
    refused(run("trainer", *flags, "--random_seed=9"), "--random_seed 1, not 9")


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
        refused(run("exporter", "--output_dir=m", LOOKUP[0]), "cannot be written")
    assert not list((model / "averaged").iterdir())
    assert not list((model / "export").iterdir())
