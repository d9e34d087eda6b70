"""Makes training data from text in one language: t2t-augment --output_dir=M_REVERSE --text=mono.de
--corpus_dir=C

A model translates the text, and C becomes a corpus for t2t-datagen --train=C. By default, the
translations are the sources of the corpus (back-translation). With --synthetic=target, they are its
targets (distillation). After a kill, the same command continues. docs/augmentation.md has both
recipes.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from absl import flags

from t2t_repro import registry
from t2t_repro.beam.options import pipeline_options
from t2t_repro.bin import program
from t2t_repro.checkpoints.model_folder import ModelFolder, open_folders
from t2t_repro.console.progress import say
from t2t_repro.corpora.augmented import Augmentation
from t2t_repro.data.vocabularies.tags import SYMBOL_RULE, is_symbol
from t2t_repro.decoding.augmentation import augment, resumed, save, writing
from t2t_repro.decoding.translation import with_tags
from t2t_repro.errors import UserError, counted
from t2t_repro.files.output_files import is_stream
from t2t_repro.files.textfile import read_lines
from t2t_repro.hparam import DecodeHParams, override, refuse_decode_hparams

RECORDED = ("synthetic", "train_tag", "shard_lines", "long_lines", "engine", "target_language")
"""Flags on which the corpus depends, besides those of the model, the text and the search."""


@dataclass(frozen=True)
class Flags:
    """The flags that only this program has."""

    text: str = ""
    """Text to translate, one sentence per line, plain or compressed."""
    corpus_dir: str = ""
    """Folder of the corpus; default: the name of --text with .augmented at its end."""
    method: Literal["beam", "sampling"] = "beam"
    """beam: the best translation of each line; sampling: a random one, drawn from the model's
    distribution.
    """
    synthetic: Literal["source", "target"] = "source"
    """Side of the corpus that the model writes. source: back-translation, in which --text has the
    targets; target: distillation, in which --text has the sources.
    """
    train_tag: str = ""
    """First word of each source, e.g. "<bt>", which marks the pairs; t2t-datagen needs the same
    word in --symbols.
    """
    beam_options: str = ""
    """Options of Apache Beam, separated by spaces, to translate on many machines, as with
    t2t-translate-beam.
    """
    shard_lines: int = field(default=2000, metadata={"lower_bound": 1})
    """Lines of the text that become one shard. After a kill, at most one shard is translated again.
    """


FLAGS = program.make_flags(Flags, *program.TRANSLATION)


def main(values: flags.FlagValues) -> None:
    program.require(values, "output_dir", "text")
    program.refuse_useless(values, program.USELESS_WITH_ENGINE)
    if values.train_tag and not is_symbol(values.train_tag):
        raise UserError(
            f"--train_tag={values.train_tag}: give a word like <bt>, with {SYMBOL_RULE}"
        )
    if is_stream(values.text):
        raise UserError(
            f"--text={values.text}: not a regular file; t2t-augment reads it twice, so save it in "
            "a file"
        )
    folders, checkpoints = open_folders(values.output_dir, values.checkpoint_path)
    # Refuses a language that the model lacks.
    tags = folders[0].tags
    with_tags([], tags, values.target_language)
    if tags and not values.target_language:
        raise UserError(
            f"{values.output_dir}: translates into several languages; give --target_language"
        )
    method = "random" if values.method == "sampling" else "argmax"
    changes = f"sampling_method={method},{values.decode_hparams}"
    decode_hparams = override(folders[0].problem.decode_hparams, changes)
    refuse_decode_hparams(
        decode_hparams, ["write_beam_scores", "prefix_file"], "the corpus has only pairs; omit it"
    )
    folder = Path(values.corpus_dir or f"{values.text}.augmented")
    augmentation = resumed(folder, new_augmentation(values, folders, checkpoints, decode_hparams))
    if augmentation.finished_shards < augmentation.shards and values.beam_options:
        augmentation = augment_with_beam(values, folders, checkpoints, decode_hparams, augmentation)
    elif augmentation.finished_shards < augmentation.shards:
        translator = program.load_translator(values, folders, checkpoints, decode_hparams)
        translator.check(decode_hparams)
        augmentation = augment(translator, folders[0].problem, values.text, folder, augmentation)
    pairs = counted(augmentation.pairs, "pair")
    dropped = f"{augmentation.dropped:,} dropped because a side is empty"
    say(f"{folder} is complete: {pairs} of {augmentation.settings['lines']:,} lines, {dropped}")


def augment_with_beam(
    values: flags.FlagValues,
    folders: Sequence[ModelFolder],
    checkpoints: Sequence[str],
    decode_hparams: DecodeHParams,
    augmentation: Augmentation,
) -> Augmentation:
    """Translates the text as an Apache Beam pipeline. Returns the final content of augment.json."""
    options = pipeline_options(values.beam_options)
    folder = Path(values.corpus_dir or f"{values.text}.augmented")
    if values.engine == "tensorflow":
        program.load_tensorflow()
    from t2t_repro.beam import files, pipeline

    output_dir, checkpoint_paths = files.model_paths(values.output_dir, folders, checkpoints)
    job = pipeline.BeamJob(
        output_dir,
        checkpoint_paths,
        decode_hparams,
        "",
        t2t_usr_dir=registry.usr_dir(),
        engine=values.engine,
        precision=program.weight_type(values),
    )
    arguments = (job, str(folder.absolute()), augmentation.settings)
    text = os.path.abspath(values.text)
    with writing(folder):
        save(folder, resumed(folder, augmentation))
        counts = pipeline.run(pipeline.augment, arguments, [text], values.shard_lines, options)
        if not counts:
            raise UserError(
                f"--beam_options={values.beam_options}: the runner has no counters; use another "
                "runner"
            )
        final = replace(
            augmentation,
            finished_shards=augmentation.shards,
            pairs=counts.get("pairs", 0),
            dropped=counts.get("dropped", 0),
        )
        save(folder, final)
    return final


def new_augmentation(
    values: flags.FlagValues,
    folders: Sequence[ModelFolder],
    checkpoints: Sequence[str],
    decode_hparams: DecodeHParams,
) -> Augmentation:
    """Returns the content of augment.json before the first shard. Reads the whole text, to find
    mistakes early.
    """
    digest = hashlib.sha256()
    lines = 0
    for text in read_lines(values.text):
        digest.update(f"{text}\n".encode())
        lines += 1
    if not lines:
        raise UserError(f"--text={values.text}: empty; give text to translate")
    problem = folders[0].problem
    pairs = zip(folders, checkpoints, strict=True)
    models = [folder.identity(checkpoint) for folder, checkpoint in pairs]
    search = {name: str(value) for name, value in vars(decode_hparams).items()}
    del search["batch_size"]  # it does not change the translations
    settings = {
        "text": digest.hexdigest(),
        "lines": lines,
        "problem": problem.name,
        "checkpoint": ",".join(Path(checkpoint).name for checkpoint in checkpoints),
        "model": hashlib.sha256(repr(models).encode()).hexdigest()[:12],
    }
    settings |= {name: values[name].value for name in RECORDED} | search
    settings["precision"] = program.weight_type(values)
    # The languages of the corpus, if the model writes its targets.
    source = problem.languages[1] if problem.was_reversed else problem.languages[0]
    target = values.target_language or problem.target_language
    if values.synthetic == "source":
        source, target = target, source
    shards = -(-lines // values.shard_lines)
    return Augmentation(settings, source, target, values.train_tag, shards)


run = program.entry_point(main, FLAGS, __doc__)
