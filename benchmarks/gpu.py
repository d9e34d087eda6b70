"""Measures training and decoding on a GPU: speed, memory, and equality with the CPU. See
docs/gpu.md.

    python benchmarks/gpu.py --work=FOLDER [--backend=jax]

The script needs no data: it trains on random sentences whose lengths are like those of WMT, with
the paper's vocabulary of 37,000 subwords and its batches of 25,000 target tokens. Each measurement
is a process of its own. The script writes the results to gpu.json in FOLDER, skips measurements
that this file has, and prints tables. With --backend=jax, it measures the training step of
docs/jax.md instead. It uses one GPU, or the CPU if there is none. To try it on a CPU:

    python benchmarks/gpu.py --work=FOLDER
    --hparams=hidden_size=32,filter_size=64,num_heads=2,num_hidden_layers=1 \
        --vocab_size=1000 --batch_size=1000 --sentences=20 --seconds=2
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if "--backend=jax" in sys.argv:
    os.environ["KERAS_BACKEND"] = "jax"  # Keras reads this variable when it is imported

import numpy as np
from absl import app, flags

from random_pairs import random_lengths, random_records, random_sentence
from results import Results
from t2t_repro import registry
from t2t_repro.data.pipeline import Batch, Pipeline
from t2t_repro.hparam import DecodeHParams, HParams, override
from t2t_repro.models.model import Model, make_model
from t2t_repro.training.config import Precision, RunConfig

WORK = flags.DEFINE_string("work", None, "folder of data and results", required=True)
BACKEND = flags.DEFINE_enum(
    "backend", "tensorflow", ["tensorflow", "jax"], "what computes the training step"
)
HPARAMS = flags.DEFINE_string("hparams", "", "changes to transformer_base and transformer_big")
VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 37_000, "number of subwords", lower_bound=100)
BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 25_000, "target tokens in a training step", lower_bound=1
)
MAX_TOKENS = flags.DEFINE_integer(
    "max_tokens_per_replica", 8192, "as for t2t-trainer", lower_bound=1
)
DECODE_TOKENS = flags.DEFINE_integer(
    "decode_tokens", 4096, "source tokens decoded together", lower_bound=1
)
SENTENCES = flags.DEFINE_integer("sentences", 1000, "number of sentences to decode", lower_bound=1)
SECONDS = flags.DEFINE_float("seconds", 15.0, "duration of each measured training", lower_bound=0)
ONLY = flags.DEFINE_string("only", "", "for the script's own use: prints this measurement")

SEED = 1
FIRST_STEPS = 5
JAX_STEPS = 2
STEPS = 20
PAIRS = 100_000
COMPARED = 32
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "mixed_bfloat16")
REPEATED: tuple[Precision, ...] = ("float32", "mixed_bfloat16")
A100 = {"big, tf32": "51,057", "big, mixed_bfloat16": "82,059"}
"""Target tokens per second of NVIDIA's PyTorch implementation, mixed_float16 in the second row."""


def hparams_of(size: str) -> HParams:
    """Returns the hparams of a model, "base" or "big"."""
    return override(
        registry.hparams(f"transformer_{size}"), f"batch_size={BATCH_SIZE.value}," + HPARAMS.value
    )


def batches(size: str) -> Iterator[Batch]:
    """Yields the batches of a training run on random pairs."""
    records = random_records(WORK.value, PAIRS, VOCAB_SIZE.value)
    return Pipeline(records, hparams_of(size), SEED, MAX_TOKENS.value, 1).batches(0, 1_000_000)


def tokens_per_second(
    steps: Iterator[Batch], take: Callable[[Batch], Any], read: Callable[[Any], Any]
) -> float:
    """Returns the target tokens per second of training steps.

    Args:
        steps: the batches; the first FIRST_STEPS are not measured.
        take: takes a step, and may return before the step has ended.
        read: waits until the step ends whose result `take` returned.
    """
    tokens = 0
    start = 0.0
    for _ in range(FIRST_STEPS):
        read(take(next(steps)))
    start = time.perf_counter()
    latest = None
    while time.perf_counter() < start + SECONDS.value:
        batch = next(steps)
        result = take(batch)
        if latest is not None:
            read(latest)
        latest = result
        tokens += batch.target_tokens
    if latest is not None:
        read(latest)
    return round(tokens / (time.perf_counter() - start), 1)


def train_step(size: str, precision: Precision) -> tuple[Model, Callable[[Batch], Any]]:
    """Returns a new model, and a function that takes a step of t2t-trainer with it. A step's result
    is a tensor.
    """
    import keras
    import tensorflow as tf

    from t2t_repro import devices
    from t2t_repro.training.optimizer import make_optimizer
    from t2t_repro.training.step import TrainStep

    devices.use_one_gpu()
    devices.use_tf32(precision == "tf32")
    keras.utils.set_random_seed(SEED)
    hparams = hparams_of(size)
    model = make_model(hparams, VOCAB_SIZE.value, 0, RunConfig(precision=precision).model_precision)
    step = TrainStep(model, make_optimizer(hparams), hparams, tf.distribute.get_strategy())
    return model, lambda batch: step(batch.micro_batches, batch.target_tokens, (SEED, batch.step))


