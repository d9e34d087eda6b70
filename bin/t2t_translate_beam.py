"""Translates a corpus on many machines: t2t-translate-beam --output_dir=M --decode_from_file="x-*.en.gz"
--decode_to_file=out/x.de --beam_options="--runner=FlinkRunner --flink_master=HOST:8081"

It needs Apache Beam: pip install "t2t_repro[beam]". Each line gets what t2t-decoder gives it. The output is written in
shards, out/x.de-FFFFF-NNNNNNNNNNNN: those of the F-th input file, from its N-th line on, both counted from 0;
`cat out/x.de-*` is the whole. docs/beam.md says how to run it on Beam's runners.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shlex
import sys
from typing import Any

from absl import flags

from t2t_repro.bin import program
from t2t_repro.errors import UserError
from t2t_repro.hparam import override, refuse_decode_hparams

FLAGS = flags.FlagValues()
program.define_model_folder(FLAGS, ensemble=True)
for name, text in (
    ("decode_from_file", 'text to translate, plain or .gz: a file, or a pattern such as "x-*.en"'),
    ("decode_to_file", "what the names of the written shards begin with"),
):
    flags.DEFINE_string(name, "", text, flag_values=FLAGS)
program.define_long_lines(FLAGS)
flags.DEFINE_integer(
    "batch_lines",
    2000,
    "lines that a worker takes at once, sorts by length and writes as a shard; changes no translation",
    flag_values=FLAGS,
)
flags.DEFINE_bool("resume", False, "go on with a run that was ended: shards that are there are kept", flag_values=FLAGS)
flags.DEFINE_string(
    "beam_options",
    "",
    "Apache Beam's own options, separated by spaces; default: --runner=FnApiRunner, which runs in this process",
    flag_values=FLAGS,
)
program.define_decode_hparams(FLAGS)


def main(values: flags.FlagValues) -> None:
    """Reads the flags and runs the pipeline."""
    program.require(values, "output_dir", "decode_from_file", "decode_to_file")
    if values.batch_lines < 1:
        raise UserError(f"--batch_lines={values.batch_lines} must be 1 or more")
    from t2t_repro.model_folder import open_folders

    folders, checkpoints = open_folders(values.output_dir, values.checkpoint_path)
    params = override(folders[0].problem.decode_hparams, values.decode_hparams)
    refuse_decode_hparams(params, ["prefix_file"], "only t2t-decoder takes prefixes")
    options = pipeline_options(values.beam_options)

    program.load_tensorflow()
    from t2t_repro.decoding import beam_pipeline
    from t2t_repro.progress import say

    source, target = (absolute(path) for path in (values.decode_from_file, values.decode_to_file))
    paths = beam_pipeline.match(source)
    if not paths:
        raise UserError(f"--decode_from_file={values.decode_from_file}: no such file")
    if (old := beam_pipeline.match(f"{target}-*")) and not values.resume:
        raise UserError(
            f"{old[0]}: is there already; go on with --resume, delete the shards, or choose another --decode_to_file"
        )
    say(f"{', '.join(checkpoints)}: {params}; files: {len(paths):,}")
    job = beam_pipeline.Job(
        ",".join(os.path.abspath(folder.path) for folder in folders),
        ",".join(os.path.abspath(checkpoint) for checkpoint in checkpoints),
        params,
        target,
        values.long_lines,
        values.t2t_usr_dir and os.path.abspath(os.path.expanduser(values.t2t_usr_dir)),
        values.resume,
    )
    with beam_pipeline.unfinished(job, paths, values.batch_lines):
        counts = beam_pipeline.run(job, paths, values.batch_lines, options)
    summary = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    say(f"{target}-*: {summary or 'no lines'}")


def pipeline_options(text: str) -> Any:
    """Beam's options.

    Raises:
        UserError: Beam is not installed; or an option or runner that it does not know.
    """
    logging.disable(logging.WARNING)  # of importing Beam: which of its extras are not installed
    try:
        from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
        from apache_beam.runners import create_runner
    except ImportError:
        raise UserError('Apache Beam is not installed; pip install "t2t_repro[beam]"') from None
    finally:
        logging.disable(logging.NOTSET)
    # Beam's DirectRunner would first try to download and start another runner, Prism.
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            options = PipelineOptions(["--runner=FnApiRunner", *shlex.split(text)])
            options.get_all_options()
        create_runner(options.view_as(StandardOptions).runner)
    except (ValueError, ImportError, AttributeError) as error:
        raise UserError(f"--beam_options={text}: {error}") from None
    except SystemExit:  # of argparse, which has said why
        reason = said.getvalue().strip().rpartition("\n")[2].partition("error: ")[2]
        raise UserError(f"--beam_options={text}: {reason}") from None
    return options


def absolute(path: str) -> str:
    """A path as workers elsewhere see it, where it is not an address such as gs://bucket/x."""
    return path if "://" in path else os.path.abspath(path)


def run() -> None:
    """The program t2t-translate-beam."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
