"""Asks a served model: t2t-query-server --server=localhost:8500 --servable_name=wmt_ende --decode_from_file=x.en

It speaks gRPC with TensorFlow Serving, or with --rest its REST API. N lines in give N lines out, in order. Only "\\n"
ends a line, and an empty line gives an empty one. Without files, or with "-", it reads standard input and writes
standard output. On a terminal it translates each line as you type it.

Each request has --batch_size lines. A request is repeated while the server is unavailable. If some requests fail
anyway, DECODE_TO_FILE.partial has the lines that were translated, and an error names the others, which are empty there.
After Ctrl-C, a full disk or a kill that file has the lines up to that moment.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import flags

from t2t_repro.bin import program
from t2t_repro.data.text_rules import one_line
from t2t_repro.errors import UserError
from t2t_repro.progress import progress, say
from t2t_repro.serving.client import EMPTY, Answer, Client, RequestError
from t2t_repro.textfile import decode_lines, read_lines

HISTORY = Path("~/.t2t_query_server_history")
MAX_FAILURES = 3
"""Number of requests in a row that may fail before the other lines are given up."""
MAX_RANGES = 10
"""Number of ranges of lines that an error names."""

FLAGS = flags.FlagValues()
for name, default, text in (
    ("server", "", "host:port of the server; the default port is 8500, or 8501 with --rest"),
    ("servable_name", "", "name of the model on the server"),
    ("signature_name", "serving_default", "serving_default, or nbest: n outputs, each followed by its score"),
    ("inputs_once", "", "translate only this text"),
    ("decode_from_file", "", "text to translate, plain or .gz; default, and -: standard input"),
    ("decode_to_file", "", "file to write; default, and -: standard output"),
):
    flags.DEFINE_string(name, default, text, flag_values=FLAGS)
flags.DEFINE_bool("rest", False, "use TensorFlow Serving's REST API, not gRPC", flag_values=FLAGS)
flags.DEFINE_integer(
    "servable_version", None, "version of the model; default: the server's latest", lower_bound=0, flag_values=FLAGS
)
flags.DEFINE_integer("batch_size", 32, "lines per request", lower_bound=1, flag_values=FLAGS)
flags.DEFINE_float("timeout_secs", 10.0, "longest time that a request may take", lower_bound=0.001, flag_values=FLAGS)
flags.DEFINE_integer(
    "retries",
    4,
    "how often a request is repeated while the server is unavailable, after 0.5 s, 1 s, 2 s, ... up to 30 s",
    lower_bound=0,
    flag_values=FLAGS,
)


def main(values: flags.FlagValues) -> None:
    """Reads the flags and translates."""
    program.require(values, "server", "servable_name")
    for name in ("decode_from_file", "decode_to_file"):
        if values.inputs_once and values[name].value:
            raise UserError(f"--{name} does nothing beside --inputs_once; omit one")
    has_file = values.decode_from_file not in program.STANDARD_STREAMS
    lines = list(read_lines(values.decode_from_file)) if has_file else []
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # our errors repeat what gRPC would print
    if not values.rest:
        with program.quiet_tensorflow():  # tensorflow-serving-api imports it
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
        if values.inputs_once:
            translate_once(client, values)
        elif has_file:
            translate(client, lines, len(lines), values)
        elif values.decode_to_file in program.STANDARD_STREAMS and sys.stdin.isatty() and sys.stdout.isatty():
            translate_typed(client, values)
        else:
            translate(client, decode_lines(sys.stdin.buffer, "standard input"), None, values)


def translate_once(client: Client, values: flags.FlagValues) -> None:
    """Translates --inputs_once."""
    try:
        values.inputs_once.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError("--inputs_once: not UTF-8; convert it, e.g. with iconv") from None
    write(client.translate([values.inputs_once]), values)


def translate_typed(client: Client, values: flags.FlagValues) -> None:
    """Translates each line that the user types. After an error the user can send the line again from the history."""
    for text in program.typed_lines("> ", HISTORY):
        try:
            write(client.translate([text]), values)
        except UserError as error:
            print(error, file=sys.stderr, flush=True)


def translate(client: Client, lines: Iterable[str], total: int | None, values: flags.FlagValues) -> None:
    """Translates a file or a stream.

    Args:
        total: number of lines; None if it is unknown.

    Raises:
        UserError: some lines have no answer; the others are written.
    """
    source = "standard input" if values.decode_from_file in program.STANDARD_STREAMS else values.decode_from_file
    is_stream = values.decode_to_file in program.STANDARD_STREAMS
    requests = Requests(client, values.batch_size, is_stream)
    batches = requests.answers(lines)
    if total is not None and not (is_stream and sys.stdout.isatty()):
        batches = progress(batches, "translating", total, "lines", size=len)
    if is_stream:
        for answers in batches:
            write(answers, values)
        if requests.lost:
            raise UserError(f"{source}: no answer for {ranges(requests.lost)}: {requests.lost[0].reason}")
    else:
        write_file(batches, requests, source, values)


def write_file(batches: Iterator[list[Answer]], requests: Requests, source: str, values: flags.FlagValues) -> None:
    """Writes answers to --decode_to_file, or to a file beside it if some lines have no answer."""
    output = Path(values.decode_to_file)
    partial = output.with_name(f"{output.name}.partial")
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as file:
            for answers in batches:
                file.write(as_lines(answers, values))
                file.flush()
    except BaseException as error:
        if requests.has_outputs:
            say(f"{partial} has the lines up to here")
        else:
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UserError(f"{partial}: cannot be written ({error.strerror}); free space or choose another") from None
        raise
    if requests.lost:
        raise UserError(
            f"{source}: no answer for {ranges(requests.lost)}, left empty in {partial} beside the others: "
            f"{requests.lost[0].reason}"
        )
    try:
        os.replace(partial, output)
    except OSError as error:
        raise UserError(f"{output}: cannot be written ({error.strerror}); the translation is in {partial}") from None


@dataclass(frozen=True)
class Lost:
    """Lines that got no answer."""

    first: int
    """Number of the first line, counted from 1."""
    last: int | None
    """Number of the last line; None if all lines after the first are lost."""
    reason: str


class Requests:
    """Sends lines in batches and records the lines that get no answer.

    Args:
        client: the connection to the model.
        batch_size: lines per request.
        is_stream: True to end when the rest is given up; False to give the other lines empty answers.
    """

    def __init__(self, client: Client, batch_size: int, is_stream: bool) -> None:
        self._client, self._batch_size, self._is_stream = client, batch_size, is_stream
        self._failures = 0
        self._given_up = ""
        """Why the rest is given up."""
        self.has_outputs = False
        """True once a line has been translated."""
        self.lost: list[Lost] = []

    def answers(self, lines: Iterable[str]) -> Iterator[list[Answer]]:
        """Yields the answers to each batch of lines.

        If a request fails, its lines get empty answers. After `MAX_FAILURES` in a row, or an error that every request
        would meet, the rest is given up.

        Raises:
            UserError: no line could be translated.
        """
        lines, number = iter(lines), 0
        while batch := list(itertools.islice(lines, self._batch_size)):
            answers, reason = self._send(batch)
            if self._given_up and self._is_stream:
                self.lost.append(Lost(number + 1, None, reason))
                return
            if reason:
                self.lost.append(Lost(number + 1, number + len(batch), reason))
            yield answers
            number += len(batch)
        if self.lost and not self.has_outputs and not self._is_stream:
            raise UserError(self.lost[0].reason)

    def _send(self, batch: list[str]) -> tuple[list[Answer], str]:
        """Returns the answers to a batch and "", or empty answers and the reason for them."""
        empty = [EMPTY] * len(batch)
        if self._given_up:
            return empty, self._given_up
        try:
            answers = self._client.translate(batch)
        except UserError as error:
            self._failures += 1
            if not isinstance(error, RequestError) or self._failures == MAX_FAILURES:
                if not self.has_outputs:
                    raise
                self._given_up = str(error)
            return empty, str(error)
        self._failures = 0
        self.has_outputs |= any(answer.outputs for answer in answers)
        return answers, ""


def ranges(lost: Sequence[Lost]) -> str:
    """Returns the lines in words, e.g. "lines 1-32, 65 to the end"."""
    joined: list[tuple[int, int | None]] = []
    for lines in lost:
        if joined and joined[-1][1] == lines.first - 1:
            joined[-1] = (joined[-1][0], lines.last)
        else:
            joined.append((lines.first, lines.last))
    words = []
    for first, last in joined[:MAX_RANGES]:
        end = " to the end" if last is None else f"-{last:,}" if last > first else ""
        words.append(f"{first:,}{end}")
    if len(joined) > MAX_RANGES:
        words.append(f"{len(joined) - MAX_RANGES:,} more ranges")
    return f"{'line' if words[0].isdecimal() and len(words) == 1 else 'lines'} {', '.join(words)}"


def write(answers: Sequence[Answer], values: flags.FlagValues) -> None:
    """Writes answers to standard output."""
    sys.stdout.buffer.write(as_lines(answers, values))
    sys.stdout.buffer.flush()


def as_lines(answers: Sequence[Answer], values: flags.FlagValues) -> bytes:
    """Returns a line of text for each answer."""
    return "".join(f"{as_line(answer, values.signature_name)}\n" for answer in answers).encode("utf-8")


def as_line(answer: Answer, signature_name: str) -> str:
    """Returns the output. For signatures other than serving_default: all outputs and scores, separated by tabs."""
    if signature_name == "serving_default":
        return one_line(answer.text)
    texts = [one_line(text).replace("\t", " ") for text in answer.outputs]
    return "\t".join(f"{text}\t{score:.6f}" for text, score in zip(texts, answer.scores, strict=True))


def run() -> None:
    """The program t2t-query-server."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
