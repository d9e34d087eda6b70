"""Tests t2t-insights as a user runs it: it prints its address, answers requests, and ends with Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import numpy as np
import pytest

from processes import code_that_waits, start_program
from programs import TrainedModel
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.decoding.search import target_log_probs


def get(request: str | Request, path: str = "", **query: Any) -> Any:
    """Returns the answer to a request, which is an address or a whole request."""
    url = f"{request}{path}?{urlencode(query)}" if isinstance(request, str) else request
    with urlopen(url, timeout=60) as response:
        return json.load(response)


def question(model: int) -> dict[str, Any]:
    return {"model": model, "source": "three hundred", "beam_size": 2, "alpha": 1, "num_best": 2}


def test_two_checkpoints_of_a_model_until_ctrl_c_during_an_answer(trained: TrainedModel) -> None:
    checkpoints = [f"{trained.folder}/model.ckpt-{step}" for step in (60, 20)]
    flags = f"--output_dir={trained.folder}", f"--compare_checkpoint_path={checkpoints[1]}", "--port=0"
    third_answer = code_that_waits("t2t_repro.insights.answers:ExploredModel", "translate", call=3)
    process = start_program("insights", *flags, before=third_answer)
    process.wait_for("is ready")
    [address] = re.findall(r"http://127\.0\.0\.1:\d+/", process.errors)
    models = get(address, "api/models")["models"]
    descriptions = [f"text_files, transformer, {checkpoint}" for checkpoint in checkpoints]
    assert [model["description"] for model in models] == descriptions
    folder = ModelFolder(trained.folder)
    sources = np.array(folder.vocabulary.encode_sources(["three hundred"]))
    for number, checkpoint in enumerate(checkpoints):
        for hypothesis in get(address, "api/translate", **question(number))["hypotheses"]:
            log_probs, _ = target_log_probs(folder.model(checkpoint), sources, np.array([hypothesis["ids"]]))
            assert hypothesis["log_prob"] == pytest.approx(float(np.sum(log_probs)), abs=1e-3)
    with pytest.raises(HTTPError, match="431"):  # the address is longer than 32 KiB
        get(address, "api/translate", **question(0) | {"source": "x" * 40_000})
    with pytest.raises(HTTPError, match="400"):
        get(Request(address + "api/models", headers={"Host": "evil.example"}))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, address, "api/translate", **question(0))
        process.wait_for("waits")
        process.send_signal(signal.SIGINT)
        result = process.result()
        with pytest.raises(OSError):  # the connection is closed
            answer.result()
    assert (result.returncode, result.stdout) == (0, "")
    # A line for each model, the address, and "waits".
    assert result.stderr.count("\n") == 4, result.stderr
