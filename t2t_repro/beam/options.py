"""Reads --beam_options."""

import contextlib
import io
import logging
import shlex
from typing import Any

from t2t_repro.errors import UserError, require_extra


def pipeline_options(text: str) -> Any:
    """Returns the value of --beam_options as Beam's PipelineOptions.

    Raises UserError if Beam is not installed, or does not know an option or the runner.
    """
    require_extra("beam", "apache_beam")
    logging.disable(logging.WARNING)  # importing Beam prints a warning for each missing extra
    errors = io.StringIO()
    try:
        from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
        from apache_beam.runners import create_runner

        with contextlib.redirect_stderr(errors):
            # Beam's default, DirectRunner, would first try to download and start another runner,
            # Prism.
            options = PipelineOptions(["--runner=FnApiRunner", *shlex.split(text)])
            # Some runners define options of their own.
            create_runner(options.view_as(StandardOptions).runner)
            valid, all_options = (
                options.get_all_options(retain_unknown_options=retain) for retain in (False, True)
            )
        if unknown := all_options.keys() - valid.keys():
            raise UserError(f"--beam_options={text}: Beam has no option --{min(unknown)}; omit it")
    except (ValueError, ImportError, AttributeError) as error:
        raise UserError(f"--beam_options={text}: {error}") from None
    except SystemExit:  # Beam's parser has written the reason to `errors`
        raise UserError(
            f"--beam_options={text}: {errors.getvalue().rpartition('error: ')[2]}"
        ) from None
    finally:
        logging.disable(logging.NOTSET)
    return options
