"""Translates text: t2t-decoder --output_dir=M --decode_from_file=x.en --decode_to_file=x.de

Without files, or with "-", it reads standard input and writes standard output. N lines in give N lines out, in their
order; a line ends with "\\n" alone, and an empty line gives an empty one. The model folder is all it needs. Several of
them, --output_dir=M1,M2, decode together and average their log-probabilities.

--decode_interactive translates line by line as you type; --score_file=pairs.tsv says how likely the model finds given
translations. A decode that was killed goes on with --resume. docs/decoding.md has the formulas of all decode_hparams.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from t2t_repro.bin import program
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams, override, refuse_decode_hparams
from t2t_repro.textfile import decode_lines, read_lines, whole_file

if TYPE_CHECKING:
    from t2t_repro.decoding.translator import Translation, Translator
    from t2t_repro.model_folder import ModelFolder

HISTORY = Path("~/.t2t_decoder_history")

FLAGS = flags.FlagValues()
program.define_model_folder(FLAGS, ensemble=True)
for name, text in (
    ("decode_from_file", "text to translate, plain or .gz; default, and -: standard input"),
    ("decode_to_file", "where to write; default, and -: standard output"),
    ("decode_reference", "right translations of the same lines, by which the outputs are scored at the end"),
    ("score_file", "pairs source<TAB>target, for each of which log P, log P per token and the tokens are written"),
):
    flags.DEFINE_string(name, "", text, flag_values=FLAGS)
flags.DEFINE_bool("decode_interactive", False, "translate line by line as you type", flag_values=FLAGS)
flags.DEFINE_enum(
    "output_format",
    "text",
    ["text", "jsonl"],
    "text: a line of text, or of columns separated by tabs; jsonl: a JSON object with scores and tokens",
    flag_values=FLAGS,
)
flags.DEFINE_bool("output_attention", False, "write where the model looks into jsonl too", flag_values=FLAGS)
program.define_long_lines(FLAGS)
flags.DEFINE_bool("resume", False, "go on where an interrupted decode to the same file was", flag_values=FLAGS)
flags.DEFINE_integer("shards", 1, "parts to cut the input into, each for a process of its own", flag_values=FLAGS)
flags.DEFINE_integer(
    "shard_id", 0, "which part this is, from 0; written to DECODE_TO_FILE-0000I-of-0000N", flag_values=FLAGS
)
program.define_decode_hparams(FLAGS)


def main(values: flags.FlagValues) -> None:
    """Reads the flags and translates."""
    program.require(values, "output_dir")
    refuse_contradictions(values)
    from t2t_repro.model_folder import open_folders

    folders, checkpoints = open_folders(values.output_dir, values.checkpoint_path)
    params = override(folders[0].problem.decode_hparams, values.decode_hparams)
    if values.decode_interactive or values.score_file:
        refuse_decode_hparams(params, ["prefix_file"], "it needs --decode_from_file")
    job: list[tuple[str, ...]] = []
    if values.score_file:
        job = list(read_pairs(values.score_file))
    elif not values.decode_interactive:
        job = read_job(values, params)

    program.load_tensorflow()
    from t2t_repro.decoding.translator import Translator
    from t2t_repro.progress import say

    search = dataclasses.replace(params, prefix_file="", write_beam_scores=False)
    say(f"{', '.join(checkpoints)}: {params}")
    translator = Translator.from_folders(folders, checkpoints, search)
    if values.decode_interactive:
        converse(translator, folders[0], params, values)
    elif values.score_file:
        score(translator, job, values)
    else:
        decode(translator, folders[0], checkpoints, params, job, values)


def refuse_contradictions(values: flags.FlagValues) -> None:
    """Raises UserError where one flag would do nothing beside another."""
    to_file = values.decode_to_file not in program.STANDARD_STREAMS
    if values.shards < 1 or not 0 <= values.shard_id < values.shards:
        raise UserError(
            f"--shards={values.shards} --shard_id={values.shard_id}: shards are counted from 0 to --shards less 1"
        )
    for holds, message in (
        (not values.resume or to_file, "--resume needs --decode_to_file, which it goes on with"),
        (values.shards == 1 or to_file, "--shards needs --decode_to_file"),
        (values.shards == 1 or not values.decode_reference, "--decode_reference needs all lines; score them together, "
         "with t2t-bleu or t2t-evalb"),
        (not values.output_attention or values.output_format == "jsonl", "--output_attention needs "
         "--output_format=jsonl"),
    ):  # fmt: skip
        if not holds:
            raise UserError(message)
    for mode in ("decode_interactive", "score_file"):
        others = ["decode_from_file", "decode_reference", "resume", "output_attention"]
        if mode == "score_file" and values[mode].value and values["long_lines"].present:
            raise UserError("--long_lines does nothing beside --score_file, which scores each line whole; leave it out")
        others += ["decode_to_file", "score_file"] if mode == "decode_interactive" else []
        for other in others:
            if values[mode].value and values[other].value:
                raise UserError(f"--{other} does nothing beside --{mode}; leave one out")
        if values[mode].value and values.shards > 1:
            raise UserError(f"--shards does nothing beside --{mode}; leave one out")


def read_job(values: flags.FlagValues, params: DecodeHParams) -> list[tuple[str, ...]]:
    """The lines to translate, each with its prefix and its reference, or "" where there is none.

    Raises:
        UserError: the files have different numbers of lines.
    """
    if values.decode_from_file in program.STANDARD_STREAMS:
        texts = list(decode_lines(sys.stdin.buffer, "standard input"))
    else:
        texts = list(read_lines(values.decode_from_file))
    columns = [texts]
    for path in (params.prefix_file, values.decode_reference):
        lines = list(read_lines(path)) if path else [""] * len(texts)
        if len(lines) != len(texts):
            raise UserError(
                f"{path}: {len(lines):,} lines, but {values.decode_from_file or 'standard input'} has {len(texts):,}; "
                "give a line for each"
            )
        columns.append(lines)
    return list(zip(*columns, strict=True))


def decode(
    translator: Translator,
    folder: ModelFolder,
    checkpoints: Sequence[str],
    params: DecodeHParams,
    job: Sequence[tuple[str, ...]],
    values: flags.FlagValues,
) -> None:
    """Translates a file, or a shard of it."""
    from t2t_repro.decoding.journal import Journal, translate_all
    from t2t_repro.decoding.output import finished
    from t2t_repro.progress import say

    first, last = (len(job) * shard // values.shards for shard in (values.shard_id, values.shard_id + 1))
    texts, prefixes, references = ([line[column] for line in job[first:last]] for column in range(3))
    output = None if values.decode_to_file in program.STANDARD_STREAMS else Path(values.decode_to_file)
    if output and values.shards > 1:
        output = output.with_name(f"{output.name}-{values.shard_id:05d}-of-{values.shards:05d}")
    if output and output.is_dir():
        raise UserError(f"--decode_to_file={output}: that is a folder; name a file")
    details = values.output_format == "jsonl"
    with contextlib.ExitStack() as stack:
        journal = None
        if output:
            written = [Path(f"{checkpoint}.index").stat().st_mtime_ns for checkpoint in checkpoints]
            search = dataclasses.replace(translator.decode_hparams, batch_size=1)  # less may be what memory asks for
            settings = (texts, prefixes, first, checkpoints, written, repr(search), values.long_lines, details)
            journal = stack.enter_context(Journal(output, settings, values.resume))
        translations = translate_all(
            len(texts),
            lambda missing: translator.stream(
                [texts[number] for number in missing],
                [prefixes[number] for number in missing] if params.prefix_file else [],
                long_lines=values.long_lines,
                details=details,
                numbers=[first + number for number in missing],
                source=values.decode_from_file or "standard input",
            ),
            journal,
            "decoding",
        )
        for kind, count in (
            ("translated in pieces", sum(each.pieces > 1 for each in translations)),
            ("truncated", sum(each.is_truncated for each in translations)),
        ):
            if count:
                longest = translator.decode_hparams.max_input_size or translator.max_length
                say(f"{count:,} lines of more than {longest} tokens: {kind}")
        translations, report = finished(folder.problem, texts, translations)
        if report:
            say(str(report))
        write(output, [line(text, each, translator, params, values)
                       for text, each in zip(texts, translations, strict=True)])  # fmt: skip
    if journal:
        journal.delete()
    if values.decode_reference:
        for score in folder.problem.scores([each.text for each in translations], references):
            say(f"{score.score:6.2f}  {score.label}  {score.signature}")


def line(
    text: str, translation: Translation, translator: Translator, params: DecodeHParams, values: flags.FlagValues
) -> str:
    """What is written for a text."""
    from t2t_repro.decoding.output import json_line, text_line

    if values.output_format == "jsonl":
        return json_line(text, translation, translator.vocabulary, values.output_attention)
    return text_line(translation.hypotheses, params)


def write(output: Path | None, lines: Sequence[str]) -> None:
    """Writes lines to a file, whole or not at all, or to standard output."""
    contents = "".join(f"{line}\n" for line in lines).encode("utf-8")
    if output:
        with whole_file(output) as file:
            file.write(contents)
    else:
        sys.stdout.buffer.write(contents)
        sys.stdout.buffer.flush()


def converse(translator: Translator, folder: ModelFolder, params: DecodeHParams, values: flags.FlagValues) -> None:
    """Translates line by line; on a terminal with editing and a history that lasts."""
    from t2t_repro.decoding.output import finished

    for number, text in enumerate(program.typed_lines("> ", HISTORY)):
        try:
            ((_, translation),) = translator.stream(
                [text],
                long_lines=values.long_lines,
                details=values.output_format == "jsonl",
                numbers=[number],
                source="standard input",
            )
        except UserError as error:
            print(error, file=sys.stderr, flush=True)
            continue
        (translation,), _ = finished(folder.problem, [text], [translation])
        write(None, [line(text, translation, translator, params, values)])


def read_pairs(path: str) -> Iterator[tuple[str, str]]:
    """The pairs of --score_file.

    Raises:
        UserError: a line has not one tab.
    """
    for number, text in enumerate(read_lines(path), 1):
        if text.count("\t") != 1:
            raise UserError(f"{path}:{number}: {text.count(chr(9))} tabs; write source<TAB>target")
        source, _, target = text.partition("\t")
        yield source, target


def score(translator: Translator, pairs: Sequence[tuple[str, ...]], values: flags.FlagValues) -> None:
    """Writes how likely the model finds each pair."""
    from t2t_repro.decoding.output import pair_line
    from t2t_repro.progress import Progress

    progress = Progress("scoring", len(pairs), "pairs")
    sources, targets = ([pair[side] for pair in pairs] for side in range(2))
    scores = translator.score(sources, targets, progress.advance)
    progress.close()
    write(
        None if values.decode_to_file in program.STANDARD_STREAMS else Path(values.decode_to_file),
        [pair_line(*each, translator.vocabulary, values.output_format)
         for each in zip(sources, targets, scores, strict=True)],
    )  # fmt: skip


def run() -> None:
    """The program t2t-decoder."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
