"""Translates text: t2t-decoder --output_dir=M --decode_from_file=x.en --decode_to_file=x.de

If a file name is omitted or "-", the program reads standard input or writes standard output. It
writes one output line for each input line, in the same order. Only "\\n" ends a line, and an empty
input line gives an empty output line. --output_dir=M1,M2 decodes with an ensemble, which averages
the log-probabilities of its models.

--decode_interactive translates lines as you type them. --score_file=pairs.tsv writes the
probability of existing translations. --resume continues an interrupted run. docs/decoding.md
explains all decode_hparams.
"""

from __future__ import annotations

import contextlib
import glob
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from absl import flags

from t2t_repro.bin import program
from t2t_repro.bin.model_flags import check_model_flags, define_model_flags
from t2t_repro.checkpoints.model_folder import ModelFolder, open_folders
from t2t_repro.console.progress import Progress, say
from t2t_repro.corpora.parallel import read_targets, read_tsv
from t2t_repro.decoding.journal import Journal, translate_lines
from t2t_repro.decoding.output import (
    finish_translations,
    json_line,
    pair_line,
    refuse_diverged,
    text_line,
)
from t2t_repro.decoding.sentences import split_sentences
from t2t_repro.decoding.translation import InputFile, Translation, with_tags
from t2t_repro.errors import UserError, counted
from t2t_repro.files.output_files import UNFINISHED, is_stream, output_file
from t2t_repro.files.textfile import decode_lines, read_lines
from t2t_repro.hparam import DecodeHParams, override
from t2t_repro.metrics.score import main_scores, score_lines
from t2t_repro.problem import Problem

if TYPE_CHECKING:
    from t2t_repro.decoding.translator import Translator


@dataclass(frozen=True)
class Flags:
    """The flags that only this program has."""

    decode_reference: str = ""
    """File with a correct translation of each input line; the program prints scores at the end."""
    score_file: str = ""
    """File of lines source<TAB>target; writes each target's log-probability, in total and per
    token.
    """
    decode_interactive: bool = False
    """Translate lines as you type them."""
    output_format: Literal["text", "jsonl"] = "text"
    """Format of an output line; text: plain text or columns separated by tabs; jsonl: JSON with
    scores and tokens.
    """
    output_attention: bool = False
    """Add to jsonl which source token each token attends to."""
    resume: bool = False
    """Continue an interrupted run with the same output file."""
    shards: int = field(default=1, metadata={"lower_bound": 1})
    """Number of parts of the input; run one process for each."""
    shard_id: int = 0
    """The part that this process translates, from 0; its output file is
    DECODE_TO_FILE-0000I-of-0000N for part I of N.
    """


FLAGS = program.make_flags(Flags, "decode_from_file", "decode_to_file", *program.TRANSLATION)
define_model_flags(FLAGS)

USELESS = {
    "with --decode_interactive": (
        "decode_from_file",
        "decode_to_file",
        "decode_reference",
        "score_file",
        "resume",
        "shards",
        "decode_hparams=prefix_file",
    ),
    "with --score_file": (
        "decode_from_file",
        "decode_reference",
        "resume",
        "shards",
        "output_attention",
        "long_lines",
        *(f"decode_hparams={name}" for name in vars(DecodeHParams()) if name != "batch_size"),
    ),
    "without --decode_to_file": ("resume", "shards"),
    "without --output_format=jsonl": ("output_attention",),
    "with --output_format=jsonl": ("decode_hparams=write_beam_scores",),
    "without --shards": ("shard_id",),
    **program.USELESS_WITH_ENGINE,
}
"""For each mode of the program, the flags that have no effect in it; see `program.refuse_useless`.
"""


