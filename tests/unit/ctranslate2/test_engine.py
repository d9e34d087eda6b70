"""Tests of CTranslate2 as an engine: its outputs are TensorFlow's, and its conversions are safe."""

import dataclasses
import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from models import weights_of, word_model, write_checkpoint
from programs import refused, run, succeed, write_lines
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.data.vocabularies.text_rules import EOS_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.journal import Journal
from t2t_repro.decoding.translator import Translator
from t2t_repro.hparam import HParams
from user_errors import user_error

pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")

TEXTS = [
    "the dog",
    "",
    "a cat sat on the dog",
    "  Ω 漢",
    "the cat sat. On the dog! And the cat",
    "a",
    "dog on the cat",
]
PREFIXES = ["a", "", "", "the dog", "", "cat sat on", ""]
LIKELY_END = 20.0
"""Bias of the end token, with which some outputs are empty, some have several words, and some reach
the limit.
"""
FORBIDDEN = {"repeat_ngram_size": 2, "repeat_ngram_penalty": float("inf")}


@pytest.fixture
def model_folder(tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> ModelFolder:
    """A folder with the checkpoint of step 1."""
    hparams = dataclasses.replace(tiny_hparams, shared_embedding_and_softmax_weights=False)
    origin = Origin("numbers_ende", {}, "vocab.x.model", "0123456789ab", 1)
    folder = ModelFolder.create(tmp_path / "model", hparams, tiny_vocabulary, origin)
    save(folder, 1)
    return folder


def save(folder: ModelFolder, step: int) -> None:
    """Writes a checkpoint, whose weights depend on `step`."""
    model = word_model(step, folder.hparams, folder.vocabulary)
    table = model.softmax.table.numpy()
    table[EOS_ID, 0] = LIKELY_END
    model.softmax.table.assign(table)
    write_checkpoint(folder.path, step, weights_of(model), folder.vocabulary.fingerprint)


def load(folder: ModelFolder, **options: Any) -> Translator:
    """Returns a translator with the engine CTranslate2."""
    return Translator.from_dir(str(folder.path), engine="ctranslate2", **options)


def test_outputs_and_scores_are_those_of_tensorflow(model_folder: ModelFolder) -> None:
    with_tensorflow = Translator.from_dir(str(model_folder.path))
    translator = load(model_folder)
    # The searches differ in a few lines, if there is a beam.
    cases: list[tuple[int, dict[str, Any], list[str]]] = [
        (0, {"beam_size": 1}, PREFIXES),
        (0, {"beam_size": 1, "extra_length": 0}, []),  # some outputs have no end token
        (0, {"beam_size": 1, "max_input_size": 4, "long_lines": "sentences", "details": True}, []),
        (0, {"beam_size": 1, "max_input_size": 4, "long_lines": "truncate"}, []),
        (0, {"n": 2, "alpha": 1.0}, []),
        (0, {"n": 2, "extra_length": 0}, []),  # outputs without an end token come last
        (1, {"alpha": 0.0, "coverage_penalty": 0.5}, []),
        (2, {"coverage_penalty": 0.5}, []),
    ]
    for different, case, prefixes in cases:
        options: Any = {"extra_length": 8} | case
        expected = with_tensorflow.translate(TEXTS, prefixes, **options)
        translations = translator.translate(TEXTS, prefixes, **options)
        without_scores = translator.translate(TEXTS, prefixes, scores=False, **options)
        assert [x.text for x in without_scores] == [x.text for x in translations]
        for ours, theirs in zip(translations, expected, strict=True):
            assert ours.source_ids == theirs.source_ids
            assert (ours.segments, ours.is_truncated) == (theirs.segments, theirs.is_truncated)
            if [x.ids for x in ours.hypotheses] != [x.ids for x in theirs.hypotheses]:
                different -= 1
                continue
            for output, expected_output in zip(ours.hypotheses, theirs.hypotheses, strict=True):
                assert output.score == pytest.approx(expected_output.score, abs=1e-4), case
                assert output.token_scores == pytest.approx(expected_output.token_scores, abs=1e-4)
        assert different >= 0, case
    targets = ["dog", "a", "the cat", "", "on", "sat", "a"]
    pairs = zip(
        translator.score(TEXTS, targets), with_tensorflow.score(TEXTS, targets), strict=True
    )
    assert all(
        ours.token_scores == pytest.approx(theirs.token_scores, abs=1e-4) for ours, theirs in pairs
    )


def test_random_outputs_depend_on_the_seed_and_repeated_n_grams_are_forbidden(
    model_folder: ModelFolder,
) -> None:
    def draw(seed: int) -> list[tuple[str, ...]]:
        translator = load(model_folder, sampling_method="random", n=3, sampling_seed=seed)
        return [tuple(output.text for output in x.hypotheses) for x in translator.translate(TEXTS)]

    assert draw(1) == draw(1) != draw(2)
    for translation in load(model_folder).translate(TEXTS, **FORBIDDEN):
        pairs = list(itertools.pairwise(translation.hypotheses[0].ids))
        assert len(set(pairs)) == len(pairs)


def test_a_model_is_converted_once_and_again_for_another_checkpoint(
    model_folder: ModelFolder,
) -> None:
    with ThreadPoolExecutor(3) as pool:  # at the same time
        outputs = list(pool.map(lambda _: load(model_folder).translate(TEXTS), range(3)))
    assert outputs[0] == outputs[1] == outputs[2]
    cache = model_folder.path / "ctranslate2"
    [conversion] = cache.iterdir()
    time = (conversion / "model.bin").stat().st_mtime_ns
    load(model_folder, quantization="int8")
    load(model_folder)
    assert (conversion / "model.bin").stat().st_mtime_ns == time
    assert len(list(cache.iterdir())) == 2
    save(model_folder, 2)
    ours = load(model_folder, beam_size=1).translate(TEXTS)
    expected = Translator.from_dir(str(model_folder.path), beam_size=1).translate(TEXTS)
    assert [x.text for x in ours] == [x.text for x in expected]
    assert len(list(cache.iterdir())) == 2 and not conversion.exists()
    [conversion] = cache.glob("float32-*")
    (conversion / "model.bin").write_bytes((conversion / "model.bin").read_bytes()[:1000])
    assert str(conversion) in user_error(load, model_folder)


def test_programs_need_no_tensorflow_for_a_converted_model(
    model_folder: ModelFolder, tmp_path: Path
) -> None:
    expected = [translation.text for translation in load(model_folder).translate(TEXTS)]
    source = write_lines(tmp_path / "x.en", TEXTS)
    output = tmp_path / "x.de"
    code = "import sys; sys.modules['tensorflow'] = sys.modules['keras'] = None; "
    code += "from t2t_repro.bin.t2t_decoder import run; run()"
    flags = [f"--output_dir={model_folder.path}", "--engine=ctranslate2"]
    files = [f"--decode_from_file={source}", f"--decode_to_file={output}"]
    subprocess.run([sys.executable, "-c", code, *flags, *files], check=True, capture_output=True)
    assert output.read_text().splitlines() == expected
    succeed("augment", *flags, f"--text={source}", f"--corpus_dir={tmp_path / 'c'}")
    refused(
        run("augment", flags[0], f"--text={source}", f"--corpus_dir={tmp_path / 'c'}"),
        "made with engine=ctranslate2",
    )


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--quantization=int9"], ["--quantization", "int8"]),
        (["--quantization=float16"], ["--quantization=float16", "float32"]),
        (["--precision=bfloat16"], ["--precision"]),
        (["--output_format=jsonl", "--output_attention"], ["--output_attention"]),
        (["--decode_hparams=well_formed=true"], ["well_formed"]),
        (["--decode_hparams=max_input_size=2049"], ["max_input_size", "2048"]),
        (
            ["--decode_hparams=repeat_ngram_size=2,repeat_ngram_penalty=1.5"],
            ["repeat_ngram_penalty", "inf"],
        ),
        (["--engine=tensorflow", "--quantization=int8"], ["--quantization"]),
    ],
)
def test_impossible_flags_are_refused(
    model_folder: ModelFolder, flags: list[str], words: list[str]
) -> None:
    usual = (f"--output_dir={model_folder.path}", "--engine=ctranslate2")
    refused(run("decoder", *usual, *flags), *words)


