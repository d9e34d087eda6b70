"""Asks a served model: t2t-query-server --server=localhost:8500 --servable_name=wmt_ende --decode_from_file=x.en

It speaks gRPC with TensorFlow Serving, or with --rest its REST API. N lines in give N lines out, in their order; a line
ends with "\\n" alone, and an empty line gives an empty one. Without files, or with "-", it reads standard input and
writes standard output; on a terminal it translates line by line as you type.

Lines are sent --batch_size at a time. Requests are repeated while the server is away. Where some fail in spite of it,
what came is in DECODE_TO_FILE.partial, and an error names the lines that are empty there; so it is after Ctrl-C, a full
disk, or a kill, up to the line where that came.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import flags

from t2t_repro.bin import program
from t2t_repro.data.text_rules import one_line
from t2t_repro.errors import UserError
from t2t_repro.progress import Progress, say
from t2t_repro.serving.client import EMPTY, Answer, Client, RequestError
from t2t_repro.textfile import decode_lines, read_lines

HISTORY = Path("~/.t2t_query_server_history")
MOST_FAILURES = 3
"""Requests that may fail one after the other before the rest is given up."""
MOST_RANGES = 10
"""Ranges of lines that an error names."""
SPACES = str.maketrans("\n\t", "  ")
"""An output is one cell of one line."""

FLAGS = flags.FlagValues()
for name, default, text in (
    ("server", "", "host:port of the server; the port is 8500, or with --rest 8501, if left out"),
    ("servable_name", "", "the model's name on the server"),
    ("signature_name", "serving_default", "serving_default, or nbest: n outputs, each followed by its score"),
    ("inputs_once", "", "translate this text alone"),
    ("decode_from_file", "", "text to translate, plain or .gz; default, and -: standard input"),
    ("decode_to_file", "", "where to write; default, and -: standard output"),
):
    flags.DEFINE_string(name, default, text, flag_values=FLAGS)
flags.DEFINE_bool("rest", False, "speak TensorFlow Serving's REST API in place of gRPC", flag_values=FLAGS)
flags.DEFINE_integer(
    "servable_version", None, "the model's version; default: the server's latest", lower_bound=0, flag_values=FLAGS
)
flags.DEFINE_integer("batch_size", 32, "lines of a request", lower_bound=1, flag_values=FLAGS)
flags.DEFINE_float("timeout_secs", 10.0, "how long a request may take", lower_bound=0.001, flag_values=FLAGS)
flags.DEFINE_integer(
    "retries",
    4,
    "how often a request is repeated while the server is away, after 0.5 s, 1 s, 2 s, ... up to 30 s",
    lower_bound=0,
    flag_values=FLAGS,
)


@dataclass(frozen=True)
class Lost:
    """Lines that got no answer."""

    first: int
    """Counted from 1."""
    last: int | None
    """None where all that follow are lost."""
    reason: str


def main(values: flags.FlagValues) -> None:
    """Reads the flags and translates."""
    program.require(values, "server", "servable_name")
    for name in ("decode_from_file", "decode_to_file"):
        if values.inputs_once and values[name].value:
            raise UserError(f"--{name} does nothing beside --inputs_once; leave one out")
    is_file = values.decode_from_file not in program.STANDARD_STREAMS
    lines = list(read_lines(values.decode_from_file)) if is_file else []
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it has to say is in our errors
    if not values.rest:
        with program.quiet_tensorflow():  # which tensorflow-serving-api imports
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
            answer(client, values.inputs_once, values)
        elif is_file:
            translate(client, lines, len(lines), values)
        elif values.decode_to_file in program.STANDARD_STREAMS and sys.stdin.isatty() and sys.stdout.isatty():
            converse(client, values)
        else:
            translate(client, decode_lines(sys.stdin.buffer, "standard input"), None, values)


def answer(client: Client, text: str, values: flags.FlagValues) -> None:
    """Writes the answer to one text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError("--inputs_once: not UTF-8; convert it, e.g. with iconv") from None
    write(client.translate([text]), values)


def converse(client: Client, values: flags.FlagValues) -> None:
    """Translates line by line; a line that failed is in the history, to be sent again."""
    for text in program.typed_lines("> ", HISTORY):
        try:
            write(client.translate([text]), values)
        except UserError as error:
            print(error, file=sys.stderr, flush=True)


