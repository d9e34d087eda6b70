"""t2t-query-server sends lines to served models and writes the translations, also if some requests fail.

Tests whose result may depend on the interface run with gRPC and with REST, the others with one of the two.
"""

from __future__ import annotations

import gzip
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf

from models import Copier
from programs import TrainedModel, command, refused, run, succeed
from serving import Faults, Served, serve
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.decoding.translator import Translator
from t2t_repro.files.output_files import only_writer
from t2t_repro.hparam import DecodeHParams
from t2t_repro.serving.export import export
from terminals import terminal

LINES = ["the dog", "", "a\u0085b\u2028c", "Ω 漢", "   ", *(f"line {number}" for number in range(6, 101)), "", "cat"]
COPIED = [line if line.strip() else "" for line in LINES]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serves two models: "echo" copies its input, and the outputs of "breaks" contain newlines and tabs."""
    folder = tmp_path_factory.mktemp("served")
    words = sentencepiece.train(["the dog", "a cat", "the cat sat on the dog"], 290)
    path = export(Translator(Copier(words.size), words, DecodeHParams(beam_size=1, extra_length=3)), folder)
    module = tf.Module()
    module.call = tf.function(
        lambda inputs: {"outputs": inputs + "\n|\t|", "scores": tf.zeros_like(inputs, tf.float32) - 1.5},
        autograph=False,
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, str(folder / "breaks"), signatures={"serving_default": module.call, "n": module.call})
    with serve({"echo": {1: path}, "breaks": {1: folder / "breaks"}}) as served:
        served.predict("echo", None, "serving_default", {"inputs": np.array(["warm"])})
        yield served


@pytest.fixture
def served(servers: Served) -> Served:
    """Returns the module's server after clearing its simulated faults and its record of requests."""
    servers.faults = Faults()
    servers.batches.clear()
    return servers


@pytest.fixture(params=["grpc", "rest"])
def flags(request: pytest.FixtureRequest, served: Served) -> list[str]:
    """Returns t2t-query-server's flags for the server, the model "echo" and the interface (gRPC or REST)."""
    rest = ["--rest"] if request.param == "rest" else []
    return [f"--server={getattr(served, request.param)}", "--servable_name=echo", "--timeout_secs=60", *rest]


def write_lines(path: Path, lines: list[str]) -> str:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return str(path)


def read_lines(path: Path) -> list[str]:
    text = path.read_bytes().decode()
    assert text.endswith("\n")
    return text[:-1].split("\n")


def test_a_file_is_translated_line_by_line(flags: list[str], served: Served, tmp_path: Path) -> None:
    write_lines(tmp_path / "x.en", [*LINES, "a\rb"])
    (tmp_path / "x.de.partial").write_text("from an earlier run")
    result = succeed(
        "query-server", *flags, "--decode_from_file=x.en", "--decode_to_file=x.de", "--batch_size=40", cwd=tmp_path
    )
    assert (result.stdout, result.stderr) == ("", "")
    assert read_lines(tmp_path / "x.de") == [*COPIED, "a\rb"]
    assert served.batches == [38, 40, 22]  # of 103 lines, 3 are empty and not sent
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.de", "x.en"]


@pytest.mark.parametrize("flags", ["rest"], indirect=True)
def test_standard_streams_and_compressed_files(flags: list[str], tmp_path: Path) -> None:
    text = "".join(f"{line}\n" for line in LINES)
    expected = "".join(f"{line}\n" for line in COPIED)
    for files in ([], ["--decode_from_file=-", "--decode_to_file=-"]):
        piped = succeed("query-server", *flags, *files, input=text)
        assert (piped.stdout, piped.stderr) == (expected, "")
    (tmp_path / "x.en.gz").write_bytes(gzip.compress(text.encode()))
    assert succeed("query-server", *flags, f"--decode_from_file={tmp_path / 'x.en.gz'}").stdout == expected
    output = f"--decode_to_file={tmp_path / 'new' / 'x.de'}"
    assert succeed("query-server", *flags, output, input=text).stdout == ""
    assert read_lines(tmp_path / "new" / "x.de") == COPIED
    assert succeed("query-server", *flags, "--inputs_once=the  Ω").stdout == "the  Ω\n"
    assert succeed("query-server", *flags, "--inputs_once=", input="not read\n").stdout == "\n"
    assert run("query-server", *flags, input="").stdout == ""