def measure_training(size: str, precision: Precision) -> dict[str, Any]:
    """Returns the speed and the GPU's peak memory of training with TensorFlow."""
    import tensorflow as tf

    _, take = train_step(size, precision)
    speed = tokens_per_second(batches(size), take, lambda result: result.numpy())
    gpus = tf.config.list_logical_devices("GPU")
    memory = tf.config.experimental.get_memory_info("GPU:0")["peak"] if gpus else 0
    return {"tokens_per_second": speed, "peak_bytes": memory, "device": device()}


def jax_step(size: str, precision: Precision) -> tuple[Any, Callable[[Batch], Any]]:
    """Returns the module jax, and a function that takes the training step of docs/jax.md and
    returns its loss.
    """
    import keras

    page = (Path(__file__).parents[1] / "docs" / "jax.md").read_text("utf-8")
    program: dict[str, Any] = {"__name__": "program"}
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], program)
    jax = program["jax"]
    keras.utils.set_random_seed(SEED)
    jax.config.update(
        "jax_default_matmul_precision", "tensorfloat32" if precision == "tf32" else "float32"
    )
    hparams = hparams_of(size)
    model = make_model(hparams, VOCAB_SIZE.value, 0, RunConfig(precision=precision).model_precision)
    step, first_state = program["make_step"](model, hparams)
    weights = [variable.value for variable in model.trainable_variables]
    state = first_state(weights)

    def take(batch: Batch) -> Any:
        nonlocal weights, state
        weights, state, loss = step(weights, state, batch, SEED)
        return loss

    return jax, take


def measure_jax(size: str, precision: Precision) -> dict[str, Any]:
    """Returns the speed of the training step in docs/jax.md."""
    jax, take = jax_step(size, precision)
    # JAX compiles the step for each new shape, which takes many seconds. So the same few steps are
    # taken repeatedly.
    speed = tokens_per_second(
        itertools.cycle(list(itertools.islice(batches(size), JAX_STEPS))), take, float
    )
    return {"tokens_per_second": speed, "device": str(jax.devices()[0].device_kind)}


def measure_jax_equality() -> dict[str, Any]:
    """Returns the losses of JAX_STEPS steps with dropout, in float32."""
    jax, take = jax_step("base", "float32")
    losses = [float(take(batch)) for batch in itertools.islice(batches("base"), JAX_STEPS)]
    return {"losses": losses, "device": str(jax.devices()[0].device_kind)}


