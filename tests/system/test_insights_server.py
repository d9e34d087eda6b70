"""Tests t2t-insights as a user runs it: it prints its address, answers requests, and ends with Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from processes import Process, code_that_waits, start_program
from programs import TrainedModel
from t2t_repro.decoding import Translator


@contextmanager
def server(*flags: str, before: str = "") -> Iterator[tuple[Process, str]]:
    """Starts t2t-insights on a free port. Yields its process and its address."""
    process = start_program("insights", "--port=0", *flags, before=before)
    try:
        process.wait_for("is ready")
        yield process, re.findall(r"http://127\.0\.0\.1:\d+/", process.errors)[0]
    finally:
        process.kill()


def get(request: str | Request, path: str = "", **query: Any) -> Any:
    """Returns the answer to a request, which is an address or a whole request."""
    url = f"{request}{path}?{urlencode(query)}" if isinstance(request, str) else request
    with urlopen(url, timeout=60) as response:
        return json.load(response)


def question(model: int) -> dict[str, Any]:
    return {"model": model, "source": "three hundred", "beam_size": 2, "alpha": 1, "num_best": 2}


def test_two_checkpoints_of_a_model(trained: TrainedModel) -> None:
    checkpoints = [f"{trained.folder}/model.ckpt-{step}" for step in (60, 20)]
    flags = f"--output_dir={trained.folder}", f"--compare_checkpoint_path={checkpoints[1]}"
    with server(*flags) as (process, address):
        models = get(address, "api/models")["models"]
        descriptions = [f"text_files, transformer, {checkpoint}" for checkpoint in checkpoints]
        assert [model["description"] for model in models] == descriptions
        for model, checkpoint in enumerate(checkpoints):
            hypotheses = get(address, "api/translate", **question(model))["hypotheses"]
            translator = Translator.from_dir(str(trained.folder), checkpoint, beam_size=2, alpha=1.0, n=2)
            expected = translator.translate(["three hundred"])[0].hypotheses
            assert [x["score"] for x in hypotheses] == pytest.approx([x.score for x in expected], abs=1e-4)
        with pytest.raises(HTTPError, match="431"):  # the address is longer than 32 KiB
            get(address, "api/translate", **question(0) | {"source": "x" * 40_000})
        with pytest.raises(HTTPError, match="400"):
            get(Request(address + "api/models", headers={"Host": "evil.example"}))
        process.send_signal(signal.SIGINT)
        result = process.result()
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr.count("\n") == 3, result.stderr  # a line for each model, and the address


def test_ctrl_c_while_a_request_is_answered(trained: TrainedModel) -> None:
    waits = code_that_waits("t2t_repro.insights.answers:ExploredModel", "translate", call=1)
    with server(f"--output_dir={trained.folder}", before=waits) as (process, address), ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, address, "api/translate", **question(0))
        process.wait_for("waits")
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        with pytest.raises(OSError):  # the connection is closed
            answer.result()
    assert process.errors.count("\n") == 3, process.errors
