"""t2t-query-server sends lines to served models and writes the translations."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import tensorflow as tf

from programs import error, refused, run, succeed, write_lines
from serving import Faults, Served, serve

LINES = [
    "the dog",
    "",
    "a\u0085b\u2028c",
    "Ω 漢",
    "   ",
    *(f"line {number}" for number in range(6, 101)),
    "",
    "a\rb",
]
COPIED = [line if line.strip() else "" for line in LINES]


def breaks(inputs: Any) -> dict[str, Any]:
    return {"outputs": inputs + "\n|\t|", "scores": tf.fill([tf.size(inputs)], -1.5)}


@pytest.fixture(scope="module")
def servers() -> Iterator[Served]:
    """Serves two models: "echo" copies its input, and the outputs of "breaks" contain newlines and
    tabs.
    """
    echo = {
        "serving_default": lambda inputs: {"outputs": inputs, "scores": tf.zeros(tf.size(inputs))}
    }
    with serve(
        {"echo": {1: echo}, "breaks": {1: {"serving_default": breaks, "n": breaks}}}
    ) as served:
        yield served


@pytest.fixture
def served(servers: Served) -> Served:
    servers.reset()
    return servers


@pytest.fixture
def flags(served: Served) -> list[str]:
    return [
        f"--server={served.rest}",
        "--servable_name=echo",
        "--timeout_secs=60",
        "--rest",
        "--retries=0",
    ]


def text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def read(path: Path) -> str:
    return path.read_bytes().decode()


@pytest.mark.parametrize("interface", ["grpc", "rest"])
def test_a_file_is_translated_line_by_line(interface: str, served: Served, tmp_path: Path) -> None:
    flags = [
        f"--server={getattr(served, interface)}",
        f"--rest={interface == 'rest'}",
        "--servable_name=echo",
    ]
    write_lines(tmp_path / "x.en", LINES)
    (tmp_path / "x.de.partial").write_text("from an earlier run")
    files = ["--decode_from_file=x.en", "--decode_to_file=x.de", "--batch_size=40"]
    result = succeed("query-server", *flags, *files, cwd=tmp_path)
    assert (result.stdout, result.stderr) == ("", "")
    assert read(tmp_path / "x.de") == text(COPIED)
    assert served.batches == [38, 40, 21]  # of 102 lines, 3 are empty and not sent
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.de", "x.en"]


def test_standard_streams_and_compressed_files(flags: list[str], tmp_path: Path) -> None:
    output = f"--decode_to_file={tmp_path / 'new' / 'x.de'}"
    for files in (["--decode_from_file=-", "--decode_to_file=-"], [output]):
        piped = succeed("query-server", *flags, *files, input=text(LINES))
        assert (piped.stdout or read(tmp_path / "new" / "x.de"), piped.stderr) == (text(COPIED), "")
    path = write_lines(tmp_path / "x.en.gz", LINES)
    assert succeed("query-server", *flags, f"--decode_from_file={path}").stdout == text(COPIED)
    for once in ("the  Ω", ""):
        assert (
            succeed("query-server", *flags, f"--inputs_once={once}", input="not read\n").stdout
            == f"{once}\n"
        )
    assert succeed("query-server", *flags, input="").stdout == ""
    # Newlines and tabs in an output become spaces.
    flags = [*flags, "--servable_name=breaks"]
    for signature, expected in (("serving_default", "a |\t|\n\n"), ("n", "a | |\t-1.500000\n\n")):
        assert (
            succeed("query-server", *flags, f"--signature_name={signature}", input="a\n\n").stdout
            == expected
        )


def test_with_batches_of_one_each_line_is_answered_at_once(flags: list[str]) -> None:
    """In a process without TensorFlow, which the REST interface does not need."""
    code = (
        "import sys\nfrom t2t_repro.bin import t2t_query_server\n"
        "try: t2t_query_server.run()\n"
        "finally: print([name for name in ('tensorflow', 'keras') if name in sys.modules])"
    )
    arguments = [sys.executable, "-c", code, *flags, "--batch_size=1"]
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
        assert (process.wait(), process.stdout.read()) == (0, b"[]\n")


def test_a_failed_request_ends_the_program_and_earlier_lines_stay(
    flags: list[str], served: Served, tmp_path: Path
) -> None:
    write_lines(tmp_path / "x.en", LINES)
    (tmp_path / "x.de").write_text("from an earlier run")
    served.faults = Faults("line 23", code=grpc.StatusCode.INTERNAL)
    files = ["--decode_from_file=x.en", "--decode_to_file=x.de", "--batch_size=10"]
    result = run("query-server", *flags, *files, cwd=tmp_path)
    refused(result, "no translation from line 21 on: ", "«broke»")
    assert "x.de.partial has the lines translated so far\n" in result.stderr
    assert read(tmp_path / "x.de.partial") == text(COPIED[:20])
    assert served.batches == [8, 10, 10]
    streamed = run("query-server", *flags, files[0], "--batch_size=1", cwd=tmp_path)
    refused(streamed, "no translation from line 23 on: ")
    assert streamed.stdout == text(COPIED[:22])
    # Fails at the first line: what an earlier run has translated stays.
    served.faults = Faults(unavailable=1)
    refused(
        run("query-server", *flags, *files, cwd=tmp_path),
        "from line 1 on",
        "check that a server is ready",
    )
    assert read(tmp_path / "x.de.partial") == text(COPIED[:20])
    assert (tmp_path / "x.de").read_text() == "from an earlier run"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.de", "x.de.partial", "x.en"]


def test_an_old_link_in_place_of_the_partial_file_is_not_followed(
    flags: list[str], tmp_path: Path
) -> None:
    (tmp_path / "x.de.partial").symlink_to("mine")
    (tmp_path / "mine").write_text("a file of the user")
    succeed("query-server", *flags, "--inputs_once=a", "--decode_to_file=x.de", cwd=tmp_path)
    assert (read(tmp_path / "mine"), read(tmp_path / "x.de")) == ("a file of the user", "a\n")
    full = error("query-server", *flags, "--inputs_once=a", "--decode_to_file=/dev/full")
    assert full.startswith("/dev/full: cannot be written")


def test_text_that_is_not_utf_8_leaves_no_file(flags: list[str], tmp_path: Path) -> None:
    result = run(
        "query-server", *flags, "--decode_to_file=x.de", input="one\nz\udcfcei\n", cwd=tmp_path
    )
    refused(result, "standard input:2: not UTF-8")
    assert not list(tmp_path.iterdir())