def test_a_journal_without_scores_is_not_continued_with_scores(
    model_folder: ModelFolder, tmp_path: Path
) -> None:
    output = tmp_path / "x.de"
    flags = [
        f"--output_dir={model_folder.path}",
        "--engine=ctranslate2",
        f"--decode_from_file={write_lines(tmp_path / 'x.en', TEXTS)}",
        f"--decode_to_file={output}",
    ]
    greedy = "--decode_hparams=beam_size=1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "delete", lambda journal: None)  # as after a kill
        succeed("decoder", *flags, greedy)
    output.unlink()
    refused(run("decoder", *flags, "--resume", f"{greedy},write_beam_scores=true"), "delete")
    succeed("decoder", *flags, "--resume", greedy)
    assert output.exists()


def test_a_missing_library_is_named(
    model_folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    refused(
        run("decoder", f"--output_dir={model_folder.path}", "--engine=ctranslate2"),
        "t2t_repro[ctranslate2]",
    )


def test_impossible_models_leave_nothing_behind(model_folder: ModelFolder) -> None:
    folder = str(model_folder.path)
    assert "quantization=int8" in user_error(Translator.from_dir, folder, quantization="int8")
    message = user_error(Translator.from_dir, folder, engine="ctranslate")
    assert "did you mean 'ctranslate2'" in message
    message = user_error(Translator.from_dir, f"{folder},{folder}", engine="ctranslate2")
    assert "one model" in message
    model_folder.hparams = dataclasses.replace(model_folder.hparams, self_attention_neighborhood=3)
    model_folder.save()
    assert "self_attention_neighborhood" in user_error(load, model_folder)
    assert not (model_folder.path / "ctranslate2").exists()