def main(values: flags.FlagValues) -> None:
    program.require(values, "output_dir")
    program.refuse_useless(values, USELESS)
    if values.shards > 1 and not values["shard_id"].present:
        raise UserError("--shards needs --shard_id; start a process for each shard")
    if values.shard_id >= values.shards:
        raise UserError(f"--shard_id={values.shard_id} must be less than --shards={values.shards}")
    folders, checkpoints = open_folders(values.output_dir, values.checkpoint_path)
    for folder in folders:
        check_model_flags(values, folder)
    problem = folders[0].problem
    tags = folders[0].tags
    if not tags:
        program.refuse_useless(values, {"without --decode_reference": ("target_language",)})
    if values.target_language:
        # Imported late, because langcodes is slow to import.
        from t2t_repro.metrics import languages

        # A tag may be no code of a language.
        code = languages.iso_code if tags else languages.language_code
        problem.target_language = code(values.target_language)
    decode_hparams = override(problem.decode_hparams, values.decode_hparams)
    # Read the input before TensorFlow is loaded, so that mistakes in it are reported immediately.
    columns: list[list[str]] = []
    if values.score_file:
        inputs = program.file_inputs(values, "score_file")
        pairs = list(read_tsv(values.score_file))
        columns = [[pair["inputs"] for pair in pairs], [pair["targets"] for pair in pairs]]
    else:
        inputs = program.file_inputs(values, "decode_from_file", "decode_reference")
        if path := decode_hparams.prefix_file:
            inputs.append((f"--decode_hparams=prefix_file={path}", path))
        if not values.decode_interactive:
            columns = read_input(values, decode_hparams.prefix_file)
    if tags:
        input_file = InputFile(values.score_file or values.decode_from_file or "standard input")
        sources = columns[0] if columns else []
        columns[:1] = [with_tags(sources, tags, values.target_language, input_file)]
    for folder, checkpoint in zip(folders, checkpoints, strict=True):
        paths = [*map(str, folder.description_files()), *glob.glob(f"{glob.escape(checkpoint)}.*")]
        inputs += [(f"--output_dir={folder.path}", path) for path in paths]
    with program.output(output_path(values), UNFINISHED, inputs) as output:
        if values.resume and (not output or is_stream(output)):
            raise UserError(
                "--resume needs a regular file to continue; give --decode_to_file of the "
                "interrupted run"
            )
        translator = load(values, folders, checkpoints, decode_hparams)
        models = [
            folder.identity(checkpoint)
            for folder, checkpoint in zip(folders, checkpoints, strict=True)
        ]
        decoder = Decoder(translator, problem, models, values, output)
        if values.decode_interactive:
            decoder.converse()
        elif values.score_file:
            decoder.score(*columns)
        else:
            decoder.decode(*columns)


def read_input(values: flags.FlagValues, prefix_file: str) -> list[list[str]]:
    """Returns the input lines, their prefixes and their references. The last two lists are empty
    without such a file.

    Raises UserError if the files have different numbers of lines.
    """
    if values.decode_from_file in program.STANDARD_STREAMS:
        if sys.stdin.isatty():
            say(
                "type lines to translate, then Ctrl-D; --decode_interactive translates each line "
                "at once"
            )
        texts = list(decode_lines(sys.stdin.buffer, "standard input"))
    else:
        texts = list(read_lines(values.decode_from_file))
    columns = [texts]
    for path in (prefix_file, values.decode_reference):
        columns.append(read_targets(path, values.decode_from_file, texts) if path else [])
    return columns


def output_path(values: flags.FlagValues) -> str:
    """Returns the path of the output: --decode_to_file or, with --shards, the file of the shard."""
    shard = f"-{values.shard_id:05d}-of-{values.shards:05d}" if values.shards > 1 else ""
    return f"{values.decode_to_file}{shard}"


def load(
    values: flags.FlagValues,
    folders: Sequence[ModelFolder],
    checkpoints: Sequence[str],
    decode_hparams: DecodeHParams,
) -> Translator:
    """Returns the translator. Raises UserError if the model or this machine does not support the
    flags.
    """
    translator = program.load_translator(
        values, folders, checkpoints, decode_hparams, values.shard_id
    )
    if not values.score_file:
        translator.check(decode_hparams)
    if values.output_attention and not translator.model.has_attention:
        raise UserError(
            f"model {translator.model.name!r} has no attention for --output_attention; omit it"
        )
    return translator


