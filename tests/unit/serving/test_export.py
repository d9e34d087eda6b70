"""A SavedModel gives what the translator gives, without our code."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from disks import largest_file
from models import Copier
from t2t_repro.data.vocabulary import EOS_ID, PAD_ID, Vocabulary
from t2t_repro.decoding.batches import padded, unpadded
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.models.transformer import Transformer
from t2t_repro.serving.export import export

BATCHES = [["the dog", "", "a cat sat on the dog", " \t", "Ω 漢", "\n"], ["cat"], ["", " "], []]
ECHOED = ["a\ncat", "the dog", "", "a\r\u2028b"]

SERVER = """
import json, sys, tensorflow as tf, tensorflow_text
replies = []
for path, batches in json.load(sys.stdin):
    signature = tf.saved_model.load(path).signatures["serving_default"]
    for batch in batches:
        reply = signature(inputs=tf.constant(batch, tf.string, shape=[len(batch)]))
        replies.append([[text.decode() for text in reply["outputs"].numpy()], reply["scores"].numpy().tolist()])
assert not [name for name in sys.modules if name.startswith("t2t_repro")]
json.dump(replies, sys.stdout)
"""


@pytest.fixture(scope="module", params=[0, 2], ids=["all positions", "neighborhood"])
def translator(request: pytest.FixtureRequest, tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> Translator:
    keras.utils.set_random_seed(1)
    hparams = dataclasses.replace(tiny_hparams, self_attention_neighborhood=request.param)
    model = Transformer(hparams, tiny_vocabulary.size)
    return Translator(model, tiny_vocabulary, DecodeHParams(beam_size=2, extra_length=3))


@pytest.fixture(scope="module")
def echo(tiny_vocabulary: Vocabulary) -> Translator:
    """Quick to export."""
    return Translator(Copier(tiny_vocabulary.size), tiny_vocabulary, DecodeHParams(beam_size=1))


def test_served_texts_and_scores_are_the_translators(translator: Translator, echo: Translator, tmp_path: Path) -> None:
    paths = [str(export(each, tmp_path / name)) for each, name in ((translator, "model"), (echo, "echo"))]
    request = json.dumps([[paths[0], BATCHES], [paths[1], [ECHOED]]])
    done = subprocess.run([sys.executable, "-P", "-c", SERVER], input=request, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    *replies, [echoed, _] = json.loads(done.stdout)
    for batch, (outputs, scores) in zip(BATCHES, replies, strict=True):
        expected = translator.translate(batch)
        assert outputs == [translation.text for translation in expected]
        assert scores == pytest.approx([translation.score for translation in expected], rel=1e-4)
    assert echoed == [translation.text for translation in echo.translate(ECHOED)] == ["a cat", *ECHOED[1:]]


@pytest.fixture(scope="module")
def server(tiny_hparams: HParams, tiny_vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """Of a model that takes 12 tokens at most."""
    keras.utils.set_random_seed(2)
    hparams = DecodeHParams(beam_size=3, extra_length=3, n=2)
    translator = Translator(Transformer(tiny_hparams, tiny_vocabulary.size), tiny_vocabulary, hparams, max_length=12)
    return Server(translator, tmp_path_factory.mktemp("server"))


class Server:
    """A translator and its SavedModel."""

    def __init__(self, translator: Translator, folder: Path) -> None:
        self.translator = translator
        self.loaded = tf.saved_model.load(str(export(translator, folder)))

    def ask(self, name: str, *texts: Sequence[str | bytes]) -> dict[str, np.ndarray]:
        """The answer to a request of strings."""
        names = ("inputs", "targets")[: len(texts)]
        given = {name: tf.constant(each, tf.string, [len(each)]) for name, each in zip(names, texts, strict=True)}
        return self._reply(name, given)

    def ask_tokens(self, rows: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
        return self._reply("tokens", {"inputs": tf.constant(rows, tf.int32, [len(rows), len(rows[0]) if rows else 0])})

    def _reply(self, name: str, given: dict[str, Any]) -> dict[str, np.ndarray]:
        return {key: value.numpy() for key, value in self.loaded.signatures[name](**given).items()}


ORDINARY = ["the dog", "a cat sat"]
LONG = "the cat sat on the dog the cat sat on the dog"


def test_nothing_in_a_request_changes_what_the_others_get(server: Server) -> None:
    alone = server.ask("serving_default", ORDINARY)
    others: list[str | bytes] = [b"\xffcat", b"a\xe2\x82", LONG, "", "\0", "a\ttab ", "  a  cat", "\u3000", "\n"]
    batch = [ORDINARY[0], *others, ORDINARY[1]]
    together = server.ask("serving_default", batch)
    assert together["outputs"][[0, -1]].tolist() == alone["outputs"].tolist()
    assert together["scores"][[0, -1]] == pytest.approx(alone["scores"], abs=1e-4)
    read = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in batch]
    expected = server.translator.translate(read, n=1, long_lines="truncate")
    assert [each.is_truncated for each in expected] == [text == LONG for text in batch]
    assert [text.decode() for text in together["outputs"]] == [each.text for each in expected]
    assert together["scores"] == pytest.approx([each.score for each in expected], abs=1e-4)


def test_the_n_best_are_the_translators(server: Server) -> None:
    batch = ["the dog", "", "a cat", " "]
    found = server.ask("nbest", batch)
    assert found["outputs"].shape == found["scores"].shape == (4, 2)
    for texts, scores, expected in zip(
        found["outputs"], found["scores"], server.translator.translate(batch), strict=True
    ):
        if expected.source_ids:
            assert [text.decode() for text in texts] == [each.text for each in expected.hypotheses]
            assert scores == pytest.approx([each.score for each in expected.hypotheses], abs=1e-4)
        else:
            assert texts.tolist() == [b"", b""]
            assert scores.tolist() == [0, 0]


def test_tokens_are_those_of_the_texts_whatever_follows_their_end(server: Server) -> None:
    expected = server.translator.translate(["the dog", "a cat sat", "", "a"], n=1)
    sources = [each.source_ids or (EOS_ID,) for each in expected]
    longest = max(map(len, sources))
    # A server that puts requests together fills a row up with its first value.
    first = server.ask_tokens([[*ids, *[ids[0]] * (longest - len(ids))] for ids in sources])
    zeros = server.ask_tokens([[*ids, *[PAD_ID] * (longest + 2 - len(ids))] for ids in sources])
    for found in (first, zeros):
        assert [tuple(unpadded(row)) for row in found["outputs"].tolist()] == [
            each.hypotheses[0].ids for each in expected
        ]
        assert found["scores"] == pytest.approx([each.score for each in expected], abs=1e-4)
        assert all(not any(row[len(unpadded(row)) :]) for row in found["outputs"].tolist())


def test_ids_that_the_vocabulary_has_not_fail_no_one(server: Server) -> None:
    (right,) = server.translator.vocabulary.encode(["the cat sat"])
    wrong = [server.translator.vocabulary.size, -1, 10**9, EOS_ID]
    alone = server.ask_tokens([right])
    together = server.ask_tokens(padded([right, wrong]).tolist())
    assert together["outputs"][0].tolist() == alone["outputs"][0].tolist()
    assert not together["outputs"][1].any()
    assert together["scores"] == pytest.approx([alone["scores"][0], 0], abs=1e-4)


def test_ids_that_the_vocabulary_has_not_leave_no_gap(server: Server) -> None:
    (ids,) = server.translator.vocabulary.encode(["the cat sat"])
    whole, with_others = server.ask_tokens([ids]), server.ask_tokens([[ids[0], 10**9, PAD_ID, -1, *ids[1:]]])
    assert with_others["outputs"].tolist() == whole["outputs"].tolist()
    assert with_others["scores"] == pytest.approx(whole["scores"], abs=1e-6)


def test_scores_are_those_of_given_translations(server: Server) -> None:
    sources, targets = ["the dog", "a cat", "", "the dog"], ["a cat sat", "", "the", "a cat sat"]
    expected = server.translator.score(sources, targets)
    found = server.ask("score", sources, targets)
    assert found["log_probs"] == pytest.approx([each.log_prob for each in expected], abs=1e-4)
    assert found["lengths"].tolist() == [len(each.token_scores) for each in expected]


def test_empty_requests_get_empty_answers(server: Server) -> None:
    assert {name: value.shape for name, value in server.ask("nbest", []).items()} == {
        "outputs": (0, 2), "scores": (0, 2),
    }  # fmt: skip
    assert {name: value.shape for name, value in server.ask("score", [], []).items()} == {
        "log_probs": (0,), "lengths": (0,),
    }  # fmt: skip
    for rows, count in (([], 0), ([[], []], 2), ([[PAD_ID, PAD_ID]], 1)):
        found = server.ask_tokens(rows)
        assert found["outputs"].shape[0] == count and not found["outputs"].any()
        assert found["scores"].tolist() == [0] * count


def test_versions_count_up(echo: Translator, tmp_path: Path) -> None:
    export_dir = tmp_path / "new" / "export"
    assert [export(echo, export_dir).name for _ in range(2)] == ["1", "2"]
    for name in ("10", "notes"):
        (export_dir / name).mkdir()
    path = export(echo, export_dir)
    assert path == export_dir / "11"
    assert path.stat().st_mode & 0o777 == 0o755
    assert {entry.name for entry in export_dir.iterdir()} == {"1", "2", "10", "11", "notes"}
    assert (path / "saved_model.pb").is_file()


def test_a_server_never_sees_half_of_one(echo: Translator, tmp_path: Path) -> None:
    seen: list[str] = []

    def look(folder: Path) -> None:
        assert (folder / "saved_model.pb").exists()
        seen.extend(path.name for path in tmp_path.iterdir())

    assert export(echo, tmp_path, look).name == "1"
    assert len(seen) == 1 and not seen[0].isdecimal()


def test_a_full_disk_leaves_nothing_behind(echo: Translator, tmp_path: Path) -> None:
    export(echo, tmp_path)
    with largest_file(4096), pytest.raises(UserError, match="cannot be written") as error:
        export(echo, tmp_path)
    assert "\n" not in str(error.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["1"]
    assert export(echo, tmp_path).name == "2"


def test_a_place_that_cannot_be_written(echo: Translator, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match="cannot be written"):
            export(echo, place)
