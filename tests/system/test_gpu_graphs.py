"""On a GPU, all operations run there except those on text, and few tensors are copied between host
and device.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import tensorflow as tf

import gpu_graphs
from t2t_repro import registry
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.decoding.beam_search import Hypotheses
from t2t_repro.decoding.search import Sources, generate_outputs
from t2t_repro.decoding.translator import Translator
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.models import variants
from t2t_repro.serving.export import Served
from t2t_repro.training.evaluation import Evaluator
from t2t_repro.training.loss_scale import LossScale
from t2t_repro.training.optimizer import make_optimizer
from t2t_repro.training.step import TrainStep

HPARAMS = HParams(num_hidden_layers=1, hidden_size=16, filter_size=32, num_heads=2)
ALL_DROPOUT = replace(HPARAMS, attention_dropout=0.1, relu_dropout=0.1)
OTHERS = replace(
    ALL_DROPOUT,
    norm_before=True,
    pos="emb",
    self_attention_neighborhood=4,
    use_target_space_embedding=True,
    activation="gelu",
    use_attention_biases=True,
    use_softmax_bias=True,
    shared_embedding_and_softmax_weights=False,
)
IDS = tf.TensorSpec([None, None], tf.int32)
IDS64 = tf.TensorSpec([None, None], tf.int64)
SEED = tf.TensorSpec([None], tf.uint32)
VOCAB_SIZE = 8000

# The copies between host and device that are allowed, for models of one layer. Lengths and the
# position are known on the host, and are copied to the device without waiting. Only copies to the
# host wait.
LENGTH = "call: Range int32 to device"
INPUTS = "call: Placeholder int32 to device"
SEARCH = Counter(
    {
        INPUTS: 1,
        "call: Pad int32 to device": 1,  # the prefixes
        LENGTH: 2,
        "position: BroadcastTo int32 to device": 1,
        "position: AddV2 int32 to device": 1,
        "position: Mul int32 to device": 1,  # with repeat_ngram_size
        "position: Any bool to host": 1,  # whether a sentence is done
        "if no sentence is done: Range int32 to device": 1,
        "if a sentence is done: Switch int32 to device": 1,  # the position again
        "call: Cast int32 to host": 2,  # the longest limit and the outputs
    }
)
SEARCHES = {
    "with penalties": DecodeHParams(
        4, repeat_ngram_size=3, repeat_ngram_penalty=1.0, coverage_penalty=0.2
    ),
    "random": DecodeHParams(
        sampling_method="random", n=3, sampling_keep_top_k=4, sampling_keep_top_p=0.9
    ),
}
RAGGED = {"RaggedRange", "RaggedGather", "RaggedTensorToTensor", "Fill"}
"""Operations that have no GPU kernel, or none for all types. A served model needs them, because a
tokenizer reads and gives lists of ids of different lengths.
"""


def graph_of(function: Callable[..., Any], *specs: tf.TensorSpec) -> Any:
    """Returns the graph that TensorFlow runs for a function of tensors."""
    return gpu_graphs.optimized(
        tf.function(function, autograph=False, input_signature=specs).get_concrete_function()
    )


def assert_runs_on_gpu(graph: Any, allowed: dict[str, int]) -> None:
    assert gpu_graphs.without_kernel(graph) == set()
    assert gpu_graphs.copies(graph) <= Counter(allowed)


@pytest.mark.parametrize(
    ("precision", "hparams", "allowed"),
    [
        (
            "mixed_bfloat16",
            OTHERS,
            {LENGTH: 20, "call: Less bool to device": 2, "call: Greater bool to device": 2},
        ),
        ("mixed_float16", ALL_DROPOUT, {LENGTH: 19, "call: IsFinite bool to host": 1}),
    ],
)
def test_a_training_step_runs_on_a_gpu(
    precision: str, hparams: HParams, allowed: dict[str, int]
) -> None:
    model = variants.transformer(hparams, VOCAB_SIZE, 1, precision)
    scale = LossScale() if precision == "mixed_float16" else None
    step = TrainStep(model, make_optimizer(hparams), hparams, tf.distribute.get_strategy(), scale)
    for graph in (step._accumulate, step._update):
        assert_runs_on_gpu(gpu_graphs.optimized(graph.get_concrete_function()), allowed)


@pytest.mark.parametrize("name", ["bytenet", "convs2s", "gnmt", "transformer_moe"])
def test_the_logits_of_the_other_models_have_gpu_kernels(name: str) -> None:
    changes = {"moe_num_experts": 4} if "moe" in name else {}
    hparams = registry.override_hparams(
        HPARAMS, "", model=name, num_heads=8, filter_size=2048, **changes
    )
    model = registry.model(name)(hparams, 50)
    graph = graph_of(lambda inputs, targets, seed: model(inputs, targets, seed), IDS64, IDS64, SEED)
    assert gpu_graphs.without_kernel(graph) == set()


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_waits_for_the_gpu_once_in_each_position(name: str) -> None:
    model = variants.transformer(HPARAMS, VOCAB_SIZE, dtype="bfloat16")
    decode_hparams = SEARCHES[name]
    random = tf.TensorSpec([None, decode_hparams.n, None])

    def search(ids: tf.Tensor, prefix: tf.Tensor, random: tf.Tensor) -> Hypotheses:
        return generate_outputs(
            model, decode_hparams, Sources(inputs=ids, prefix=prefix, random=random)
        )

    graph = graph_of(search, IDS, IDS, random)
    assert_runs_on_gpu(graph, SEARCH)


def test_an_evaluation_runs_on_a_gpu() -> None:
    evaluator = Evaluator(variants.transformer(HPARAMS, VOCAB_SIZE, dtype="mixed_bfloat16"), [], 1)  # type: ignore[arg-type]
    assert_runs_on_gpu(gpu_graphs.optimized(evaluator._sums.get_concrete_function()), {LENGTH: 3})


def test_a_served_model_does_only_text_on_the_host() -> None:
    vocabulary = sentencepiece.train(["the dog", "a cat", "the cat sat on the dog"], 290)
    model = variants.transformer(HPARAMS, vocabulary.size)
    served = Served(Translator(model, vocabulary, DecodeHParams(beam_size=4), max_length=100))
    for name in ("nbest", "score"):
        graph = gpu_graphs.optimized(served.functions[name].get_concrete_function())
        assert gpu_graphs.without_kernel(graph) <= RAGGED
