"""t2t-decoder as people use it: files, pipes, a prompt, several models, several processes, and what can go wrong."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from disks import largest_file
from programs import Road, here, refused
from programs import run_process as run
from t2t_repro.decoding import Translator

SHORT = "extra_length=5"
PROGRAM = "from t2t_repro.bin.t2t_decoder import run; run()"
TIE = 1e-5
"""Two outputs whose scores differ by less may change places with the order of a sum."""


def decode(road: Road, *arguments: str, text: str | None = None, hparams: str = SHORT) -> str:
    """Decodes and returns standard output."""
    result = run("decoder", f"--output_dir={road.model}", f"--decode_hparams={hparams}", *arguments, input=text)
    assert result.returncode == 0, result.stderr
    return result.stdout


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").split("\n")[:-1]


@pytest.fixture(scope="module")
def translator(captions: Road) -> Translator:
    """The same model in this process."""
    return Translator.from_dir(str(captions.model), extra_length=5)


def test_what_is_decoded_together_changes_nothing_on_real_lines(captions: Road, translator: Translator) -> None:
    texts = lines(captions.text / "val.en")[:1000]
    expected = translator.translate(texts, batch_size=4000)
    order = list(range(len(texts)))
    random.Random(1).shuffle(order)
    others = translator.translate([texts[number] for number in order], batch_size=300)
    assert len({translation.text for translation in expected}) > 100
    different = []
    for number, translation in zip(order, others, strict=True):
        assert translation.score == pytest.approx(expected[number].score, abs=1e-4)
        if translation.hypotheses[0].ids != expected[number].hypotheses[0].ids:
            different.append(abs(translation.score - expected[number].score))
        else:
            assert translation.text == expected[number].text
    assert len(different) <= 2 and max(different, default=0.0) < TIE  # where two outputs score alike


def test_json_lines_and_given_pairs_have_the_scores_of_the_search(
    captions: Road, translator: Translator, tmp_path: Path
) -> None:
    texts = [*lines(captions.text / "val.en")[:20], "", "A man."]
    output = decode(
        captions, "--decode_from_file=-", "--decode_to_file=-", "--output_format=jsonl", "--output_attention",
        hparams=f"{SHORT},return_beams=true,n=3", text="".join(f"{text}\n" for text in texts),
    )  # fmt: skip
    pairs = []
    for text, line, expected in zip(texts, output.split("\n")[:-1], translator.translate(texts, n=3), strict=True):
        found = json.loads(line)
        assert found["source"] == text
        assert found["hypotheses"] == [each.text for each in expected.hypotheses]
        assert found["scores"] == pytest.approx([each.score for each in expected.hypotheses], abs=1e-5)
        for each, tokens, log_probs, places in zip(
            expected.hypotheses, found["tokens"], found["token_scores"], found["attention"], strict=True
        ):
            assert sum(log_probs) / ((5 + len(tokens)) / 6) ** 0.6 == pytest.approx(each.score, abs=1e-5)
            assert len(places) == len(tokens)
            assert all(0 <= place < len(found["source_tokens"]) for place in places)
            if translator.vocabulary.encode([each.text])[0] == list(each.ids):  # not cut into other subwords
                pairs.append((text, each.text, sum(log_probs), len(tokens)))
    assert len(pairs) > 10
    given = tmp_path / "pairs.tsv"
    given.write_text("".join(f"{source}\t{target}\n" for source, target, _, _ in pairs), "utf-8")
    for (_, _, log_prob, count), line in zip(
        pairs, decode(captions, f"--score_file={given}", hparams="").split("\n")[:-1], strict=True
    ):
        total, mean, tokens = line.split("\t")
        assert float(total) == pytest.approx(log_prob, abs=1e-5)
        assert int(tokens) == count
        assert float(mean) == pytest.approx(log_prob / count, abs=1e-5)


def test_shards_put_together_are_one_run_even_of_draws(captions: Road, translator: Translator, tmp_path: Path) -> None:
    texts = lines(captions.text / "val.en")[:21]
    drawn = {"sampling_method": "random", "n": 2, "sampling_seed": 7}
    (tmp_path / "x.en").write_text("".join(f"{text}\n" for text in texts), "utf-8")
    hparams = ",".join([SHORT, *(f"{name}={value}" for name, value in drawn.items())])
    for shard in range(2):
        assert not here(
            "decoder", f"--output_dir={captions.model}", f"--decode_from_file={tmp_path / 'x.en'}",
            f"--decode_to_file={tmp_path / 'x.de'}", "--shards=2", f"--shard_id={shard}", f"--decode_hparams={hparams}",
        )  # fmt: skip
    parts = sorted(tmp_path.glob("x.de-*"))
    assert [part.name for part in parts] == [f"x.de-0000{shard}-of-00002" for shard in range(2)]
    expected = translator.translate(texts, **drawn)
    found = [line.split("\t") for part in parts for line in lines(part)]
    assert found == [[each.text.replace("\t", " ") for each in translation.hypotheses] for translation in expected]


def test_a_killed_decode_goes_on(captions: Road, translator: Translator, tmp_path: Path) -> None:
    flags = [
        f"--output_dir={captions.model}", f"--decode_from_file={captions.text / 'val.en'}",
        f"--decode_to_file={tmp_path / 'x.de'}",
    ]  # fmt: skip
    hparams = f"--decode_hparams={SHORT},batch_size=60"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *flags, hparams], stderr=subprocess.PIPE)
    journal = tmp_path / "x.de.unfinished"
    try:
        while not (journal.exists() and journal.read_bytes().count(b"\n") > 100):
            assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()
    assert [path.name for path in tmp_path.iterdir()] == ["x.de.unfinished"]
    done = journal.read_bytes().count(b"\n")
    with open(journal, "ab") as file:
        file.write(b'[5, {"hypoth')  # as a write that was cut off
    refused(run("decoder", *flags, "--decode_hparams=extra_length=6", "--resume"), "x.de.unfinished", "--resume")
    # A disk that is full after a few more lines: what is done stays, and the next run takes it up.
    with largest_file(journal.stat().st_size + 3000):
        refused(run("decoder", *flags, hparams, "--resume"), "x.de.unfinished", "cannot be written", "--resume")
    assert journal.read_bytes().count(b"\n") > done
    assert here("decoder", *flags, hparams, "--resume") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.de"]
    found, expected = lines(tmp_path / "x.de"), translator.translate(lines(captions.text / "val.en"))
    assert len(found) == len(expected)
    assert sum(text != translation.text for text, translation in zip(found, expected, strict=True)) <= 1


def until(terminal: int, end: bytes) -> bytes:
    """What a terminal shows up to `end`, or to its own end."""
    said = b""
    with contextlib.suppress(OSError):  # the terminal is closed
        while not (end and said.endswith(end)) and (part := os.read(terminal, 1000)):
            said += part
    return said


def test_an_ensembles_members_are_all_asked(road: Road, tmp_path: Path) -> None:
    """That of the checkpoints of one training: its log-probability is the mean of theirs."""
    (tmp_path / "pairs").write_text("one hundred\teinhundert\ntwo\tzwei\n")
    members = [f"{road.model}/model.ckpt-10", f"{road.model}/model.ckpt-40"]
    scores = []
    for asked in (members, *([member] for member in members)):
        folders, checkpoints = ",".join([str(road.model)] * len(asked)), ",".join(asked)
        flags = [f"--output_dir={folders}", f"--checkpoint_path={checkpoints}", f"--score_file={tmp_path / 'pairs'}"]
        assert here("decoder", *flags, f"--decode_to_file={tmp_path / 'scores'}") == 0
        scores.append([float(line.split("\t")[0]) for line in lines(tmp_path / "scores")])
    together, first, second = np.array(scores)
    assert np.abs(first - second).min() > 0.1
    np.testing.assert_allclose(together, (first + second) / 2, atol=1e-4)


def test_an_ensemble_asked_at_a_prompt(captions: Road, road: Road, translator: Translator, tmp_path: Path) -> None:
    terminal, theirs = pty.openpty()
    model = f"--output_dir={captions.model},{captions.model}"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, model, f"--decode_hparams={SHORT}", "--decode_interactive"],
        stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL,
        env=os.environ | {"HOME": str(tmp_path), "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    said = b""
    # The editor takes "x" back, and the arrow up brings the line before, whose "man." becomes "dog.".
    for typed in (b"A manx\b.\n", b"\x1b[A\b\b\b\bdog.\n", b"\x04"):
        said += until(terminal, b"> ")
        os.write(terminal, typed)
    said += until(terminal, b"")
    os.close(terminal)
    assert process.wait(60) == 0, said
    found = said.decode().replace("\r", "").split("\n")
    for translation in translator.translate(["A man.", "A dog."]):
        assert translation.text in found
    assert (tmp_path / ".t2t_decoder_history").read_text().split("\n")[:2] == ["A man.", "A dog."]
    refused(run("decoder", f"--output_dir={captions.model},{road.model}", input=""), str(road.model), "vocabulary")


def test_lines_that_come_one_by_one_are_answered_at_once(captions: Road) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, f"--output_dir={captions.model}", f"--decode_hparams={SHORT}",
         "--decode_interactive"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1,
    )  # fmt: skip
    assert process.stdin and process.stdout
    for text in ("A man.", "", "A dog."):
        process.stdin.write(f"{text}\n")
        assert (process.stdout.readline() == "\n") == (not text)
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()


def test_prefixes_references_and_long_lines(captions: Road, tmp_path: Path) -> None:
    for name, content in (
        ("x.en", "A man sits.\n\nTwo dogs run. A man sits. A girl runs.\n"),
        ("x.de", "Ein Mann sitzt.\n\nZwei Hunde rennen.\n"),
        ("prefixes", "Zwei\n\nEin Hund\n"),
        ("short", "Ein\n"),
    ):
        (tmp_path / name).write_text(content, "utf-8")
    flags = [f"--output_dir={captions.model}", f"--decode_from_file={tmp_path / 'x.en'}"]
    result = run(
        "decoder", *flags, f"--decode_reference={tmp_path / 'x.de'}",
        f"--decode_hparams={SHORT},max_input_size=8,prefix_file={tmp_path / 'prefixes'},n=2,write_beam_scores=true",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    first, empty, last = (line.split("\t") for line in result.stdout.split("\n")[:-1])
    assert [len(first), empty, len(last)] == [6, ["", "0.000000", "0"], 6]
    assert all(text.startswith("Zwei") for text in first[::3]) and all(
        text.startswith("Ein Hund") for text in last[::3]
    )
    assert "BLEU" in result.stderr and "tok:13a" in result.stderr
    assert "1 lines of more than 8 tokens: translated in pieces" in result.stderr
    refused(run("decoder", *flags, f"--decode_hparams=prefix_file={tmp_path / 'short'}"), "short", "1 lines", "3")
    refused(run("decoder", *flags, f"--decode_reference={tmp_path / 'short'}"), "short", "1 lines", "3")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--decode_hparams=beam_sise=4"], ("'beam_sise'", "'beam_size'")),
        (["--decode_hparams=n=5"], ("n=5", "beam_size=4")),
        (["--decode_hparams=sampling_temp=0.5"], ("sampling_temp=0.5", "sampling_method=random")),
        (["--decode_hparams=repeat_ngram_size=3"], ("repeat_ngram_size=3", "repeat_ngram_penalty")),
        (["--decode_hparams=beam_size=5000"], ("beam_size=5000", "vocabulary")),
        (["--decode_hparams=prefix_file=/nowhere"], ("/nowhere", "no such file")),
        (["--resume"], ("--resume", "--decode_to_file")),
        (["--score_file=pairs", "--long_lines=error"], ("--long_lines", "--score_file")),
        (["--shards=2"], ("--shards", "--decode_to_file")),
        (["--shards=2", "--shard_id=2", "--decode_to_file=x"], ("--shard_id=2",)),
        (["--output_attention"], ("--output_attention", "jsonl")),
        (["--score_file=/nowhere"], ("/nowhere", "no such file")),
        (["--score_file=x", "--decode_from_file=y"], ("--decode_from_file", "--score_file")),
        (["--decode_interactive", "--decode_to_file=y"], ("--decode_to_file", "--decode_interactive")),
        (["--checkpoint_path=a,b"], ("--checkpoint_path", "2")),
    ],
)
def test_what_does_not_fit_together_is_refused(road: Road, flags: list[str], words: tuple[str, ...]) -> None:
    refused(run("decoder", f"--output_dir={road.model}", *flags, input="x\n"), *words)


def test_a_pair_without_its_tab_and_a_folder_without_checkpoint(road: Road, tmp_path: Path) -> None:
    (tmp_path / "pairs").write_text("one\teins\ntwo zwei\n")
    refused(run("decoder", f"--output_dir={road.model}", f"--score_file={tmp_path / 'pairs'}"), "pairs:2:", "<TAB>")
    shutil.copytree(road.model, tmp_path / "model", ignore=shutil.ignore_patterns("model.ckpt*", "averaged", "best"))
    refused(run("decoder", f"--output_dir={tmp_path / 'model'}", input="x\n"), "no checkpoint", "t2t-trainer")
    shutil.copytree(road.model, tmp_path / "half", ignore=shutil.ignore_patterns("averaged", "best"))
    for data in (tmp_path / "half").glob("model.ckpt-*.data*"):
        data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    refused(run("decoder", f"--output_dir={tmp_path / 'half'}", input="x\n"), "model.ckpt-40", "damaged")
