"""t2t-decoder translates files, pipes and lines at a prompt, with one model or several, and refuses
bad input.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from models import write_checkpoint
from programs import TrainedModel, refused, run, succeed, without_extras
from t2t_repro import devices
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.checkpoints.reader import read_checkpoint
from t2t_repro.decoding import Translator
from t2t_repro.decoding.journal import Journal
from t2t_repro.insights.answers import ExploredModel
from terminals import terminal
from user_errors import user_error

pytestmark = pytest.mark.usefixtures("no_graphs")

SHORT = "extra_length=5"


def lines(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1]  # a "\r" within a line stays


def joined(texts: list[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


@pytest.fixture(scope="module")
def translator(trained: TrainedModel) -> Translator:
    return Translator.from_dir(str(trained.folder), extra_length=5)


def test_a_model_that_diverged_is_reported_after_its_outputs(
    trained: TrainedModel, tmp_path: Path
) -> None:
    """Its weights are finite, but no output has a probability above 0."""
    folder = ModelFolder(trained.folder)
    weights = read_checkpoint(folder.checkpoint()).weights
    huge = {name: tf.Variable(value * np.float32(1e30)) for name, value in weights.items()}
    checkpoint = write_checkpoint(tmp_path, 9, huge, folder.vocabulary.fingerprint)
    (tmp_path / "x").write_text("one\n\ntwo\n")
    flags = [
        f"--output_dir={trained.folder}",
        f"--checkpoint_path={checkpoint}",
        f"--decode_hparams={SHORT}",
    ]
    files = [f"--decode_from_file={tmp_path}/x", f"--decode_to_file={tmp_path}/y"]
    refused(
        run("decoder", *flags, *files),
        "all outputs of 2 lines the probability 0: its training has diverged",
    )
    assert lines(tmp_path / "y") == [""] * 3
    refused(run("translate-beam", *flags, *files), "the probability 0: its training has diverged")
    assert "has diverged" in run("decoder", *flags, "--decode_interactive", input="one\n").stderr
    refused(
        run("attention", *flags[:2], "--source=one", "--target=a", f"--out={tmp_path}/out"),
        "use an earlier checkpoint",
    )
    model = ExploredModel.load(folder, checkpoint)
    assert "use an earlier checkpoint" in user_error(model.translate, "one", 4, 0.6, 1)
    (tmp_path / "pairs").write_text("one\teins\n")
    scores = [*flags[:2], f"--score_file={tmp_path}/pairs", "--output_format=jsonl"]
    result = run("decoder", *scores)
    refused(result, "the probability 0: its training has diverged")
    assert json.loads(result.stdout, parse_constant=str)["log_prob"] is None


def test_a_shard_equals_a_part_of_one_run_even_with_sampling(
    trained: TrainedModel, translator: Translator, tmp_path: Path
) -> None:
    texts = lines(trained.text / "test.en")[:20]
    sampling = {"sampling_method": "random", "n": 2, "sampling_seed": 7}
    (tmp_path / "x.en").write_text(joined(texts), "utf-8")
    hparams = ",".join([SHORT, *(f"{name}={value}" for name, value in sampling.items())])
    succeed(
        "decoder",
        f"--output_dir={trained.folder}",
        f"--decode_from_file={tmp_path / 'x.en'}",
        f"--decode_to_file={tmp_path / 'x.de'}",
        "--shards=3",
        "--shard_id=1",
        f"--decode_hparams={hparams}",
    )
    [(_, *outputs)] = [(path, *lines(path)) for path in tmp_path.glob("x.de-00001-of-00003")]
    expected = [
        translation.hypotheses for translation in translator.translate(texts, **sampling)[6:13]
    ]
    assert [line.split("\t") for line in outputs] == [
        [hypothesis.text.replace("\t", " ") for hypothesis in hypotheses] for hypotheses in expected
    ]


def test_lines_at_a_prompt_can_be_edited_and_recalled(
    trained: TrainedModel, translator: Translator
) -> None:
    flags = [f"--output_dir={trained.folder}", f"--decode_hparams={SHORT}", "--decode_interactive"]
    output = b""
    with terminal("decoder", *flags, streams=["stdin", "stdout"], TERM="xterm") as prompt:
        # Backspace removes "x". Then arrow up brings back the line, and the keys change "one" to
        # "two". Ctrl-D ends.
        for keys in (b"thirty onex\b\n", b"\x1b[A\b\b\btwo\n", b"\x04"):
            output += prompt.read(b"> ")
            prompt.type(keys)
        output += prompt.read()
    answers = output.decode().replace("\r", "").split("\n")
    for translation in translator.translate(["thirty one", "thirty two"]):
        assert translation.text in answers


def test_piped_lines_are_answered_with_attention(trained: TrainedModel) -> None:
    flags = [f"--output_dir={trained.folder}", f"--decode_hparams={SHORT}", "--decode_interactive"]
    texts = ["one hundred", "", "seven thousand"]
    result = succeed(
        "decoder", *flags, "--output_format=jsonl", "--output_attention", input=joined(texts)
    )
    for text, line in zip(texts, result.stdout.splitlines(), strict=True):
        answer = json.loads(line)
        assert answer["source"] == text
        assert [len(row) for row in answer["attention"]] == [len(row) for row in answer["tokens"]]


def test_a_stream_has_no_journal_and_a_link_stays_a_link(
    trained: TrainedModel, tmp_path: Path
) -> None:
    for name, target in (("link", "x.de"), ("stdout", "/proc/self/fd/1")):
        (tmp_path / name).symlink_to(target)
    flags = [f"--output_dir={trained.folder}", f"--decode_hparams={SHORT}"]
    stream = succeed("decoder", *flags, "--decode_to_file=stdout", input="one\n", cwd=tmp_path)
    succeed("decoder", *flags, "--decode_to_file=link", input="one\n", cwd=tmp_path)
    assert (tmp_path / "link").is_symlink()
    assert stream.stdout == (tmp_path / "x.de").read_text() != ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "stdout", "x.de"]


def test_a_run_resumes_only_with_the_same_input_model_and_settings(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in (
        ("x", "\none\ntwo\n"),
        ("edited", "\none\nsix\n"),
        ("longer", "\n\none\ntwo\n"),
        ("prefixes", "\nein\n\n"),
        ("others", "\nEin\n\n"),
        ("again", "\n\nein\n\n"),
    ):
        (tmp_path / name).write_text(content)
    # Loading it takes time.
    model = ModelFolder(trained.folder).decoding_model(f"{trained.folder}/model.ckpt-20")
    monkeypatch.setattr(ModelFolder, "decoding_model", lambda *arguments: model)
    hparams = f"--decode_hparams={SHORT},sampling_method=random,prefix_file"
    output = tmp_path / "y-00001-of-00002"
    journal = f"{output.name}.unfinished"
    flags = [
        f"--output_dir={trained.folder}",
        f"--decode_from_file={tmp_path}/x",
        f"--decode_to_file={tmp_path}/y",
        "--shards=2",
        "--shard_id=1",
        f"{hparams}={tmp_path}/prefixes",
    ]
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "delete", lambda journal: [][0])  # a crash
        with pytest.raises(IndexError):
            run("decoder", *flags)
    entries = (tmp_path / journal).read_bytes()
    text = output.read_text()
    output.unlink()
    refused(run("decoder", *flags), journal, "continue it with --resume")
    shutil.copytree(trained.folder, tmp_path / "m")
    monkeypatch.setattr(devices, "require_precision", lambda precision: None)
    for changes in (
        [f"--decode_from_file={tmp_path}/edited"],
        [f"--decode_from_file={tmp_path}/longer", f"{hparams}={tmp_path}/again"],
        [f"{hparams}={tmp_path}/others"],
        [f"{hparams}={tmp_path}/prefixes,sampling_seed=2"],
        [f"--checkpoint_path={trained.folder}/model.ckpt-20"],
        [f"--output_dir={trained.folder},{tmp_path}/m"],
        ["--precision=bfloat16"],
        ["--long_lines=error"],
        ["--output_format=jsonl"],
    ):
        refused(run("decoder", *flags, *changes, "--resume"), journal, "delete")
    assert (tmp_path / journal).read_bytes() == entries
    (tmp_path / "prefixes").rename(tmp_path / "moved")
    # The journal has all lines.
    monkeypatch.setattr(Translator, "stream", lambda *arguments, **options: iter(()))
    succeed(
        "decoder", *flags, f"--output_dir={tmp_path}/m", f"{hparams}={tmp_path}/moved", "--resume"
    )
    assert output.read_text() == text != "" and not (tmp_path / journal).exists()


def test_prefixes_references_and_long_lines(trained: TrainedModel, tmp_path: Path) -> None:
    for name, content in (
        ("x.en", "seven thousand\n\ntwo hundred. seven thousand. nine hundred.\n"),
        ("x.de", "siebentausend\n\nzweihundert\n"),
        ("prefixes", "Zwei\n\nEin Hund\n"),
        ("short", "Ein\n"),
    ):
        (tmp_path / name).write_text(content, "utf-8")
    flags = [f"--output_dir={trained.folder}", f"--decode_from_file={tmp_path / 'x.en'}"]
    result = succeed(
        "decoder",
        *flags,
        f"--decode_reference={tmp_path / 'x.de'}",
        (
            f"--decode_hparams={SHORT},max_input_size=8,prefix_file={tmp_path / 'prefixes'},"
            "n=2,write_beam_scores=true"
        ),
    )
    top, empty, bottom = (line.split("\t") for line in result.stdout.split("\n")[:-1])
    assert (len(top), empty, len(bottom)) == (6, ["", "0.000000", "0"], 6)
    assert all(text.startswith("Zwei") for text in top[::3])
    assert all(text.startswith("Ein Hund") for text in bottom[::3])
    assert "tok:13a" in result.stderr
    assert "1 line of more than 8 tokens: translated in segments" in result.stderr
    for flag in ("--decode_hparams=prefix_file", "--decode_reference"):
        refused(run("decoder", *flags, f"{flag}={tmp_path / 'short'}"), "short have 3 and 1 lines")


def test_the_decoder_and_the_scorer_give_the_same_scores(
    trained: TrainedModel, tmp_path: Path
) -> None:
    flags = [
        f"--output_dir={trained.folder}",
        f"--decode_from_file={trained.text}/dev.en",
        f"--decode_to_file={tmp_path}/y",
        f"--decode_reference={trained.text}/dev.de",
        f"--decode_hparams={SHORT}",
    ]
    for language, tokens in (("zh-CN", "|tok:zh|"), ("my", "chrF ")):
        with without_extras():
            decoded = succeed("decoder", *flags, f"--target_language={language}")
        files = [
            f"--translation={tmp_path}/y",
            f"--reference={trained.text}/dev.de",
            f"--target_language={language}",
        ]
        scored = succeed("bleu", *files)
        assert decoded.stderr.endswith(scored.stdout + scored.stderr) and tokens in scored.stdout
    refused(run("decoder", *flags, "--target_language=french"), "'french'")


def test_inputs_and_model_files_are_not_overwritten(trained: TrainedModel, tmp_path: Path) -> None:
    for name in ("x.en", "x.de", "y.unfinished", "prefixes", "pairs", "z-00001-of-00002"):
        (tmp_path / name).write_text("one\teins\n" if name == "pairs" else "one\n")
    (tmp_path / "link").symlink_to("x.en")
    before = {
        path: path.read_bytes()
        for folder in (tmp_path, trained.folder)
        for path in folder.glob("*.*")
    }
    for output, flags in (
        ("link", ["--decode_from_file=x.en"]),
        ("y", ["--decode_from_file=y.unfinished"]),
        ("x.de", ["--decode_from_file=x.en", "--decode_reference=x.de"]),
        ("prefixes", ["--decode_from_file=x.en", "--decode_hparams=prefix_file=prefixes"]),
        ("pairs", ["--score_file=pairs"]),
        ("z", ["--decode_from_file=z-00001-of-00002", "--shards=2", "--shard_id=1"]),
        (trained.folder / "problem.json", ["--decode_from_file=x.en"]),
        (trained.folder / "model.ckpt-60.index", ["--decode_from_file=x.en"]),
    ):
        result = run(
            "decoder",
            f"--output_dir={trained.folder}",
            *flags,
            f"--decode_to_file={output}",
            cwd=tmp_path,
        )
        refused(
            result,
            " is also an input (",
            ") and would be overwritten; choose another --decode_to_file",
        )
    assert before == {path: path.read_bytes() for path in before}