@dataclass(frozen=True)
class Decoder:
    """The program's three modes: translating a file, scoring pairs, and translating typed lines."""

    translator: Translator
    problem: Problem
    models: Sequence[tuple]
    """For each model, `ModelFolder.identity`."""
    values: flags.FlagValues
    output: Path | None
    """The output file or stream; None for standard output."""

    def decode(
        self, texts: Sequence[str], prefixes: Sequence[str], references: Sequence[str]
    ) -> None:
        """Translates the input lines, or only shard --shard_id of them, and writes the outputs."""
        values = self.values
        start = len(texts) * values.shard_id // values.shards
        end = len(texts) * (values.shard_id + 1) // values.shards
        texts = texts[start:end]
        prefixes = prefixes[start:end]
        references = references[start:end]
        several = sum(len(split_sentences(text)) > 1 for text in texts)
        if several and values.long_lines in ("split", "truncate"):
            say(
                f"lines of several sentences: {several:,}; if the model was trained on single "
                "sentences, --long_lines=sentences translates each sentence separately"
            )
        with self._journal(texts, prefixes, start) as journal:
            translations = translate_lines(
                self.translator,
                texts,
                prefixes,
                journal=journal,
                label="decoding",
                **self._options(),
                input_file=InputFile(
                    values.decode_from_file or "standard input", range(start, end)
                ),
            )
            longest = self.translator.decode_hparams.max_input_size or self.translator.max_length
            count = sum(
                translation.segments > 1 or translation.is_truncated for translation in translations
            )
            if count:
                is_cut = values.long_lines == "truncate"
                treatment = "truncated" if is_cut else "translated in segments"
                cause = "several sentences or " if values.long_lines == "sentences" else ""
                say(f"{counted(count, 'line')} of {cause}more than {longest} tokens: {treatment}")
            translations, report = finish_translations(self.problem, texts, translations)
            if report:
                say(str(report))
            write(self.output, self._lines(texts, translations))
            if journal:
                journal.delete()
        refuse_diverged(translation.score for translation in translations)
        if references:
            self._print_scores([translation.text for translation in translations], references)

    def converse(self) -> None:
        for number, text in enumerate(program.typed_lines()):
            try:
                [translation] = self.translator.translate(
                    [text],
                    target_language=self.values.target_language if self.translator.tags else "",
                    **self._options(),
                    input_file=InputFile("standard input", [number]),
                )
                refuse_diverged([translation.score])
            except UserError as error:
                say(str(error))
                continue
            translations, _ = finish_translations(self.problem, [text], [translation])
            write(None, self._lines([text], translations))

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Writes, for each pair, the log-probability of the target if the model reads the
        source.
        """
        progress = Progress("scoring", len(sources), "pairs")
        scores = self.translator.score(sources, targets, progress.advance)
        progress.close()
        vocabulary = self.translator.vocabulary
        output_format = self.values.output_format
        pairs = zip(sources, targets, scores, strict=True)
        write(self.output, [pair_line(*pair, vocabulary, output_format) for pair in pairs])
        refuse_diverged(score.log_prob for score in scores)

    def _options(self) -> dict[str, Any]:
        is_detailed = self.values.output_format == "jsonl"
        has_scores = is_detailed or self.translator.decode_hparams.write_beam_scores
        return {"long_lines": self.values.long_lines, "details": is_detailed, "scores": has_scores}

    def _journal(
        self, texts: Sequence[str], prefixes: Sequence[str], start: int
    ) -> contextlib.AbstractContextManager[Journal | None]:
        """Opens the journal: a file of finished translations, from which --resume continues; None
        for a stream.

        --resume refuses the journal of a run with other inputs, models or settings. `start` is the
        number of the first line of `texts` in the input file, counted from 0.
        """
        if self.output is None or is_stream(self.output):
            return contextlib.nullcontext()
        # A resumed run may change these fields, which change no translation. `prefixes` has the
        # content of prefix_file.
        values = self.values
        is_detailed = self.values.output_format == "jsonl"
        search = self.translator.decode_hparams
        # TensorFlow always computes scores.
        has_scores = values.engine == "ctranslate2" and search.write_beam_scores
        search = replace(search, batch_size=1, write_beam_scores=has_scores, prefix_file="")
        weight_type = program.weight_type(values)
        options = (values.long_lines, values.engine, weight_type, is_detailed)
        facts = (texts, prefixes, start, self.models, search, options)
        return Journal(self.output, facts, values.resume)

    def _lines(self, texts: Sequence[str], translations: Sequence[Translation]) -> list[str]:
        """Returns each translation as an output line in the format that --output_format names."""
        lines = []
        for text, translation in zip(texts, translations, strict=True):
            if self.values.output_format == "text":
                line = text_line(translation.hypotheses, self.translator.decode_hparams)
            else:
                line = json_line(
                    text, translation, self.translator.vocabulary, self.values.output_attention
                )
            lines.append(line)
        return lines

    def _print_scores(self, outputs: Sequence[str], references: Sequence[str]) -> None:
        """Prints the main scores of the outputs, as t2t-bleu does."""
        from t2t_repro.metrics import bleu

        scores = main_scores(self.problem.scores(outputs, references))
        say("\n".join(score_lines(scores)))
        if scores[0].label == "chrF":
            say(bleu.missing_bleu(scores, self.problem.target_language))


def write(output: Path | None, lines: Sequence[str]) -> None:
    """Writes lines to the file `output`, which appears only when it is complete, or to a stream.

    None stands for standard output.
    """
    with output_file(output) if output else contextlib.nullcontext() as file:
        program.write_lines(lines, file)


run = program.entry_point(main, FLAGS, __doc__)
