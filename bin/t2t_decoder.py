"""Translates text: t2t-decoder --output_dir=M --decode_from_file=x.en --decode_to_file=x.de

If a file name is omitted or "-", the program reads standard input or writes standard output. It writes one output line
for each input line, in the same order. Only "\\n" ends a line, and an empty input line gives an empty output line.
--output_dir=M1,M2 decodes with an ensemble, which averages the log-probabilities of its models.

--decode_interactive translates lines as you type them. --score_file=pairs.tsv writes the probability of existing
translations. --resume continues an interrupted run. docs/decoding.md explains all decode_hparams.
"""

from __future__ import annotations

import contextlib
import glob
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from t2t_repro.bin import program
from t2t_repro.bin.model_flags import check_model_flags, define_model_flags
from t2t_repro.checkpoints.model_folder import ModelFolder, open_folders, written_times
from t2t_repro.console.progress import Progress, say
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import UNFINISHED, Input, is_stream, whole_file
from t2t_repro.files.textfile import decode_lines, read_lines
from t2t_repro.hparam import DecodeHParams, override, refuse_decode_hparams
from t2t_repro.problem import Problem

if TYPE_CHECKING:
    from t2t_repro.decoding.journal import Journal
    from t2t_repro.decoding.translation import Translation
    from t2t_repro.decoding.translator import Translator

HISTORY = Path("~/.t2t_decoder_history")

Line = tuple[str, str, str]
"""Source text, prefix with which its output must begin, and reference. Prefix and reference may be ""."""
Pair = tuple[str, str]
"""Source text and target text, for --score_file."""

FLAGS = flags.FlagValues()
program.define_model_folder(FLAGS, ensemble=True)
for name, text in (
    ("decode_from_file", "file to translate, plain or .gz; standard input by default and with -"),
    ("decode_to_file", "file, pipe or device to write; standard output by default and with -"),
    ("decode_reference", "file with a correct translation of each input line; the program prints scores at the end"),
    ("score_file", "file of lines source<TAB>target; writes each target's log-probability, in total and per token"),
):
    flags.DEFINE_string(name, "", text, flag_values=FLAGS)
flags.DEFINE_bool("decode_interactive", False, "translate lines as you type them", flag_values=FLAGS)
flags.DEFINE_enum(
    "output_format",
    "text",
    ["text", "jsonl"],
    "format of an output line; text: plain text or columns separated by tabs; jsonl: JSON with scores and tokens",
    flag_values=FLAGS,
)
flags.DEFINE_bool("output_attention", False, "add to jsonl which source token each token attends to", flag_values=FLAGS)
program.define_target_language(FLAGS, "the target language of the model's problem")
program.define_long_lines(FLAGS)
program.define_precision(FLAGS)
flags.DEFINE_bool("resume", False, "continue an interrupted run with the same output file", flag_values=FLAGS)
flags.DEFINE_integer(
    "shards", 1, "number of parts of the input; run one process for each", lower_bound=1, flag_values=FLAGS
)
flags.DEFINE_integer(
    "shard_id",
    0,
    "the part that this process translates, from 0; its output file is DECODE_TO_FILE-0000I-of-0000N for part I of N",
    lower_bound=0,
    flag_values=FLAGS,
)
flags.register_multi_flags_validator(
    ["shards", "shard_id"],
    lambda values: values["shard_id"] < values["shards"],
    "give a --shard_id that is less than --shards",
    flag_values=FLAGS,
)
program.define_decode_hparams(FLAGS)
define_model_flags(FLAGS)


def main(values: flags.FlagValues) -> None:
    """Translates a file, scores pairs, or translates typed lines, depending on the flags."""
    with contextlib.ExitStack() as at_end:
        run_mode(values, at_end)


