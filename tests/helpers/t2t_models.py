"""The folder of models, data and encodings that tensor2tensor wrote, and the mark of tests that
need it.
"""

from pathlib import Path

import pytest

MODELS = Path(__file__).resolve().parents[3] / "shared" / "golden" / "t2t_models"
"""The folder; its README.md describes the files."""
NEED_MODELS = pytest.mark.skipif(
    not MODELS.is_dir(), reason="../shared/golden/t2t_models does not exist"
)
"""Mark that skips tests if the folder does not exist. The repository does not contain it."""
