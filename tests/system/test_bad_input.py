"""What a user gets wrong: one line that names the cure, exit code 2, nothing half-written."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from programs import MINUTE, Road, refused, run, write_pairs
from t2t_repro.data.records import find_shards, index_path
from t2t_repro.model_folder import ModelFolder


def datagen(tmp_path: Path, train: str, dev: str = "", **flags: str) -> subprocess.CompletedProcess[str]:
    """t2t-datagen of text_files into tmp_path/data."""
    dev = dev or write_pairs(tmp_path / "good", "dev", range(20))
    others = [f"--{name}={value}" for name, value in {"vocab_size": "300", **flags}.items()]
    return run(
        "datagen",
        "--problem=text_files",
        f"--train={train}",
        f"--dev={dev}",
        f"--data_dir={tmp_path / 'data'}",
        *others,
    )


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    train = write_pairs(tmp_path, "train", range(50))
    source, target = train.split(",")
    refused(datagen(tmp_path, f"{source},{tmp_path / 'none.de'}"), "none.de: no such file")
    refused(datagen(tmp_path, f"{source},{tmp_path}"), f"{tmp_path}: cannot be read", "directory")
    refused(datagen(tmp_path, source), "--train=", "name two files")
    shutil.copy(source, f"{source}.gz")
    refused(datagen(tmp_path, f"{source}.gz,{target}"), "train.en.gz: not a whole gzip file")
    assert not (tmp_path / "data").exists()


def test_files_of_different_length(tmp_path: Path) -> None:
    train = write_pairs(tmp_path, "train", range(50))
    with open(tmp_path / "train.de", "a", encoding="utf-8") as file:
        file.write("eins\nzwei\n")
    refused(datagen(tmp_path, train), "train.en has 50 lines", "train.de has 52")
    good = write_pairs(tmp_path / "good", "train", range(50))
    refused(datagen(tmp_path, good, dev=train), "train.en has 50 lines", "train.de has 52")
    assert not (tmp_path / "data").exists()


def test_invalid_utf8(tmp_path: Path, road: Road) -> None:
    train = write_pairs(tmp_path, "train", range(50))
    lines = (tmp_path / "train.de").read_bytes().split(b"\n")
    lines[41] = b"z\xfcei"
    (tmp_path / "train.de").write_bytes(b"\n".join(lines))
    refused(datagen(tmp_path, train), "train.de:42: not UTF-8", "0xfc", "iconv")
    assert not (tmp_path / "data").exists()

    flags = (
        f"--output_dir={road.model}",
        f"--decode_from_file={tmp_path / 'train.de'}",
        f"--decode_to_file={tmp_path / 'o'}",
    )
    refused(run("decoder", *flags), "train.de:42: not UTF-8")
    assert not (tmp_path / "o").exists()
    piped = run("decoder", f"--output_dir={road.model}", input="one\nz\udcfcei\n", errors="surrogateescape")
    refused(piped, "standard input:2: not UTF-8")
    assert piped.stdout == ""


def test_empty_corpora(tmp_path: Path) -> None:
    for name in ("none", "blank"):
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text("" if name == "none" else " \n\n")
        paths = f"{tmp_path / name}.en,{tmp_path / name}.de"
        refused(datagen(tmp_path, paths), "no pair is left in its train split")
        train = write_pairs(tmp_path, "train", range(50))
        refused(datagen(tmp_path, train, dev=paths), "no pair is left in its dev split")
    assert not (tmp_path / "data").exists()


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    train = write_pairs(tmp_path, "train", range(50))
    refused(datagen(tmp_path, train, vocab_size="many"), "--vocab_size=many", "int")
    refused(datagen(tmp_path, train, vocab_size="20"), "--vocab_size=20", "or more")
    refused(datagen(tmp_path, train, vocab_sise="300"), "vocab_sise", "vocab_size")
    refused(run("datagen", "--problem=text_file"), "unknown problem 'text_file'", "'text_files'")
    refused(run("datagen"), "--problem is required")
    refused(run("datagen", "text_files"), "unexpected argument 'text_files'")


def test_settings_that_are_not_those_of_the_data(road: Road, tmp_path: Path) -> None:
    flags = [*road.flags, f"--output_dir={tmp_path / 'm'}"]
    for program in (["trainer"], ["trainer", "--dry_run"]):
        result = run(*program, *flags, "--vocab_size=341")
        refused(result, f"--vocab_size=341: the data in {road.data} was made with --vocab_size=340; leave the flag out")
    assert list(tmp_path.iterdir()) == []
    assert run("trainer", *flags, "--vocab_size=340", "--dry_run").returncode == 0
    refused(run("trainer", *flags, "--generate_data", "--dry_run"), "leave out --generate_data")


def test_a_folder_whose_checkpoints_were_deleted_is_not_trained_over(road: Road, tmp_path: Path) -> None:
    shutil.copytree(road.model, tmp_path / "m")
    assert run("avg-checkpoints", f"--output_dir={tmp_path / 'm'}").returncode == 0
    for path in (tmp_path / "m").glob("model.ckpt-*"):
        path.unlink()
    flags = [*road.flags, f"--output_dir={tmp_path / 'm'}"]
    for place in ("averaged", "best"):
        before = {path: path.read_bytes() for path in (tmp_path / "m").rglob("*") if path.is_file()}
        result = run("trainer", *flags, "--train_steps=50")
        refused(result, f"holds {tmp_path / 'm' / place}/model.ckpt-", "no checkpoint to go on from")
        assert before == {path: path.read_bytes() for path in (tmp_path / "m").rglob("*") if path.is_file()}
        shutil.rmtree(tmp_path / "m" / place)


def test_pairs_that_are_all_too_long(road: Road, tmp_path: Path) -> None:
    flags = [*road.flags[:2], "--hparams=max_length=2", road.flags[3], f"--output_dir={tmp_path / 'm'}"]
    refused(run("trainer", *flags), "all 900 pairs are longer than max_length=2", "max_length=N")
    assert not (tmp_path / "m").exists()


def test_a_data_dir_of_another_problem(road: Road, tmp_path: Path) -> None:
    shutil.copytree(road.data, tmp_path / "d")
    (tmp_path / "d" / "text_files.json").rename(tmp_path / "d" / "others.json")
    flags = [*road.flags[:3], f"--data_dir={tmp_path / 'd'}", f"--output_dir={tmp_path / 'm'}"]
    refused(
        run("trainer", *flags),
        "no data of problem 'text_files'",
        "holds others",
        "run t2t-datagen --problem=text_files",
    )
    for path in list((tmp_path / "d").glob("text_files*")):
        path.unlink()
    numbers = [f"--output_dir={tmp_path / 'm'}", "--hparams_set=transformer_tiny", f"--hparams={MINUTE}"]
    made = run("trainer", "--problem=numbers_ende", f"--data_dir={tmp_path / 'd'}", "--train_size=300",
               "--train_steps=1", "--vocab_size=340", *numbers)  # fmt: skip
    assert made.returncode == 0, made.stderr
    refused(
        run("trainer", *road.flags[:1], *road.flags[1:4], f"--output_dir={tmp_path / 'm'}"),
        "numbers_ende",
        "--output_dir",
    )


def test_a_damaged_shard_and_an_index_of_another(road: Road, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(road.data, data)
    shards = find_shards(data, "text_files", "train")
    index_path(shards[0]).write_bytes(index_path(shards[1]).read_bytes())
    contents = bytearray(shards[2].read_bytes())
    contents[len(contents) // 2] ^= 1
    shards[2].write_bytes(contents)
    result = run("trainer", "--problem=text_files", "--hparams_set=transformer_tiny", f"--data_dir={data}",
                 f"--output_dir={tmp_path / 'model'}", f"--hparams={MINUTE}", "--train_steps=1000")  # fmt: skip
    refused(result, f"{shards[2]}: record ", "is damaged (its checksum differs); run t2t-datagen again")
    assert f"{index_path(shards[0])}: does not fit its shard; made again" in result.stderr


def test_a_vocabulary_that_does_not_fit(road: Road, tmp_path: Path) -> None:
    shutil.copytree(road.model, tmp_path / "m")
    other = write_pairs(tmp_path, "train", range(5000, 5100))
    assert datagen(tmp_path, other).returncode == 0
    vocabulary = next((tmp_path / "m").glob("vocab.*"))
    shutil.copy(next((tmp_path / "data").glob("vocab.*")), vocabulary)
    for program in ("decoder", "exporter", "avg-checkpoints"):
        flags = ["--num_last_checkpoints=2"] if program == "avg-checkpoints" else []
        result = run(program, f"--output_dir={tmp_path / 'm'}", *flags, input="one\n")
        refused(result)
        assert "fingerprint" in result.stderr or "another model" in result.stderr
    assert not (tmp_path / "m" / "export").exists()
    flags = [*road.flags[:3], f"--data_dir={tmp_path / 'data'}", f"--output_dir={road.model}"]
    refused(run("trainer", *flags), "vocabulary of fingerprint", "--output_dir")


def test_overrides_that_cannot_be(road: Road, tmp_path: Path) -> None:
    flags = [*road.flags[:2], road.flags[3], f"--output_dir={tmp_path / 'm'}"]
    refused(run("trainer", *flags, "--hparams=hiden_size=32"), "'hiden_size'", "'hidden_size'")
    refused(run("trainer", *flags, "--hparams=hidden_size=32.0"), "hidden_size=32.0", "int")
    refused(run("trainer", *flags, "--hparams=num_heads=3"), "num_heads=3 does not divide")
    refused(run("trainer", *flags, "--model=transfomer"), "unknown model 'transfomer'", "'transformer'")
    refused(run("trainer", flags[0], "--hparams_set=transformer_tinny"), "'transformer_tinny'", "'transformer_tiny'")
    refused(run("trainer", *flags, "--train_steps=x"), "train_steps")
    refused(run("decoder", f"--output_dir={road.model}", "--decode_hparams=beam=4", input=""), "'beam'", "'beam_size'")
    assert not (tmp_path / "m").exists()


def test_no_model_or_no_checkpoint_yet(road: Road, tmp_path: Path) -> None:
    for program in ("decoder", "exporter", "avg-checkpoints"):
        refused(run(program, input=""), "--output_dir is required")
        refused(run(program, f"--output_dir={tmp_path}", input=""), "no model folder", "t2t-trainer")
    for path in road.model.iterdir():
        if path.is_file() and not path.name.startswith("model.ckpt"):
            shutil.copy(path, tmp_path)
    for program in ("decoder", "exporter", "avg-checkpoints"):
        refused(run(program, f"--output_dir={tmp_path}", input=""), "no checkpoint yet", "t2t-trainer")
    refused(
        run("avg-checkpoints", f"--output_dir={road.model}", "--num_last_checkpoints=9"), "holds 4 checkpoints", "=9"
    )
    refused(run("decoder", f"--output_dir={road.model}", "--checkpoint_path=x", input=""), "--checkpoint_path=x")


def test_a_damaged_checkpoint(road: Road, tmp_path: Path) -> None:
    shutil.copytree(road.model, tmp_path / "m")
    data = tmp_path / "m" / "model.ckpt-40.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    refused(run("decoder", f"--output_dir={tmp_path / 'm'}", input="one\n"), "model.ckpt-40", "damaged")


def test_two_trainings_in_one_folder(road: Road) -> None:
    with ModelFolder.locked(road.model):
        refused(run("trainer", *road.flags, "--train_steps=41"), "another t2t-trainer is at work there")


def test_a_resume_with_other_hparams(road: Road) -> None:
    flags = [*road.flags[:2], f"--hparams={MINUTE},label_smoothing=0.2", *road.flags[3:]]
    refused(run("trainer", *flags, "--train_steps=50"), "label_smoothing=0.1", "label_smoothing=0.2", "--output_dir")
    refused(run("trainer", *road.flags, "--train_steps=50", "--random_seed=9"), "--random_seed=1")


@pytest.fixture
def small_disk(tmp_path: Path) -> dict[str, object]:
    """Options for `run` under which no file can grow beyond 4 kB, as on a disk that is about to be full."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))

    return {"preexec_fn": limit, "cwd": tmp_path}