def run_mode(values: flags.FlagValues, at_end: contextlib.ExitStack) -> None:
    """Runs the mode that the flags select. Closing `at_end` releases the lock on the output file."""
    program.require(values, "output_dir")
    refuse_contradictions(values)
    folders, checkpoints = open_folders(values.output_dir, values.checkpoint_path)
    for folder in folders:
        check_model_flags(values, folder)
    problem = folders[0].problem
    set_target_language(problem, values.target_language)
    decode_hparams = override(problem.decode_hparams, values.decode_hparams)
    pairs: list[Pair] = []
    lines: list[Line] = []
    # Read the input before TensorFlow is loaded, so that mistakes in it are reported immediately.
    if values.decode_interactive:
        refuse_decode_hparams(decode_hparams, ["prefix_file"], "its prefixes are for a file to translate; omit it")
    elif values.score_file:
        names = [field.name for field in fields(decode_hparams) if field.name != "batch_size"]
        reason = "--score_file searches for no translations; omit it"
        refuse_decode_hparams(decode_hparams, names, reason, problem.decode_hparams)
        pairs = list(read_pairs(values.score_file))
    else:
        if values.output_format == "jsonl":
            reason = "--output_format=jsonl always writes the scores; omit it"
            refuse_decode_hparams(decode_hparams, ["write_beam_scores"], reason)
        lines = read_input(values, decode_hparams.prefix_file)
    inputs = [*input_files(values, decode_hparams.prefix_file), *model_files(folders, checkpoints)]
    output = at_end.enter_context(program.output(output_path(values), UNFINISHED, inputs))
    if values.resume and output and is_stream(output):
        raise UserError(f"--resume needs a regular file to continue, and {values.decode_to_file} is not one")

    program.load_tensorflow()
    from t2t_repro import devices
    from t2t_repro.decoding.translator import Translator

    devices.use_one_gpu(values.shard_id)
    devices.share_cores()
    devices.require_precision(values.precision)
    say(f"{', '.join(checkpoints)}: {values.precision}, {decode_hparams}")
    line_hparams = replace(decode_hparams, prefix_file="", write_beam_scores=False)
    translator = Translator.from_folders(folders, checkpoints, line_hparams, values.precision)
    if not values.score_file:
        translator.check(translator.decode_hparams)
    if values.output_attention and not translator.model.has_attention:
        raise UserError(f"model {translator.model.name!r} has no attention for --output_attention; omit it")
    decoder = Decoder(translator, problem, checkpoints, decode_hparams, values, output)
    if values.decode_interactive:
        decoder.converse()
    elif values.score_file:
        decoder.score(pairs)
    else:
        decoder.decode(lines)


def refuse_contradictions(values: flags.FlagValues) -> None:
    """Raises UserError if one flag makes another useless, or if a flag needs another one that is missing."""
    to_file, is_sharded = values.decode_to_file not in program.STANDARD_STREAMS, values.shards > 1
    for is_wrong, message in (
        (values.resume and not to_file, "--resume needs --decode_to_file; give the file of the interrupted run"),
        (is_sharded and not to_file, "--shards needs --decode_to_file; give it"),
        (is_sharded and not values["shard_id"].present, "--shards needs --shard_id; start a process for each shard"),
        (is_sharded and values.decode_reference, "--decode_reference needs the output of all shards; omit it, and "
         "score the whole output with t2t-bleu or t2t-evalb"),
        (values.target_language and not values.decode_reference, "--target_language is for the scores of "
         "--decode_reference; give both or omit it"),
        (values.output_attention and values.output_format != "jsonl", "--output_attention needs "
         "--output_format=jsonl; give it"),
        (values.score_file and values["long_lines"].present, "--long_lines has no effect with --score_file, which "
         "scores whole lines; omit it"),
    ):  # fmt: skip
        if is_wrong:
            raise UserError(message)
    file_flags = ["decode_from_file", "decode_reference", "resume", "shards"]
    for mode, useless in (
        ("decode_interactive", [*file_flags, "decode_to_file", "score_file"]),
        ("score_file", [*file_flags, "output_attention"]),
    ):
        for other in useless:
            if values[mode].value and values[other].value != values[other].default:
                raise UserError(f"--{other} has no effect with --{mode}; omit one")


def set_target_language(problem: Problem, language: str) -> None:
    """Sets the language of the problem's targets to --target_language, if given. Refuses an unknown language."""
    if language:
        from t2t_repro.metrics import bleu  # imported late, because sacreBLEU is slow to import

        bleu.check_language(language)
        problem.target_language = language


