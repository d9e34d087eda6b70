"""Executes the notebooks in notebooks/ and stores their outputs: python benchmarks/notebooks.py

It needs pip install ".[benchmarks]". It skips tensor2tensor.ipynb without the variables T2T_* that
this notebook reads.
"""

from __future__ import annotations

import base64
import io
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from PIL import Image

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def execute(path: Path) -> Any:
    """Returns a notebook with its outputs. Executes it in an empty folder, with the Python that
    runs this script.

    Ignores the user's kernels and settings of IPython. Raises CellExecutionError if a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as settings, tempfile.TemporaryDirectory() as work:
        specs = KernelSpecManager(kernel_dirs=[])
        kernel = AsyncKernelManager(
            kernel_spec_manager=specs, connection_file=f"{settings}/kernel.json"
        )
        options = {
            "resources": {"metadata": {"path": work}},
            "extra_arguments": ["--log-level=ERROR"],
        }
        with mock.patch.dict(os.environ, IPYTHONDIR=settings, TMPDIR=settings):
            NotebookClient(notebook, km=kernel, timeout=600, **options).execute()
    return notebook


def clean(notebook: Any) -> None:
    """Removes what differs between runs or machines, such as times and messages, and makes the
    pictures smaller.
    """
    notebook.metadata.language_info = {"name": "python"}
    for cell in [cell for cell in notebook.cells if cell.cell_type == "code"]:
        cell.metadata.pop("execution", None)
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            if picture := output.get("data", {}).get("image/png"):
                image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
                file = io.BytesIO()
                image.quantize(256, Image.Quantize.MAXCOVERAGE).save(file, "png", optimize=True)
                output["data"]["image/png"] = base64.b64encode(file.getvalue()).decode()


if __name__ == "__main__":
    for path in NOTEBOOKS:
        if path.stem != "tensor2tensor" or "T2T_OUTPUTS" in os.environ:
            notebook = execute(path)
            clean(notebook)
            nbformat.write(notebook, path)
            print(f"{path}: written")