@pytest.mark.parametrize("flags", ["rest"], indirect=True)
def test_newlines_and_tabs_in_an_output_become_spaces(flags: list[str]) -> None:
    flags = [*flags, "--servable_name=breaks"]
    assert run("query-server", *flags, input="a\n\nb\n").stdout == "a |\t|\n\nb |\t|\n"
    columns = run("query-server", *flags, "--signature_name=n", input="a\n\nb\n")
    assert columns.stdout == "a | |\t-1.500000\n\nb | |\t-1.500000\n"


@pytest.mark.parametrize("flags", ["rest"], indirect=True)
def test_with_batches_of_one_each_line_is_answered_at_once(flags: list[str]) -> None:
    arguments = [*command("query-server"), *flags, "--batch_size=1"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(arguments, env=environment, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b"one\n", b"\n", b"two\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert select.select([process.stdout], [], [], 60)[0]
            assert process.stdout.readline() == line
        process.stdin.close()
        assert process.wait() == 0


def test_a_trained_model_translates_as_the_translator(trained: TrainedModel, tmp_path: Path) -> None:
    translator = Translator.from_dir(str(trained.folder), beam_size=3, extra_length=5)
    sources = ["one thousand and two", "", "nine hundred", "café →"]
    expected = translator.translate(sources, return_beams=True)
    with serve({"numbers": {1: export(translator, tmp_path)}}) as served:
        for server in ([f"--server={served.grpc}"], [f"--server={served.rest}", "--rest"]):
            flags = [*server, "--servable_name=numbers", "--timeout_secs=60"]
            text = "".join(f"{line}\n" for line in sources)
            best = succeed("query-server", *flags, input=text)
            assert best.stdout == "".join(f"{translation.text}\n" for translation in expected)
            lines = succeed("query-server", *flags, "--signature_name=nbest", input=text).stdout.split("\n")
            assert lines[1] == lines[4] == ""
            for line, translation in zip(lines[:4], expected, strict=True):
                cells = line.split("\t") if line else []
                hypotheses = translation.hypotheses if line else ()
                assert cells[::2] == [hypothesis.text.replace("\t", " ") for hypothesis in hypotheses]
                scores = [float(cell) for cell in cells[1::2]]
                assert scores == pytest.approx([hypothesis.score for hypothesis in hypotheses], rel=1e-4)
                assert len(scores) == (3 if line else 0)


@pytest.mark.parametrize("flags", ["rest"], indirect=True)
def test_failed_lines_are_named_and_the_others_written(flags: list[str], served: Served, tmp_path: Path) -> None:
    write_lines(tmp_path / "x.en", LINES)
    (tmp_path / "x.de").write_text("from an earlier run")
    served.faults = Faults("line 23", code=grpc.StatusCode.INTERNAL)
    files = ["--decode_from_file=x.en", "--decode_to_file=x.de", "--batch_size=10"]
    result = run("query-server", *flags, *files, cwd=tmp_path)
    refused(result, "x.en: no answer for lines 21-30, which are empty in x.de.partial: ", "«broke»")
    assert result.stderr.count("\n") == 1
    assert read_lines(tmp_path / "x.de.partial") == [*COPIED[:20], *[""] * 10, *COPIED[30:]]
    assert (tmp_path / "x.de").read_text() == "from an earlier run"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.de", "x.de.partial", "x.en"]

    streamed = run("query-server", *flags, files[0], "--batch_size=1", cwd=tmp_path)
    refused(streamed, "x.en: no answer for line 23: ")
    assert streamed.stdout.split("\n")[:-1] == [*COPIED[:22], "", *COPIED[23:]]
    served.faults.text = "7"
    streamed = run("query-server", *flags, "--batch_size=1", input="".join(f"{line}\n" for line in LINES[:45]))
    refused(streamed, "standard input: no answer for lines 7, 17, 27, 37: ")
    assert streamed.stdout.split("\n")[:-1] == ["" if "7" in line else line for line in COPIED[:45]]


def test_only_the_batch_of_a_slow_request_fails(flags: list[str], served: Served, tmp_path: Path) -> None:
    write_lines(tmp_path / "x.en", LINES[:40])
    served.faults = Faults("line 23", seconds=3)
    files = ["--decode_from_file=x.en", "--decode_to_file=x.de", "--batch_size=10"]
    result = run("query-server", *flags, *files, "--timeout_secs=1", cwd=tmp_path)
    refused(result, "x.en: no answer for lines 21-30,", "no answer from localhost:", "within 1 s; raise --timeout_secs")
    assert read_lines(tmp_path / "x.de.partial") == [*COPIED[:20], *[""] * 10, *COPIED[30:40]]


@pytest.mark.parametrize("flags", ["rest"], indirect=True)
def test_the_program_gives_up_when_every_batch_fails(flags: list[str], served: Served, tmp_path: Path) -> None:
    write_lines(tmp_path / "x.en", LINES)
    files = ["--decode_from_file=x.en", "--decode_to_file=x.de", "--batch_size=10", "--retries=1"]
    served.faults = Faults("line 5", unavailable=1000)  # the server refuses "line 50" to "line 59"
    result = run("query-server", *flags, *files, cwd=tmp_path)
    refused(result, "x.en: no answer for lines 41-102,", "x.de.partial", "not available", "queue is full")
    assert read_lines(tmp_path / "x.de.partial") == [*COPIED[:40], *[""] * 62]
    assert served.faults.unavailable == 998
    streamed = run("query-server", *flags, *files[2:], input="".join(f"{line}\n" for line in LINES))
    refused(streamed, "standard input: no answer for lines 41 to the end: ")
    assert streamed.stdout.split("\n")[:-1] == COPIED[:40]

    served.faults = Faults("line", code=grpc.StatusCode.INTERNAL)  # refuses "line 6" to "line 100"
    served.batches.clear()
    result = run("query-server", *flags, *files, "--batch_size=4", cwd=tmp_path)
    refused(result, "x.en: no answer for lines 5-102,")
    assert served.batches == [3, 3, 4, 4]  # one batch succeeds; after three failures the program gives up


@pytest.mark.parametrize("flags", ["rest"], indirect=True)
def test_empty_lines_do_not_count_as_answers(flags: list[str], served: Served) -> None:
    served.faults = Faults("line", code=grpc.StatusCode.INTERNAL)
    served.batches.clear()
    result = run("query-server", *flags, "--batch_size=1", input="a\n" + "line\n\n" * 4)
    refused(result, "standard input: no answer for lines")
    assert served.batches == [1, 1, 1, 1]  # after three failures the program gives up


@pytest.mark.parametrize("flags", ["rest"], indirect=True)
def test_nothing_is_written_if_nothing_is_translated(flags: list[str], served: Served, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.en", LINES)
    files = [f"--decode_from_file={path}", f"--decode_to_file={tmp_path / 'new' / 'x.de'}"]
    served.faults = Faults(unavailable=2)
    result = run("query-server", *flags, *files, "--retries=1")
    refused(result, flags[0].removeprefix("--server="), "not available", "correct --server")
    assert result.stderr.count("\n") == 2
    assert "trying again for 0.5 s\n" in result.stderr
    served.faults = Faults(code=grpc.StatusCode.INTERNAL)
    refused(run("query-server", *flags, *files), "«broke»")
    refused(run("query-server", *flags, *files, "--batch_size=200"), "«broke»")
    refused(run("query-server", *flags, *files, "--servable_name=eco"), "serves no model 'eco'", "--servable_name")
    refused(
        run("query-server", *flags, *files, "--signature_name=best"), "there are: nbest, score, serving_default, tokens"
    )
    refused(
        run("query-server", *flags, *files, "--servable_version=7"),
        "no version 7; give --servable_version=1",
    )
    assert not list((tmp_path / "new").iterdir())
    with socket.socket() as bound:
        bound.bind(("localhost", 0))  # reserves a port on which no server listens
        server = f"localhost:{bound.getsockname()[1]}"
        began = time.monotonic()
        piped = run("query-server", f"--server={server}", *flags[1:], "--retries=0", input="a\n")
        assert time.monotonic() - began < 20
    refused(piped, f"{server}: not available", "Connection refused")
    assert (piped.stdout, piped.stderr.count("\n")) == ("", 1)


def test_bad_files_and_flags_are_named(served: Served, tmp_path: Path) -> None:
    flags = [f"--server={served.rest}", "--servable_name=echo", "--rest"]
    output = f"--decode_to_file={tmp_path / 'x.de'}"
    refused(run("query-server", flags[0]), "--servable_name is required")
    refused(run("query-server", flags[1]), "--server is required")
    refused(run("query-server", "--server=http://a:1", flags[1]), "give host:port")
    refused(run("query-server", *flags, f"--decode_from_file={tmp_path / 'none'}", output), "none: no such file")
    piped = run("query-server", *flags, output, input="one\nz\udcfcei\n")
    refused(piped, "standard input:2: not UTF-8")
    refused(run("query-server", *flags, "--inputs_once=a", output), "--decode_to_file has no effect with --inputs_once")
    refused(run("query-server", *flags, "--inputs_once=a", "--batch_size=2"), "--batch_size has no effect with")
    refused(run("query-server", *flags, "--inputs_once=z\udcfc"), "--inputs_once=z\\udcfc", "is not UTF-8")
    for flag in (
        "batch_size=0",
        "retries=1025",
        "servable_version=9223372036854775808",
        "timeout_secs=inf",
        "timeout_secs=nan",
        f"batch_size={10**20}",
    ):
        refused(run("query-server", *flags, f"--{flag}"), flag.partition("=")[0])
    refused(run("query-server", *flags, f"--decode_to_file={tmp_path}", input="a\n"), "is a folder; name a file")
    assert not list(tmp_path.iterdir())


def test_an_earlier_partial_stays_if_nothing_is_translated(served: Served, tmp_path: Path) -> None:
    (tmp_path / "x.de.partial").write_text("from an earlier run\n")
    write_lines(tmp_path / "x.en", LINES)
    flags = [f"--server={served.rest}", "--servable_name=echo", "--rest", "--decode_from_file=x.en", "--retries=0"]
    for served.faults in (Faults(unavailable=1), Faults(code=grpc.StatusCode.INTERNAL)):
        refused(run("query-server", *flags, "--decode_to_file=x.de", cwd=tmp_path))
    assert (tmp_path / "x.de.partial").read_text() == "from an earlier run\n"


def test_streams_are_written_and_inputs_are_not(served: Served, tmp_path: Path) -> None:
    flags = [f"--server={served.rest}", "--servable_name=echo", "--rest", "--batch_size=2"]
    for name, target in (("x.en", ""), ("x.de.partial", ""), ("link", "x.en"), ("stdout", "/proc/self/fd/1")):
        (tmp_path / name).symlink_to(target) if target else write_lines(tmp_path / name, ["one", "two", "three"])
    before = {path.name: (path.is_symlink(), path.name == "stdout" or path.read_bytes()) for path in tmp_path.iterdir()}
    for source, output in (("x.en", "link"), ("link", "x.en"), ("x.de.partial", "x.de")):
        result = run("query-server", *flags, f"--decode_from_file={source}", f"--decode_to_file={output}", cwd=tmp_path)
        refused(result, f"is also an input (--decode_from_file={source})", "choose another --decode_to_file")
    result = succeed("query-server", *flags, "--decode_from_file=x.en", "--decode_to_file=stdout", cwd=tmp_path)
    assert result.stdout == "one\ntwo\nthree\n"
    assert before == {
        path.name: (path.is_symlink(), path.name == "stdout" or path.read_bytes()) for path in tmp_path.iterdir()
    }
    with only_writer(tmp_path / "x.de", "--decode_to_file"):
        refused(run("query-server", *flags, "--decode_to_file=x.de", input="a\n", cwd=tmp_path), "another process")
    (tmp_path / "to").symlink_to("x.fr")
    succeed("query-server", *flags, "--decode_to_file=to", input="a\n", cwd=tmp_path)
    assert (tmp_path / "to").is_symlink() and (tmp_path / "x.fr").read_text() == "a\n"


@pytest.mark.parametrize("flags", ["grpc"], indirect=True)
def test_on_a_terminal_it_answers_line_by_line(flags: list[str], served: Served, tmp_path: Path) -> None:
    served.faults = Faults("bad", code=grpc.StatusCode.INTERNAL)
    output = b""
    streams = ["stdin", "stdout", "stderr"]
    with terminal("query_server", *flags, streams=streams, HOME=str(tmp_path), TERM="dumb") as prompt:
        output += prompt.read(b"> ")
        for keys, end in (
            (b"the cat\n", b"the cat\r\nthe cat\r\n> "),
            (b"bad\n", b"log\r\n> "),
            (b"a d\x7fcat\n", b"\r\na cat\r\n> "),
        ):
            prompt.type(keys)
            output += prompt.read(end)
        prompt.type(b"\x04")
        prompt.read()
    assert "«broke»" in output.decode()
    assert (tmp_path / ".t2t_query_server_history").read_text().split("\n")[:3] == ["the cat", "bad", "a cat"]


def test_rest_needs_no_tensorflow(served: Served) -> None:
    flags = [f"--server={served.rest}", "--servable_name=echo", "--timeout_secs=60", "--rest"]
    code = (
        "import sys\nfrom t2t_repro.bin import t2t_query_server\n"
        "try: t2t_query_server.run()\n"
        "except SystemExit: print([name for name in ('tensorflow', 'keras', 'numpy') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *flags, "--inputs_once=a"], capture_output=True, text=True, check=True
    )
    assert result.stdout == "a\n[]\n"