def read_input(values: flags.FlagValues, prefix_file: str) -> list[Line]:
    """Returns the input lines with their prefixes and references.

    Raises UserError if the files of inputs, prefixes and references have different numbers of lines, or if there are
    references but no lines.
    """
    name = values.decode_from_file or "standard input"
    if values.decode_from_file in program.STANDARD_STREAMS:
        if sys.stdin.isatty():
            say("type lines to translate, then Ctrl-D; --decode_interactive translates each line at once")
        texts = list(decode_lines(sys.stdin.buffer, "standard input"))
    else:
        texts = list(read_lines(values.decode_from_file))
    if values.decode_reference and not texts:
        raise UserError(f"{name}: no lines, so --decode_reference has nothing to score; omit it")
    columns = []
    for path in (prefix_file, values.decode_reference):
        column = list(read_lines(path)) if path else [""] * len(texts)
        if len(column) != len(texts):
            raise UserError(
                f"{path} has {len(column):,} lines but {name} has {len(texts):,}; give one line for each input line"
            )
        columns.append(column)
    return list(zip(texts, *columns, strict=True))


def read_pairs(path: str) -> Iterator[Pair]:
    """Yields the (source, target) pairs of --score_file. Raises UserError if a line does not have exactly one tab."""
    for number, line in enumerate(read_lines(path), 1):
        if line.count("\t") != 1:
            raise UserError(f"{path}:{number}: the line has {line.count(chr(9))} tabs; write source<TAB>target")
        source, _, target = line.partition("\t")
        yield source, target


def input_files(values: flags.FlagValues, prefix_file: str) -> list[Input]:
    """Returns the text files that the flags tell the program to read; see `model_files` for the files of the models."""
    if values.score_file:
        return program.file_inputs(values, "score_file")
    prefixes = [(f"--decode_hparams=prefix_file={prefix_file}", prefix_file)] if prefix_file else []
    return [*program.file_inputs(values, "decode_from_file", "decode_reference"), *prefixes]


def model_files(folders: Sequence[ModelFolder], checkpoints: Sequence[str]) -> list[Input]:
    """Returns the files of the models that decode, so that the caller can refuse an output that would replace one."""
    return [
        (f"--output_dir={folder.path}", file)
        for folder, checkpoint in zip(folders, checkpoints, strict=True)
        for file in (
            *folder.description_files(),
            *Path(checkpoint).parent.glob(f"{glob.escape(Path(checkpoint).name)}.*"),
        )
    ]


def output_path(values: flags.FlagValues) -> str:
    """Returns the path of the output: --decode_to_file or, with --shards, the file of the shard.

    Raises UserError if --shards is given and --decode_to_file is a stream such as /dev/null.
    """
    path: str = values.decode_to_file
    if values.shards == 1:
        return path
    if is_stream(path):
        raise UserError(f"--decode_to_file={path} is not a regular file, which --shards needs; choose another path")
    return f"{path}-{values.shard_id:05d}-of-{values.shards:05d}"


