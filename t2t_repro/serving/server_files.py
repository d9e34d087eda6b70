"""Writes the files around a SavedModel: a description, and TensorFlow Serving's configuration and
warm-up requests.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf
from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2

from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.files.output_files import write_file
from t2t_repro.hparam import DecodeHParams

WARMUP_LENGTHS = (1, 8, 32)
"""Lengths, in tokens, of the three default warm-up texts."""
WARMUP_BATCH = 32
"""Maximum number of texts in a warm-up request. A server with a smaller max_batch_size refuses to
load the model.
"""

BATCHING = """\
# For tensorflow_model_server --enable_batching --batching_parameters_file=...
# Requests that come within the timeout are translated together, up to max_batch_size texts.
max_batch_size { value: 64 }
batch_timeout_micros { value: 5000 }
max_enqueued_batches { value: 100 }
# Batches that are translated side by side: the processor's cores, or 1 to 2 for a GPU.
num_batch_threads { value: 4 }
# The signature "tokens" takes rows of different lengths.
pad_variable_length_inputs: true
"""

MODELS = """\
# For tensorflow_model_server --model_config_file=...; base_path is as the server sees it, e.g. \
inside its container.
model_config_list {{
  config {{
    name: "{name}"
    base_path: "/models/{name}"
    model_platform: "tensorflow"
    model_version_policy {{ latest {{ num_versions: 1 }} }}
  }}
}}
"""


def warmup_texts(vocabulary: Vocabulary) -> list[str]:
    """Returns one text for each length in `WARMUP_LENGTHS`, made of subwords from the vocabulary of
    the sources.
    """
    tags = vocabulary.tags.values()
    subwords = [
        number
        for number in range(3, vocabulary.size)
        if not vocabulary.is_byte[number] and number not in tags
    ]
    return vocabulary.decode([subwords[-length:] for length in WARMUP_LENGTHS])


def write_warmup(
    folder: Path,
    texts: Sequence[str],
    servable_name: str,
    signatures: Sequence[str],
    target_language: str = "",
) -> None:
    """Writes warm-up requests to assets.extra/tf_serving_warmup_requests in the folder of a
    SavedModel.

    Each of the signatures, whose inputs must be raw strings, gets one request per text, and one
    request with up to `WARMUP_BATCH` texts. If the model has several target languages,
    `target_language` is one of them.
    """
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir(exist_ok=True)
    batches = [*([text] for text in texts), texts[:WARMUP_BATCH]]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature in signatures:
            for batch in batches:
                inputs = {"inputs": tf.make_tensor_proto(batch, tf.string)}
                if signature == "score":
                    inputs["targets"] = inputs["inputs"]
                if target_language:
                    languages = [target_language] * len(batch)
                    inputs["target_language"] = tf.make_tensor_proto(languages, tf.string)
                request = predict_pb2.PredictRequest(
                    model_spec=model_pb2.ModelSpec(name=servable_name, signature_name=signature),
                    inputs=inputs,
                )
                log = prediction_log_pb2.PredictLog(request=request)
                writer.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())


def write_description(
    folder: Path, checkpoint: str, precision: str, decode_hparams: DecodeHParams
) -> None:
    """Writes to assets.extra/export.json how a SavedModel was made: its checkpoint, precision and
    search options.
    """
    path = folder / "assets.extra" / "export.json"
    path.parent.mkdir(exist_ok=True)
    fields = dict(vars(decode_hparams))
    if decode_hparams.repeat_ngram_penalty == math.inf:
        fields["repeat_ngram_penalty"] = "inf"  # JSON has no infinity
    description = {"checkpoint": checkpoint, "precision": precision, "decode_hparams": fields}
    path.write_text(
        json.dumps(description, indent=2, ensure_ascii=False, allow_nan=False) + "\n", "utf-8"
    )


def write_configs(export_dir: Path, servable_name: str) -> None:
    """Writes models.config and batching_parameters.txt to `export_dir`. Keeps existing files, which
    users may edit.
    """
    texts = {
        "models.config": MODELS.format(name=servable_name),
        "batching_parameters.txt": BATCHING,
    }
    for name, text in texts.items():
        if not (export_dir / name).exists():
            write_file(export_dir / name, text)