def test_a_full_disk(road: Road, tmp_path: Path, small_disk: dict[str, object]) -> None:
    train = f"{road.text / 'train'}.en,{road.text / 'train'}.de"
    dev = f"{road.text / 'dev'}.en,{road.text / 'dev'}.de"
    generated = run(
        "datagen", "--problem=text_files", f"--train={train}", f"--dev={dev}", "--vocab_size=600", "--data_dir=d",
        **small_disk,
    )  # fmt: skip
    refused(generated, "cannot be written", "free space")
    assert not list((tmp_path / "d").iterdir())

    shutil.copytree(road.model, tmp_path / "m")
    before = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir() if path.is_file()}
    trained = run("trainer", *road.flags[:4], "--output_dir=m", "--train_steps=45", **small_disk)
    refused(trained, "checkpoint 45 cannot be written", "free space")
    after = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir() if path.is_file()}
    after["hparams.json"] = before["hparams.json"]
    assert after.pop("metrics.jsonl").startswith(before.pop("metrics.jsonl"))  # the next run drops what is over
    assert after == before

    refused(run("avg-checkpoints", "--output_dir=m", "--num_last_checkpoints=2", **small_disk), "cannot be written")
    assert not list((tmp_path / "m" / "averaged").iterdir())
    refused(run("exporter", "--output_dir=m", **small_disk), "cannot be written")
    assert not list((tmp_path / "m" / "export").iterdir())


def test_a_killed_datagen_leaves_no_description(tmp_path: Path) -> None:
    train = write_pairs(tmp_path, "train", range(100, 1000))
    for language in ("en", "de"):
        path = tmp_path / f"train.{language}"
        path.write_text(path.read_text() * 40)
    dev = write_pairs(tmp_path, "dev", range(50))
    flags = [
        "--problem=text_files",
        f"--train={train}",
        f"--dev={dev}",
        "--vocab_size=340",
        f"--data_dir={tmp_path / 'd'}",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", "from t2t_repro.bin.t2t_datagen import run; run()", *flags], stderr=subprocess.DEVNULL
    )
    while process.poll() is None and not list((tmp_path / "d").glob("*-train-*")):
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert not (tmp_path / "d" / "text_files.json").exists()
    finished = run("datagen", *flags)
    assert finished.returncode == 0, finished.stderr
    assert len(list((tmp_path / "d").glob("text_files-train-*-of-00010"))) == 10