def translate(client: Client, lines: Iterable[str], total: int | None, values: flags.FlagValues) -> None:
    """Translates a file or a stream.

    Raises:
        UserError: some lines have no answer; the others are written.
    """
    source = "standard input" if values.decode_from_file in program.STANDARD_STREAMS else values.decode_from_file
    if values.decode_to_file in program.STANDARD_STREAMS:
        lost = send(client, lines, total, values, lambda answers: write(answers, values), is_stream=True)
        if lost:
            raise UserError(f"{source}: no answer for {ranges(lost)}: {lost[0].reason}")
        return
    output = Path(values.decode_to_file)
    partial = output.with_name(f"{output.name}.partial")
    has_some = False

    def put(answers: Sequence[Answer]) -> None:
        nonlocal has_some
        has_some |= any(each.outputs for each in answers)
        file.write(contents(answers, values))
        file.flush()

    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as file:
            lost = send(client, lines, total, values, put)
    except BaseException as error:
        if has_some:
            say(f"{partial}: what came until then")
        else:
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UserError(f"{partial}: cannot be written ({error.strerror}); free space or choose another") from None
        raise
    if lost:
        raise UserError(
            f"{source}: no answer for {ranges(lost)}, left empty in {partial} beside the others: {lost[0].reason}"
        )
    try:
        os.replace(partial, output)
    except OSError as error:
        raise UserError(f"{output}: cannot be written ({error.strerror}); the translation is in {partial}") from None


def send(
    client: Client,
    lines: Iterable[str],
    total: int | None,
    values: flags.FlagValues,
    put: Callable[[Sequence[Answer]], object],
    is_stream: bool = False,
) -> list[Lost]:
    """Sends lines in batches, and gives `put` the answers to each.

    Where a request fails its lines get empty answers. After some in a row, or where no other can do better, the rest
    get them without being sent; a stream ends there.

    Returns:
        The lines without an answer.

    Raises:
        UserError: no line has got one.
    """
    lost: list[Lost] = []
    given_up = ""
    number = translated = failures = 0
    progress = None if total is None or (is_stream and sys.stdout.isatty()) else Progress("translating", total, "lines")
    lines = iter(lines)
    while batch := list(itertools.islice(lines, values.batch_size)):
        answers, reason = [EMPTY] * len(batch), given_up
        if not given_up:
            try:
                answers = client.translate(batch)
                translated += sum(bool(each.outputs) for each in answers)
                failures = 0
            except UserError as error:
                reason = str(error)
                failures += 1
                if not isinstance(error, RequestError) or failures == MOST_FAILURES:
                    if not translated:
                        raise
                    given_up = reason
        if given_up and is_stream:
            lost.append(Lost(number + 1, None, reason))
            break
        if reason:
            lost.append(Lost(number + 1, number + len(batch), reason))
        put(answers)
        number += len(batch)
        if progress:
            progress.advance(len(batch))
    if progress:
        progress.close()
    if lost and not translated and not is_stream:
        raise UserError(lost[0].reason)
    return lost


def ranges(lost: Sequence[Lost]) -> str:
    """The lines in words, e.g. "lines 1-32, 65 to the end"."""
    joined: list[tuple[int, int | None]] = []
    for each in lost:
        if joined and joined[-1][1] == each.first - 1:
            joined[-1] = (joined[-1][0], each.last)
        else:
            joined.append((each.first, each.last))
    words = []
    for first, last in joined[:MOST_RANGES]:
        to = " to the end" if last is None else f"-{last:,}" if last > first else ""
        words.append(f"{first:,}{to}")
    if len(joined) > MOST_RANGES:
        words.append(f"{len(joined) - MOST_RANGES:,} more ranges")
    return f"{'line' if words[0].isdecimal() and len(words) == 1 else 'lines'} {', '.join(words)}"


def write(answers: Sequence[Answer], values: flags.FlagValues) -> None:
    """Writes to standard output."""
    sys.stdout.buffer.write(contents(answers, values))
    sys.stdout.buffer.flush()


def contents(answers: Sequence[Answer], values: flags.FlagValues) -> bytes:
    """A line for each answer."""
    return "".join(f"{line(each, values.signature_name)}\n" for each in answers).encode("utf-8")


def line(answer: Answer, signature_name: str) -> str:
    """The output; of other signatures than serving_default all outputs, each followed by its score, between tabs."""
    if signature_name == "serving_default":
        return one_line(answer.text)
    pairs = zip(answer.outputs, answer.scores, strict=True)
    return "\t".join(f"{text.translate(SPACES)}\t{score:.6f}" for text, score in pairs)


def run() -> None:
    """The program t2t-query-server."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
