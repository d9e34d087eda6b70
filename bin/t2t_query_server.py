"""Asks a served model: t2t-query-server --server=localhost:8500 --servable_name=wmt_ende
--decode_from_file=x.en

The program sends requests to TensorFlow Serving over gRPC, or with --rest over the REST API. It
writes one output line for each input line, in the same order; an empty line is not sent. On a
terminal it translates each line as you type it. If the program ends early, DECODE_TO_FILE.partial
has the lines translated so far.
"""

import contextlib
import importlib
import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from absl import flags

from t2t_repro.bin import program
from t2t_repro.console.progress import progress, say
from t2t_repro.console.quiet import quick_imports, quiet_tensorflow
from t2t_repro.data.vocabularies.text_rules import one_line
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import is_stream, output_file, put_in_place, sync
from t2t_repro.files.textfile import read_lines
from t2t_repro.serving.client import Answer, Client

PARTIAL = ".partial"
"""End of the name of the file that has the lines translated so far."""


@dataclass(frozen=True)
class Flags:
    """The flags of this program that are not fields of `Client`."""

    inputs_once: str = ""
    """Text to translate instead of a file."""
    batch_size: int = field(default=32, metadata={"lower_bound": 1})
    """Lines per request."""


FLAGS = program.make_flags(Client, Flags, "decode_from_file", "decode_to_file")


def main(values: flags.FlagValues) -> None:
    program.require(values, "server", "servable_name")
    batch_size = values.batch_size
    inputs = program.file_inputs(values, "decode_from_file")
    lines: Iterable[str]
    if values["inputs_once"].present:
        lines = [values.inputs_once]
        inputs = []
    elif values.decode_from_file in program.STANDARD_STREAMS:
        lines = program.typed_lines()
        batch_size = 1 if sys.stdin.isatty() else batch_size
    else:
        lines = list(read_lines(values.decode_from_file))
    with (
        program.output(values.decode_to_file, PARTIAL, inputs) as output,
        connect(values) as client,
    ):
        batches = translate(client, lines, batch_size)
        if output is None or is_stream(output):
            with output_file(output) if output else contextlib.nullcontext() as file:
                for batch in batches:
                    program.write_lines(batch, file)
        else:
            total = len(lines) if isinstance(lines, list) else None
            write_file(output, progress(batches, "translating", total, "lines", size=len))


def connect(values: flags.FlagValues) -> Client:
    if not values.rest:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # our messages say why a request failed
        # Importing tensorflow-serving-api imports TensorFlow.
        with quiet_tensorflow(), quick_imports():
            importlib.import_module("tensorflow_serving.apis.prediction_service_pb2_grpc")
    return program.from_flags(Client, values)


def translate(client: Client, lines: Iterable[str], batch_size: int) -> Iterator[list[str]]:
    """Yields the output lines for each batch of lines. Raises UserError, which names the line, if a
    request fails.
    """
    lines = iter(lines)
    number = 1
    while batch := list(itertools.islice(lines, batch_size)):
        try:
            answers = client.translate(batch)
        except UserError as error:
            raise UserError(f"no translation from line {number:,} on: {error}") from None
        yield [output_line(answer, client.signature_name) for answer in answers]
        number += len(batch)


def output_line(answer: Answer, signature_name: str) -> str:
    """Returns the line for an answer: the output, or for another signature, such as nbest, all
    outputs and scores.
    """
    if signature_name == "serving_default":
        return one_line(answer.text)
    cells = []
    for text, score in zip(answer.outputs, answer.scores, strict=True):
        cells += [text.replace("\t", " "), f"{score:.6f}"]
    return one_line("\t".join(cells))


def write_file(output: Path, batches: Iterator[list[str]]) -> None:
    """Writes lines to OUTPUT.partial, which becomes OUTPUT if every line has an answer."""
    partial = output.with_name(output.name + PARTIAL)
    first = next(batches, [])  # If the first request fails, the .partial of an earlier run stays.
    partial.unlink(missing_ok=True)  # which may be a link
    try:
        with open(partial, "xb") as file:
            for batch in itertools.chain([first], batches):
                program.write_lines(batch, file)
            sync(file.fileno())  # so that a crash of the machine cannot leave an empty OUTPUT
    except BaseException:
        say(f"{partial} has the lines translated so far")
        raise
    put_in_place(partial, output)


run = program.entry_point(main, FLAGS, __doc__)
