"""Asks a served model: t2t-query-server --server=localhost:8500 --servable_name=wmt_ende --decode_from_file=x.en

The program sends requests to TensorFlow Serving over gRPC, or with --rest over the REST API. It writes one output line
for each input line, in the same order. Only "\\n" ends a line, and an empty input line gives an empty output line. If a
file name is omitted or "-", the program reads standard input or writes standard output. On a terminal it translates
each line as you type it.

A request has --batch_size lines. While the server is unavailable, the program repeats the request up to --retries
times. If some requests still fail, DECODE_TO_FILE.partial has the translations of the other lines, and an empty line
for each line without a translation. An error message then names the lines without a translation. If Ctrl-C, a full disk
or a kill ends the program early, DECODE_TO_FILE.partial has the lines translated so far.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from absl import flags

from t2t_repro.bin import program
from t2t_repro.console.progress import progress, say
from t2t_repro.console.quick_imports import quick_imports
from t2t_repro.console.quiet import quiet_tensorflow
from t2t_repro.data.vocabularies.text_rules import one_line
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import is_stream, put_in_place, refuse_irregular
from t2t_repro.files.textfile import decode_lines, read_lines, whole_file
from t2t_repro.serving.client import EMPTY, Answer, Client, RequestError

HISTORY = Path("~/.t2t_query_server_history")
PARTIAL = ".partial"
"""End of the name of the file that has the lines translated so far."""
MAX_FAILURES = 3
"""Number of failed requests in a row after which the program sends no further lines."""
MAX_RANGES = 10
"""Maximum number of line ranges that an error message lists."""

FLAGS = flags.FlagValues()
for name, default, text in (
    ("server", "", "host:port of the server; the default port is 8500, or 8501 with --rest"),
    ("servable_name", "", "name of the model on the server"),
    ("signature_name", "serving_default", "serving_default, or nbest: n outputs per line, each followed by its score"),
    ("inputs_once", "", "text to translate instead of a file"),
    ("decode_from_file", "", "file to translate, plain or .gz; standard input by default and with -"),
    ("decode_to_file", "", "file, pipe or device to write; standard output by default and with -"),
):
    flags.DEFINE_string(name, default, text, flag_values=FLAGS)
flags.DEFINE_bool("rest", False, "use TensorFlow Serving's REST API, not gRPC", flag_values=FLAGS)
RETRIES = "how often to repeat a request while the server is unavailable, after 0.5 s, 1 s, 2 s, ... up to 30 s"
for name, number, bounds, text in (
    ("servable_version", None, (0, 2**63 - 1), "version of the model; default: the server's latest"),
    ("batch_size", 32, (1, 1_000_000), "lines per request"),
    ("retries", 4, (0, 1000), RETRIES),
):
    flags.DEFINE_integer(name, number, text, *bounds, flag_values=FLAGS)
flags.DEFINE_float("timeout_secs", 10.0, "seconds after which a request fails", 0.001, 1e6, flag_values=FLAGS)
flags.register_validator("timeout_secs", lambda secs: not math.isnan(secs), "give a number", flag_values=FLAGS)


def main(values: flags.FlagValues) -> None:
    """Translates the text that the flags select: --inputs_once, a file, standard input or typed lines."""
    program.require(values, "server", "servable_name")
    for name in ("decode_from_file", "decode_to_file", "batch_size"):
        if values["inputs_once"].present and values[name].present:
            raise UserError(f"--{name} has no effect with --inputs_once; omit one")
    has_file = values.decode_from_file not in program.STANDARD_STREAMS
    lines = list(read_lines(values.decode_from_file)) if has_file else None
    inputs = [] if values["inputs_once"].present else program.file_inputs(values, "decode_from_file")
    with program.output(values.decode_to_file, PARTIAL, inputs) as output:
        run_mode(values, lines, output)


def run_mode(values: flags.FlagValues, lines: Sequence[str] | None, output: Path | None) -> None:
    """Translates the text that the flags select.

    Args:
        lines: the lines of the input file; None if there is no input file.
        output: the output file or stream; None for standard output.
    """
    # Silence gRPC's own messages. This program's error messages already say why a request failed.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if not values.rest:
        with quiet_tensorflow(), quick_imports():  # importing tensorflow-serving-api imports TensorFlow
            importlib.import_module("tensorflow_serving.apis.prediction_service_pb2_grpc")
    with Client(
        values.server,
        values.servable_name,
        rest=values.rest,
        signature_name=values.signature_name,
        version=values.servable_version,
        timeout_secs=values.timeout_secs,
        retries=values.retries,
        tell=say,
    ) as client:
        if values["inputs_once"].present:
            write(client.translate([values.inputs_once]), values)
        elif lines is not None:
            translate(client, lines, Output(output, len(lines)), values)
        elif output is None and sys.stdin.isatty() and sys.stdout.isatty():
            translate_typed(client, values)
        else:
            translate(client, decode_lines(sys.stdin.buffer, "standard input"), Output(output, None), values)


def translate_typed(client: Client, values: flags.FlagValues) -> None:
    """Translates each line that the user types. If a line fails, prints the error and continues with the next line."""
    for text in program.typed_lines(HISTORY):
        try:
            write(client.translate([text]), values)
        except UserError as error:
            say(str(error))


@dataclass(frozen=True)
class Output:
    """The file or stream to which `translate` writes the answers, and the number of lines in its input."""

    path: Path | None
    """The output file or stream; None for standard output."""
    lines: int | None
    """Number of input lines; None if it is unknown."""

    @property
    def is_stream(self) -> bool:
        return self.path is None or is_stream(self.path)


def translate(client: Client, lines: Iterable[str], output: Output, values: flags.FlagValues) -> None:
    """Translates the lines of a file or of standard input and writes the answers.

    Raises:
        UserError: some lines have no answer. Before that, this function writes the answers to the other lines.
    """
    source = "standard input" if values.decode_from_file in program.STANDARD_STREAMS else values.decode_from_file
    requests = Requests(client, values.batch_size, output.is_stream)
    batches = requests.answers(lines)
    if output.lines is not None and not (output.path is None and sys.stdout.isatty()):
        batches = progress(batches, "translating", output.lines, "lines", size=len)
    if output.path is None or output.is_stream:
        with contextlib.nullcontext() if output.path is None else whole_file(output.path) as file:
            for answers in batches:
                write(answers, values, file)
        if requests.lost:
            raise UserError(f"{source}: no answer for {ranges(requests.lost)}: {requests.reason}")
    else:
        write_file(output.path, batches, requests, source, values)


def write_file(
    output: Path, batches: Iterator[list[Answer]], requests: Requests, source: str, values: flags.FlagValues
) -> None:
    """Writes the answers to OUTPUT.partial, which becomes OUTPUT if every line has an answer."""
    partial = output.with_name(output.name + PARTIAL)
    refuse_irregular(partial)
    batches = from_first_output(batches, requests)
    start = next(batches, [])  # If nothing can be translated, this raises, and the .partial of an earlier run stays.
    try:
        with open(partial, "wb") as file:
            for answers in itertools.chain([start], batches):
                write(answers, values, file)
            os.fsync(file.fileno())  # so that a crash of the machine cannot leave an empty OUTPUT
    except BaseException as error:
        if partial.exists():
            say(f"{partial} has the lines translated so far")
        if isinstance(error, OSError):
            raise UserError(f"{partial}: cannot be written ({error.strerror}); free space or change the path") from None
        raise
    if requests.lost:
        raise UserError(
            f"{source}: no answer for {ranges(requests.lost)}, which are empty in {partial}: {requests.reason}"
        )
    try:
        put_in_place(partial, output)
    except OSError as error:
        raise UserError(f"{output}: cannot be written ({error.strerror}); the translation is in {partial}") from None


def from_first_output(batches: Iterable[list[Answer]], requests: Requests) -> Iterator[list[Answer]]:
    """Yields the answers in batches. The first batch holds all answers until the server has translated a line.

    So the caller can wait for the first translation before it writes a file. If no line is translated, the only batch
    holds all answers.
    """
    waiting: list[Answer] = []
    for answers in batches:
        waiting += answers
        if requests.has_outputs:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


class Requests:
    """Sends lines to the server in batches, and records which lines get no answer.

    Args:
        client: the connection to the model.
        batch_size: lines per request.
        is_stream: True if the answers go to a stream, False if they go to a file. If failures stop the sending,
            `answers` ends early for a stream. For a file, it yields an empty answer for each remaining line.
    """

    def __init__(self, client: Client, batch_size: int, is_stream: bool) -> None:
        self._client, self._batch_size, self._is_stream = client, batch_size, is_stream
        self._failures = 0
        self._has_given_up = False
        self.has_outputs = False
        """True once the server has translated a line."""
        self.lost: list[tuple[int, int | None]] = []
        """Ranges of lines without answers: first and last line, counted from 1. None means up to the end of input."""
        self.reason = ""
        """Error message of the first request that failed."""

    def answers(self, lines: Iterable[str]) -> Iterator[list[Answer]]:
        """Yields the answers to each batch of lines. Raises UserError if no line could be translated.

        If a request fails, its lines get empty answers. The remaining lines are not sent after `MAX_FAILURES` failed
        requests in a row, or after an error that every other request would have too.
        """
        lines, number = iter(lines), 0
        while batch := list(itertools.islice(lines, self._batch_size)):
            answers = self._send(batch)
            if not answers:
                is_end = self._has_given_up and self._is_stream
                follows = self.lost and self.lost[-1][1] == number
                range_start = self.lost.pop()[0] if follows else number + 1
                self.lost.append((range_start, None if is_end else number + len(batch)))
                if is_end:
                    return
            yield answers or [EMPTY] * len(batch)
            number += len(batch)
        if self.lost and not self.has_outputs and not self._is_stream:
            raise UserError(self.reason)

    def _send(self, batch: list[str]) -> list[Answer]:
        """Returns the server's answers to a batch, or [] if the request fails or an earlier failure stopped sending."""
        if self._has_given_up:
            return []
        try:
            answers = self._client.translate(batch)
        except UserError as error:
            self._failures += 1
            self.reason = self.reason or str(error)
            if not isinstance(error, RequestError) or self._failures == MAX_FAILURES:
                if not self.has_outputs:
                    raise
                self._has_given_up = True
            return []
        if any(answer.outputs for answer in answers):  # False if all lines are empty, because they were not sent
            self._failures, self.has_outputs = 0, True
        return answers