def decode(precision: str, count: int) -> tuple[list[np.ndarray], float]:
    """Translates sentences by beam search with a new base model, beam 4. Outputs have at most the
    source's length.

    Returns:
        The outputs [B, L] of each batch, and the seconds of the second translation of all
        sentences.
    """
    import keras
    import tensorflow as tf

    from t2t_repro import devices
    from t2t_repro.decoding.batches import padded
    from t2t_repro.decoding.search import Sources, generate_outputs

    devices.use_one_gpu()
    devices.use_tf32(False)
    keras.utils.set_random_seed(SEED)
    model: Any = make_model(hparams_of("base"), VOCAB_SIZE.value, 0, precision)
    params = DecodeHParams(beam_size=4, extra_length=0)
    search = tf.function(
        lambda ids: generate_outputs(model, params, Sources(inputs=ids)).ids[:, 0],
        autograph=False,
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
    )
    lengths = sorted(random_lengths(count)[0].tolist())
    rows = [
        random_sentence(number, length, VOCAB_SIZE.value) for number, length in enumerate(lengths)
    ]
    size = max(DECODE_TOKENS.value // len(rows[-1]), 1)
    sources = [padded(rows[start : start + size]) for start in range(0, count, size)]
    for _ in range(2):
        start = time.perf_counter()
        outputs = [search(source).numpy() for source in sources]
    return outputs, time.perf_counter() - start


def measure_decoding(precision: str) -> dict[str, Any]:
    """Returns the speed of decoding."""
    outputs, seconds = decode(precision, SENTENCES.value)
    tokens = sum(int((batch != 0).sum()) for batch in outputs)
    return {
        "sentences_per_second": round(SENTENCES.value / seconds, 1),
        "tokens_per_second": round(tokens / seconds, 1),
        "device": device(),
    }


def measure_equality() -> dict[str, Any]:
    """Returns the loss of a first step with dropout, and the outputs of a search, in float32."""
    _, take = train_step("base", "float32")
    loss = float(take(next(batches("base"))).numpy()[0])
    outputs, _ = decode("float32", COMPARED)
    return {
        "loss": loss,
        "outputs": [row.tolist() for batch in outputs for row in batch],
        "device": device(),
    }


def measure_repetition(precision: Precision) -> str:
    """Returns a fingerprint of all weights after `STEPS` steps."""
    model, take = train_step("base", precision)
    steps = batches("base")
    for _ in range(STEPS):
        take(next(steps)).numpy()
    weights = [variable.numpy().tobytes() for variable in model.trainable_variables]
    return hashlib.sha256(b"".join(weights)).hexdigest()


def device() -> str:
    """Returns the name of the GPU, or of the processor if there is no GPU."""
    from t2t_repro import devices

    return ", ".join(devices.names())


MEASUREMENTS: dict[str, Callable[[], Any]] = {
    **{
        f"train: {size}, {precision}{xla}": functools.partial(measure_training, size, precision)
        for size in ("base", "big")
        for precision in PRECISIONS
        for xla in ("", ", XLA")
    },
    **{
        f"decode: {precision}": functools.partial(measure_decoding, precision)
        for precision in ("float32", "bfloat16")
    },
    "equality: CPU": measure_equality,
    "equality: GPU": measure_equality,
    **{
        f"repetition: {precision}, run {number}": functools.partial(measure_repetition, precision)
        for precision in REPEATED
        for number in (1, 2)
    },
}
JAX_MEASUREMENTS: dict[str, Callable[[], Any]] = {
    f"train on JAX: {size}, {precision}": functools.partial(measure_jax, size, precision)
    for size in ("base", "big")
    for precision in PRECISIONS
} | dict.fromkeys(("equality: CPU", "equality: GPU"), measure_jax_equality)


def measure(name: str) -> Any:
    """Returns a measurement, taken by a new process. Raises RuntimeError if that process fails."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    if name.endswith("XLA"):
        environment["TF_XLA_FLAGS"] = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"
    if name.endswith("CPU"):
        environment |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    print(f"{name} ...", file=sys.stderr, flush=True)
    command = [sys.executable, *sys.argv, f"--only={name}"]
    result = subprocess.run(command, env=environment, text=True, capture_output=True)
    if result.returncode:
        raise RuntimeError(result.stderr.strip().splitlines()[-1][:200])
    return json.loads(result.stdout.splitlines()[-1])


def print_tables(results: dict[str, Any]) -> None:
    """Prints the speeds, and whether the results of the GPU equal those of the CPU and of a second
    run.
    """
    print("| measurement | target tokens/s | peak memory, GB | published, A100 | device |")
    print("| --- | ---: | ---: | ---: | --- |")
    for name, values in results.items():
        if name.startswith(("train", "decode")):
            speed = (
                f"{values['tokens_per_second']:,.0f}" if "error" not in values else values["error"]
            )
            memory = f"{values['peak_bytes'] / 1e9:.1f}" if values.get("peak_bytes") else ""
            published = "" if HPARAMS.value else A100.get(name.partition(": ")[2], "")
            print(f"| {name} | {speed} | {memory} | {published} | {values.get('device', '')} |")
    print(f"\n{comparison(results)}" if BACKEND.value == "tensorflow" else "")
    for name in ("equality: CPU", "equality: GPU") if BACKEND.value == "jax" else ():
        print(f"{name}: {results[name]}")


def comparison(results: dict[str, Any]) -> str:
    """Returns lines that compare the GPU with the CPU, and two runs with each other."""
    pairs = [("equality: CPU", "equality: GPU")]
    pairs += [(f"repetition: {name}, run 1", f"repetition: {name}, run 2") for name in REPEATED]
    (cpu, gpu), *runs = ([results[name] for name in pair] for pair in pairs)
    for name in itertools.chain(*pairs):
        if isinstance(results[name], dict) and "error" in results[name]:
            return f"{name}: {results[name]['error']}"
    equal = sum(
        gpu_output == cpu_output
        for gpu_output, cpu_output in zip(gpu["outputs"], cpu["outputs"], strict=True)
    )
    lines = [
        f"loss: {gpu['loss']:.6f} ({gpu['device']}), {cpu['loss']:.6f} ({cpu['device']})",
        f"equal outputs of a search with beam 4: {equal} of {len(cpu['outputs'])}",
    ]
    for name, (first, second) in zip(REPEATED, runs, strict=True):
        lines.append(
            f"two runs of {STEPS} steps in {name}: {'equal' if first == second else 'not equal'} "
            "bit by bit"
        )
    return "\n".join(lines)


def main(argv: list[str]) -> None:
    """Takes all measurements and prints the tables."""
    measurements = JAX_MEASUREMENTS if BACKEND.value == "jax" else MEASUREMENTS
    if ONLY.value:
        print(json.dumps(measurements[ONLY.value]()))
        return
    results = Results(Path(WORK.value) / "gpu.json")
    # Written here, before several processes need them.
    random_records(WORK.value, PAIRS, VOCAB_SIZE.value)
    failures = {}
    for name in measurements:
        try:
            results.measure(name, functools.partial(measure, name))
        except RuntimeError as error:  # not stored, so that the same command measures again
            failures[name] = {"error": str(error)}
    print_tables(results.read() | failures)


if __name__ == "__main__":
    app.run(main)