@dataclass(frozen=True)
class Decoder:
    """The program's three modes: translating a file, scoring pairs, and translating typed lines."""

    translator: Translator
    problem: Problem
    checkpoints: Sequence[str]
    decode_hparams: DecodeHParams
    """All decode hparams. This class applies `prefix_file` and `write_beam_scores`; `translator` applies the others."""
    values: flags.FlagValues
    output: Path | None
    """The output file or stream; None for standard output."""

    def decode(self, lines: Sequence[Line]) -> None:
        """Translates the input lines, or only shard --shard_id of them, and writes the outputs."""
        from t2t_repro.decoding.journal import translate_all
        from t2t_repro.decoding.output import finish_translations

        values = self.values
        start, end = (len(lines) * shard // values.shards for shard in (values.shard_id, values.shard_id + 1))
        lines = lines[start:end]
        texts, prefixes, references = ([line[column] for line in lines] for column in range(3))

        def stream(numbers: Sequence[int]) -> Iterator[tuple[int, Translation]]:
            return self._stream([lines[number] for number in numbers], [start + number for number in numbers])

        with self._journal(texts, prefixes, start) as journal:
            translations = translate_all(len(texts), stream, journal, "decoding")
            for kind, count in (
                ("translated in segments", sum(translation.segments > 1 for translation in translations)),
                ("truncated", sum(translation.is_truncated for translation in translations)),
            ):
                if count:
                    longest = self.decode_hparams.max_input_size or self.translator.max_length
                    say(f"{count:,} lines of more than {longest} tokens: {kind}")
            translations, report = finish_translations(self.problem, texts, translations)
            if report:
                say(str(report))
            write(self.output, self._lines(texts, translations))
            if journal:
                journal.delete()
        if values.decode_reference:
            self._print_scores([translation.text for translation in translations], references)

    def _print_scores(self, outputs: Sequence[str], references: Sequence[str]) -> None:
        """Prints the scores of the outputs, and the target language by whose rules the paper's BLEU was computed."""
        from t2t_repro.metrics import bleu
        from t2t_repro.metrics.score import PAPER_BLEU, score_lines

        scores = self.problem.scores(outputs, references)
        say("\n".join(score_lines(scores)))
        source = "--target_language" if self.values.target_language else f"problem {self.problem.name}"
        if reason := bleu.reason_without_paper_bleu(scores, self.problem.target_language):
            say(reason)
        elif any(score.label == PAPER_BLEU for score in scores):
            say(f"target language: {self.problem.target_language}, from {source}")

    def converse(self) -> None:
        """Translates each line that the user types."""
        from t2t_repro.decoding.output import finish_translations

        for number, text in enumerate(program.typed_lines(HISTORY)):
            try:
                ((_, translation),) = self._stream([(text, "", "")], [number])
            except UserError as error:
                say(str(error))
                continue
            translations, _ = finish_translations(self.problem, [text], [translation])
            write(None, self._lines([text], translations))

    def score(self, pairs: Sequence[Pair]) -> None:
        """Writes, for each pair, the log-probability of the target if the model reads the source."""
        from t2t_repro.decoding.output import pair_line

        progress = Progress("scoring", len(pairs), "pairs")
        sources, targets = ([pair[side] for pair in pairs] for side in range(2))
        scores = self.translator.score(sources, targets, progress.advance)
        progress.close()
        vocabulary, output_format = self.translator.vocabulary, self.values.output_format
        write(
            self.output,
            [pair_line(*pair, score, vocabulary, output_format) for pair, score in zip(pairs, scores, strict=True)],
        )

    def _journal(
        self, texts: list[str], prefixes: list[str], start: int
    ) -> contextlib.AbstractContextManager[Journal | None]:
        """Opens the journal: a file of finished translations, from which --resume continues.

        Returns a context that yields the journal, or None if the output is a stream.

        --resume refuses the journal of a run with other inputs, checkpoints or settings. `start` is the number of the
        first line of `texts` in the input file, counted from 0.
        """
        from t2t_repro.decoding.journal import Journal

        if self.output is None or is_stream(self.output):
            return contextlib.nullcontext()
        # The journal must not depend on batch_size: a resumed run may use a smaller one, which changes no translation.
        decode_hparams = repr(replace(self.translator.decode_hparams, batch_size=1))
        values, is_detailed = self.values, self.values.output_format == "jsonl"
        settings = (
            texts, prefixes, start, self.checkpoints, written_times(self.checkpoints), decode_hparams,
            values.long_lines, values.precision, is_detailed,
        )  # fmt: skip
        return Journal(self.output, settings, values.resume)

    def _stream(self, lines: Sequence[Line], line_numbers: Sequence[int]) -> Iterator[tuple[int, Translation]]:
        """Translates `lines`. Yields (index in `lines`, translation) as soon as a line is done, in no particular order.

        `line_numbers` are the numbers of these lines in the input file, counted from 0, for error messages.
        """
        from t2t_repro.decoding.translation import InputFile

        return self.translator.stream(
            [text for text, _, _ in lines],
            [prefix for _, prefix, _ in lines] if self.decode_hparams.prefix_file else [],
            long_lines=self.values.long_lines,
            details=self.values.output_format == "jsonl",
            input_file=InputFile(self.values.decode_from_file or "standard input", line_numbers),
        )

    def _lines(self, texts: Sequence[str], translations: Sequence[Translation]) -> list[str]:
        """Returns each translation as an output line in the format that --output_format names."""
        from t2t_repro.decoding.output import json_line, text_line

        if self.values.output_format == "text":
            return [text_line(translation.hypotheses, self.decode_hparams) for translation in translations]
        vocabulary, has_attention = self.translator.vocabulary, self.values.output_attention
        return [
            json_line(text, translation, vocabulary, has_attention)
            for text, translation in zip(texts, translations, strict=True)
        ]


def write(output: Path | None, lines: Sequence[str]) -> None:
    """Writes lines to the file `output`, which appears only when it is complete, or to a stream.

    None stands for standard output.
    """
    if output:
        with whole_file(output) as file:
            program.write_lines(lines, file)
    else:
        program.write_lines(lines)


run = program.entry_point(main, FLAGS, __doc__)

if __name__ == "__main__":
    run()