def ranges(lost: Sequence[tuple[int, int | None]]) -> str:
    """Returns the ranges of lines without answers as words for a message, e.g. "lines 1-32, 65 to the end"."""
    words = []
    for start, last in lost[:MAX_RANGES]:
        end = " to the end" if last is None else f"-{last:,}" if last > start else ""
        words.append(f"{start:,}{end}")
    if len(lost) > MAX_RANGES:
        words.append(f"{len(lost) - MAX_RANGES:,} more ranges")
    return f"{'line' if words[0].isdecimal() and len(words) == 1 else 'lines'} {', '.join(words)}"


def write(answers: Sequence[Answer], values: flags.FlagValues, file: IO[bytes] | None = None) -> None:
    """Writes a line for each answer to a file; None stands for standard output.

    The line is the output, or for --signature_name=nbest all outputs and scores.
    """
    lines = []
    for answer in answers:
        cells = [answer.text]
        if values.signature_name != "serving_default":
            texts = (text.replace("\t", " ") for text in answer.outputs)
            cells = [f"{text}\t{score:.6f}" for text, score in zip(texts, answer.scores, strict=True)]
        lines.append(one_line("\t".join(cells)))
    program.write_lines(lines, file)


run = program.entry_point(main, FLAGS, __doc__)

if __name__ == "__main__":
    run()
