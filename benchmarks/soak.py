"""Sends many requests of all kinds to a served model or to t2t-decoder's translator, and watches
the process's memory.

    python benchmarks/soak.py --export_dir=demo/model/export/1 [--requests=20000] [--threads=8]
    python benchmarks/soak.py --output_dir=demo/model --decode_hparams=beam_size=2
    [--requests=20000] [--threads=8]

The first command calls the signatures of a SavedModel, the second one calls `Translator.translate`.
A request has 0 to 8 texts. A text is empty, has white space only, a few words, far more words than
the model accepts, bytes that are not UTF-8, control characters, or random characters of Unicode.
Some requests to a SavedModel have lists of ids instead of texts, and some of the ids are not in the
vocabulary. The requests are the same in every run.

Every answer is checked: one output for each text, each output one line, and no output for an empty
text. After every 1,000 requests, when all threads wait, the script prints the process's memory. It
exits with code 1 if an answer is wrong, or if the memory after the last request differs by more
than 5% from the memory after a tenth of the requests.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import tensorflow_text  # noqa: F401, the served graph needs its operations
from absl import app, flags

from t2t_repro.checkpoints.model_folder import open_folders
from t2t_repro.data.vocabularies.text_rules import is_empty
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError
from t2t_repro.hparam import override

EXPORT_DIR = flags.DEFINE_string("export_dir", "", "folder of a SavedModel that t2t-exporter wrote")
OUTPUT_DIR = flags.DEFINE_string("output_dir", "", "model folder, for the translator")
DECODE_HPARAMS = flags.DEFINE_string(
    "decode_hparams", "", "as for t2t-decoder; only with --output_dir"
)
REQUESTS = flags.DEFINE_integer("requests", 20_000, "number of requests", lower_bound=10)
THREADS = flags.DEFINE_integer("threads", 8, "number of threads that send requests", lower_bound=1)

ROUND = 1000
"""Requests between two measurements of the memory."""
TOLERANCE = 0.05
"""Largest allowed change of memory from a tenth of the requests to the last one, as a fraction."""
WORDS = [
    "one",
    "two",
    "seven",
    "thirteen",
    "hundred",
    "and",
    "Größe",
    "日本",
    "🙂",
    "a,b;",
    "\u2028",
    "<s>",
]


def text(draw: random.Random) -> bytes:
    """Returns a random text. It may be empty or not UTF-8, but has no newline."""
    kind = draw.randrange(10)
    if kind == 0:
        return draw.choice([b"", b" ", b"\t \r", b" \v "])
    if kind == 1:
        return draw.randbytes(draw.randint(1, 20)).replace(b"\n", b"\xff")
    if kind == 2:
        return bytes(
            draw.choice([*range(10), *range(11, 32), 127]) for _ in range(draw.randint(1, 20))
        )
    if kind == 3:
        characters = (
            chr(draw.choice([draw.randrange(0x20, 0xD800), draw.randrange(0xE000, 0x110000)]))
            for _ in range(draw.randint(1, 10))
        )
        return "".join(characters).encode("utf-8")
    # One text in 50 is far longer than any model accepts.
    words = draw.randint(300, 2000) if kind == 4 and draw.randrange(5) == 0 else draw.randint(1, 12)
    return " ".join(draw.choices(WORDS, k=words)).encode("utf-8")


def request(number: int) -> list[bytes]:
    """Returns the texts of a request: usually one, sometimes none or several."""
    draw = random.Random(number)
    return [text(draw) for _ in range(draw.choice([0, 1, 1, 1, 1, 1, 2, 8]))]


def served(export_dir: str) -> Callable[[int], str]:
    """Returns a function that sends request `number` to a SavedModel.

    That function returns what is wrong with the SavedModel's answer, or "" if nothing is wrong.
    """
    signatures = tf.saved_model.load(export_dir).signatures

    def send(number: int) -> str:
        texts = request(number)
        if number % 8 == 7:
            draw = random.Random(number)
            rows = [
                [draw.choice([draw.randint(-9, 600), 1 << 30]) for _ in range(number % 50)]
                for _ in texts
            ]
            ids = signatures["tokens"](
                inputs=tf.constant(rows, tf.int32, [len(rows), number % 50])
            )["outputs"]
            return "" if len(ids) == len(texts) else f"{len(ids)} rows of ids for {len(texts)}"
        tensor = tf.constant(texts, tf.string, [len(texts)])
        if number % 8 == 3:
            scores = signatures["score"](inputs=tensor, targets=tensor)["log_probs"].numpy()
            return (
                ""
                if scores.shape == (len(texts),)
                else f"scores {scores.shape} for {len(texts)} texts"
            )
        name = "nbest" if number % 4 == 2 else "serving_default"
        outputs = signatures[name](inputs=tensor)["outputs"].numpy()
        rows = outputs.tolist() if name == "nbest" else outputs[:, None].tolist()
        return mistake(texts, [[output.decode("utf-8") for output in row] for row in rows])

    return send


def translator(output_dir: str, decode_hparams: str) -> Callable[[int], str]:
    """Returns a function that translates request `number`.

    That function returns what is wrong with the translations, or "" if nothing is wrong.

    t2t-decoder's input must be UTF-8. So texts that are not UTF-8 go to the translator as Python
    decodes file names, with lone surrogates. The translator must refuse or translate them.
    """
    folders, checkpoints = open_folders(output_dir, "")
    params = override(folders[0].problem.decode_hparams, decode_hparams)
    translate = Translator.from_folders(folders, checkpoints, params).translate

    def send(number: int) -> str:
        sources = [source.decode("utf-8", "surrogateescape") for source in request(number)]
        long_lines = "truncate" if number % 2 else "split"
        try:
            translations = translate(sources, long_lines=long_lines, details=number % 8 == 0)
        except UserError as error:
            return "" if "UTF-8" in str(error) else str(error)
        rows = [
            [hypothesis.text for hypothesis in translation.hypotheses]
            for translation in translations
        ]
        return mistake([source.encode("utf-8", "surrogateescape") for source in sources], rows)

    return send


def mistake(texts: list[bytes], rows: list[list[str]]) -> str:
    """Returns what is wrong with a request's outputs, or "". `rows` has a list of outputs for each
    of the `texts`.
    """
    if len(rows) != len(texts):
        return f"{len(rows)} answers to {len(texts)} texts"
    for source, row in zip(texts, rows, strict=True):
        if any("\n" in output for output in row):
            return f"the output for {source!r} has several lines"
        if is_empty(source.decode("utf-8", "replace")) and any(row):
            return f"the empty text {source!r} has the output {row}"
    return ""


def resident_mb() -> float:
    """Returns the resident memory, in MB, of the process that runs this script."""
    gc.collect()
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1000


def memory_after_rounds(send: Callable[[int], str]) -> Iterator[tuple[int, float]]:
    """Sends all requests. Yields the number of requests so far, and the memory in MB, after every
    round.
    """
    with ThreadPoolExecutor(THREADS.value) as pool:
        for start in range(0, REQUESTS.value, ROUND):
            numbers = range(start, min(start + ROUND, REQUESTS.value))
            for number, fault in zip(numbers, pool.map(send, numbers), strict=True):
                if fault:
                    sys.exit(f"request {number}: {fault}")
            yield numbers[-1] + 1, resident_mb()


def main(argv: list[str]) -> None:
    """Sends the requests and prints the memory. Exits with code 1 if the memory changed too
    much.
    """
    if bool(EXPORT_DIR.value) == bool(OUTPUT_DIR.value):
        sys.exit("give either --export_dir or --output_dir")
    send = (
        served(EXPORT_DIR.value)
        if EXPORT_DIR.value
        else translator(OUTPUT_DIR.value, DECODE_HPARAMS.value)
    )
    start_time = time.monotonic()
    memory = dict[int, float]()
    print(f"loaded: {resident_mb():.0f} MB", flush=True)
    for count, size in memory_after_rounds(send):
        memory[count] = size
        print(
            f"{count:,} requests, {time.monotonic() - start_time:.0f} s: {size:.0f} MB", flush=True
        )
    early_size = next(size for count, size in memory.items() if count >= REQUESTS.value / 10)
    growth = size / early_size - 1
    print(f"growth: {growth:+.1%}")
    sys.exit(0 if abs(growth) <= TOLERANCE else 1)


if __name__ == "__main__":
    app.run(main)
