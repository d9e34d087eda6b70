"""Tests t2t-insights as a user runs it: it prints its address, answers requests, and ends with
Ctrl-C.
"""

import json
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from processes import code_that_waits, start_program
from programs import TrainedModel


def get(address: str, path: str, **query: Any) -> Any:
    """Returns the answer to a request."""
    with urlopen(f"{address}{path}?{urlencode(query)}", timeout=60) as response:
        return json.load(response)


def question(model: int) -> dict[str, Any]:
    return {"model": model, "source": "three hundred", "beam_size": 2, "alpha": 1, "num_best": 2}


def test_two_checkpoints_of_a_model_until_ctrl_c_during_an_answer(trained: TrainedModel) -> None:
    checkpoints = [f"{trained.folder}/model.ckpt-{step}" for step in (60, 20)]
    flags = (
        f"--output_dir={trained.folder}",
        f"--compare_checkpoint_path={checkpoints[1]}",
        "--port=0",
    )
    third_answer = code_that_waits("t2t_repro.insights.answers:ExploredModel", "translate", call=3)
    process = start_program("insights", *flags, before=third_answer)
    process.wait_for("is ready")
    [address] = re.findall(r"http://127\.0\.0\.1:\d+/", process.errors)
    models = get(address, "api/models")["models"]
    descriptions = [f"text_files, transformer, {checkpoint}" for checkpoint in checkpoints]
    assert [model["description"] for model in models] == descriptions
    first, second = (
        get(address, "api/translate", **question(number))["hypotheses"] for number in (0, 1)
    )
    assert first != second
    with pytest.raises(HTTPError, match="431"):  # the address is longer than 32 KiB
        get(address, "api/translate", **question(0) | {"source": "x" * 40_000})
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
