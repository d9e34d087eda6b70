"""Translates a corpus on many machines: t2t-translate-beam --output_dir=M
--decode_from_file="x-*.en.gz" --decode_to_file=out/x.de --beam_options="--runner=FlinkRunner
--flink_master=HOST:8081"

The program needs Apache Beam: pip install "t2t_repro[beam]". Each line gets the same translation as
with t2t-decoder. The output consists of shards. Shard out/x.de-FFFFF-NNNNNNNNNNNN begins with line
N of input file F; both are counted from 0. `cat out/x.de-*` prints the whole output. docs/beam.md
explains Beam's runners.
"""

import os
from dataclasses import dataclass, field
from typing import Any, Literal

from absl import flags

from t2t_repro import registry
from t2t_repro.beam.options import pipeline_options
from t2t_repro.bin import program
from t2t_repro.checkpoints.model_folder import open_folders
from t2t_repro.console.progress import say
from t2t_repro.decoding.translation import with_tags
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams, override, refuse_decode_hparams


@dataclass(frozen=True)
class Flags:
    """The flags that only this program has."""

    decode_from_file: str = ""
    """File to translate, plain or compressed, or a pattern of such files, e.g. "x-*.en"."""
    decode_to_file: str = ""
    """First part of the output shards' paths, e.g. out/x.de."""
    export_dir: str = ""
    """Folder of SavedModels that t2t-exporter wrote, or one of them, in place of --output_dir."""
    output_format: Literal["text", "jsonl"] = "text"
    """Format of an output line, as in t2t-decoder."""
    batch_lines: int = field(default=2000, metadata={"lower_bound": 1})
    """Lines per output shard, which a worker translates together; does not affect the translations.
    """
    resume: bool = False
    """Continue an interrupted run: skip output shards that exist."""
    beam_options: str = ""
    """Options of Apache Beam, separated by spaces; default: --runner=FnApiRunner, which runs in
    this process.
    """


FLAGS = program.make_flags(Flags, *program.TRANSLATION)


OF_MODEL_FOLDERS = (
    "output_dir",
    "checkpoint_path",
    "long_lines",
    "precision",
    "engine",
    "quantization",
    "decode_hparams",
    "output_format",
    "t2t_usr_dir",
)
"""Flags that do not concern an export."""


def main(values: flags.FlagValues) -> None:
    """Runs the pipeline that the flags describe."""
    model_flag = "export_dir" if values.export_dir else "output_dir"
    program.require(values, model_flag, "decode_from_file", "decode_to_file")
    program.refuse_useless(
        values, program.USELESS_WITH_ENGINE | {"with --export_dir": OF_MODEL_FOLDERS}
    )
    decode_to_file = absolute_path(values.decode_to_file)
    if set("*?[") & set(decode_to_file):
        raise UserError(
            f"--decode_to_file={decode_to_file}: Beam takes a path with *, ? or [ for a pattern"
        )
    options = pipeline_options(values.beam_options)
    model, identities = find_export(values) if values.export_dir else find_models(values)
    if values.engine == "tensorflow":
        program.load_tensorflow()
    from t2t_repro.beam import pipeline

    job = program.from_flags(
        pipeline.BeamJob,
        values,
        **model,
        decode_to_file=decode_to_file,
        precision=program.weight_type(values),
        t2t_usr_dir=registry.usr_dir(),
    )
    paths = pipeline.input_files(absolute_path(values.decode_from_file))
    if not paths:
        raise UserError(
            f"--decode_from_file={values.decode_from_file}: no such file; name a file or a pattern"
        )
    settings = "" if values.export_dir else f": {job.engine} {job.precision}, {job.decode_hparams}"
    say(f"{job.checkpoints or job.export_dir}{settings}; files: {len(paths):,}")
    with pipeline.same_run(job, identities, paths, values.batch_lines):
        counts = pipeline.run(pipeline.translate, [job], paths, values.batch_lines, options)
    parts = [f"{name}: {counts[name]:,}" for name in pipeline.COUNTERS if counts.get(name)]
    summary = ", ".join(parts) or "the runner has no counters"
    if counts and not counts.get(pipeline.LINES):
        summary += "; nothing to do"
    say(f"{job.decode_to_file}-*: {summary}")


def find_models(values: flags.FlagValues) -> tuple[dict[str, Any], list[tuple]]:
    """Returns the values of the fields of `BeamJob` that concern the model, and the identity of
    each model.
    """
    from t2t_repro.beam import files

    local_paths = files.local_models(values.output_dir, values.checkpoint_path)
    folders, checkpoints = open_folders(*local_paths)
    # Raises an error if the model lacks the language.
    with_tags([], folders[0].tags, values.target_language)
    decode_hparams = override(folders[0].problem.decode_hparams, values.decode_hparams)
    refuse_decode_hparams(
        decode_hparams, ["prefix_file"], "write prefixes into a .jsonl file (docs/beam.md)"
    )
    if values.output_format == "jsonl":
        refuse_decode_hparams(decode_hparams, ["write_beam_scores"], "JSON has the scores")
    output_dir, checkpoint_paths = files.model_paths(values.output_dir, folders, checkpoints)
    identities = [
        folder.identity(checkpoint) for folder, checkpoint in zip(folders, checkpoints, strict=True)
    ]
    fields = {
        "output_dir": output_dir,
        "checkpoints": checkpoint_paths,
        "decode_hparams": decode_hparams,
    }
    return fields, identities


def find_export(values: flags.FlagValues) -> tuple[dict[str, Any], list[tuple]]:
    """Returns the values of the fields of `BeamJob` that concern an export, and its hash in place
    of a model's identity.
    """
    from t2t_repro.beam import files

    version, digest = files.export_version(absolute_path(values.export_dir))
    fields = {
        "output_dir": "",
        "checkpoints": "",
        "decode_hparams": DecodeHParams(),
        "export_dir": version,
    }
    return fields, [(digest,)]


def absolute_path(path: str) -> str:
    """Returns the absolute path, because workers may run in another folder. Returns URLs
    (gs://bucket/x) unchanged.
    """
    return path if "://" in path else os.path.abspath(path)


run = program.entry_point(main, FLAGS, __doc__)
