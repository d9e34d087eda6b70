"""Trains, saves and uses any registered model as a `keras.Model`. The numbers are those of the
programs.

Shapes: B batch, S source length, T target length, V vocabulary.
"""

import base64
import copy
import dataclasses
import functools
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from t2t_repro import devices, registry
from t2t_repro.checkpoints.checkpoint import Checkpoints
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.data.tf_dataset import dev_batches, python_errors, step_batches
from t2t_repro.data.vocabularies.kinds import KINDS, load_vocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError, refuse_unknown
from t2t_repro.files.json_file import from_fields
from t2t_repro.hparam import MAX_INT, with_changes
from t2t_repro.keras.batches import id_batches, pairs_in
from t2t_repro.keras.metrics import Perplexity, TokenAccuracy
from t2t_repro.layers.dropout import example_seeds
from t2t_repro.models.model import make_model
from t2t_repro.problem import Problem
from t2t_repro.serving.export import export
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.optimizer import make_optimizer
from t2t_repro.training.step import passes_of_batch, trained_weights

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
"""Dtype policies of training."""


@keras.saving.register_keras_serializable("t2t_repro")
class TranslationModel(keras.Model):
    """A registered model with its vocabulary and its problem. `from_preset` makes it.

    Called with {"inputs": ids [B, S], "targets": ids [B, T]}, it returns logits [B, T, V].

    Args:
        folder: hparams, vocabulary, problem and random seed, as of a model folder.
        model: the registered model; None makes a new one from random numbers.
        options: those of keras.Model, e.g. dtype, a policy of `PRECISIONS`.
    """

    def __init__(self, folder: ModelFolder, model: Any = None, **options: Any) -> None:
        super().__init__(autocast=False, **options)
        self.hparams = folder.hparams
        self.vocabulary = folder.vocabulary
        self.problem = folder.problem
        precision = self.dtype_policy.name
        refuse_unknown("dtype policy", precision, PRECISIONS)
        self.origin = dataclasses.replace(folder.origin, precision=precision)
        self.tags = folder.tags
        devices.use_tf32(False)
        sizes = (
            self.vocabulary.size,
            self.problem.target_space_id,
            precision,
            self.vocabulary.separate_source_size,
        )
        self.model: Any = model or make_model(self.hparams, *sizes)
        # Keras finds the weights of a user-defined model in this attribute.
        self.layer = getattr(self.model, "layer", self.model)
        is_trained = {weight.path for weight in trained_weights(self.model, self.hparams.frozen)}
        for weight in self.model.trainable_variables:
            weight.trainable = weight.path in is_trained
        self.optimizer: Any = None
        # XLA would compile the graph again for each length
        self.built = True
        self.supports_jit = False

    @classmethod
    @python_errors()
    def from_preset(
        cls,
        preset: str | Path,
        vocabulary: str | Path | Vocabulary = "",
        problem: str | Problem = "text_files",
        *,
        random_seed: int = 1,
        dtype: Any = None,
        **hparams: Any,
    ) -> Self:
        """Returns a trained model, or a new one. Raises ValueError if an argument does not fit.

        Args:
            preset: a model folder, whose default checkpoint is used, or the name of an hparams set,
                for a new model.
            vocabulary: a new model's vocabulary, e.g. `load_data(...).vocabulary`, or its file.
            problem: a new model's problem, or the problem's name.
            random_seed: seed of a new model's weights and of dropout. It also becomes the seed of
                Python and Keras.
            dtype: dtype policy; by default that of `keras.config.set_dtype_policy`.
            hparams: changes to the hparams set.
        """
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        if Path(preset).is_dir():
            if vocabulary or hparams:
                raise UserError(
                    f"{preset} has its own vocabulary and hparams; omit these arguments"
                )
            folder = ModelFolder(preset)
            return cls(folder, folder.model(folder.checkpoint(), policy.name), dtype=policy)
        if not vocabulary:
            raise UserError(
                f"{preset} is no folder; if it is an hparams set, also give the new model's "
                "vocabulary"
            )
        values = registry.for_model(with_changes(registry.hparams(str(preset)), hparams))
        vocabulary = (
            vocabulary if isinstance(vocabulary, Vocabulary) else load_vocabulary(vocabulary)
        )
        problem = problem if isinstance(problem, Problem) else registry.problem(problem)
        keras.utils.set_random_seed(random_seed)
        origin = Origin.without_data(problem, vocabulary, random_seed)
        return cls(ModelFolder("", (values, origin, problem, vocabulary)), dtype=policy)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Returns the logits, float32 [B, T, V], of a batch; see `as_dataset`. In training, with
        dropout.
        """
        return self.model(
            inputs["inputs"], inputs["targets"], self._seeds(inputs) if training else None
        )

    def _seeds(self, batch: dict[str, Any]) -> Any:
        """Returns the seed of each example's dropout masks in this step. Rows replace missing
        numbers of examples.
        """
        examples = batch.get("examples")
        if examples is None:
            context = tf.distribute.get_replica_context()
            rows = ops.arange(ops.shape(batch["targets"])[0])
            examples = rows * context.num_replicas_in_sync + context.replica_id_in_sync_group
        step = self.optimizer.iterations.value if self.optimizer else 0
        return example_seeds(
            (tf.constant(self.origin.random_seed, tf.uint32), tf.cast(step, tf.uint32)), examples
        )

    @python_errors()
    def compile(
        self, optimizer: Any = "auto", loss: Any = None, *, metrics: Any = "auto", **options: Any
    ) -> None:
        """Prepares training: by default with the paper's optimizer, loss, token accuracy and
        perplexity.

        The default loss is the label-smoothed cross-entropy per target token of the global batch.
        As in t2t-trainer, `evaluate` measures it without label smoothing. `options` are those of
        keras.Model.
        """
        optimizer = make_optimizer(self.hparams) if optimizer == "auto" else optimizer
        metrics = (
            [TokenAccuracy("accuracy"), Perplexity("perplexity")] if metrics == "auto" else metrics
        )
        super().compile(optimizer, loss, metrics=metrics, **options)
        if (
            self.dtype_policy.name == "mixed_float16"
            and self.distribute_strategy.num_replicas_in_sync > 1
        ):
            # Keras looks for overflows only on the first replica.
            raise UserError("mixed_float16 trains on one device only; use mixed_bfloat16")

    def compile_from_config(self, config: dict[str, Any]) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Returns this replica's part of the loss. The parts of all replicas add up to the loss of
        the global batch.
        """
        if self.loss is not None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        return smoothed_cross_entropy(
            y_pred, y, self.hparams.label_smoothing if training else 0.0
        ) / _count(y)

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        # Keras builds the metrics with the mean of the replicas' batches, which fails if their
        # sizes differ.
        ids = np.ones((1, 1), np.int64)
        super()._maybe_symbolic_build(data_batch=({"inputs": ids, "targets": ids}, ids))

    def train_step(self, data: Any) -> dict[str, Any]:
        """Takes a step as t2t-trainer does, with a global batch; returns the metrics."""
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            batch = x["inputs"], x["targets"], self._seeds(x)
            passes, auxiliary_loss = passes_of_batch(
                self.model, self.hparams.rdrop_alpha, batch, _count(y)
            )
            loss = tf.add_n([self.compute_loss(x, y, logits, weights) for logits in passes]) / len(
                passes
            )
            scaled = self.optimizer.scale_loss(loss + auxiliary_loss)
        variables = self.trainable_variables
        gradients = tape.gradient(scaled, variables)
        # `step_batches` reads the number of steps when the first batch is requested, so only then
        # may it change.
        with tf.control_dependencies([y]):
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return self._updated_metrics(x, y, weights, passes[0], loss)

    def test_step(self, data: Any) -> dict[str, Any]:
        """Evaluates a global batch; returns the metrics."""
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        logits = self(x, training=False)
        loss = self.compute_loss(x, y, logits, weights, training=False)
        return self._updated_metrics(x, y, weights, logits, loss)

    def _updated_metrics(
        self, x: Any, y: Any, weights: Any, logits: Any, loss: Any
    ) -> dict[str, Any]:
        # The first metric is the mean of the loss. Keras would weight the replicas' losses by their
        # numbers of rows.
        self.metrics[0].update_state(_sum_over_replicas(loss), _count(y))
        return dict(self.compute_metrics(x, y, logits, weights))

    @python_errors()
    def fit(
        self, x: Any = None, y: Any = None, *, validation_data: Any = None, **options: Any
    ) -> Any:
        """Trains the model; returns Keras's history. Raises ValueError or TypeError if data is
        wrong or empty.

        Args:
            x: `as_dataset`, two lists of texts (sources, targets), which are batched as t2t-trainer
                does, or a `tf.data.Dataset` of batches of pairs: texts [B], or padded ids [B, S]
                and [B, T].
            y: the targets, if `x` is the list of sources.
            validation_data: data of the same forms, for `evaluate`.
            options: those of keras.Model.
        """
        if options.get("batch_size"):
            raise UserError(
                "batch_size has no effect here; omit it, or change the hparam batch_size, in tokens"
            )
        if pairs := pairs_in(x, y, self.vocabulary):
            self._assert_compile_called("fit")
            pipeline = Pipeline(pairs, self.hparams, self.origin.random_seed, 0, 1, self.vocabulary)
            options = {"steps_per_epoch": pipeline.steps_per_epoch} | options
            x = step_batches(pipeline, self.optimizer.iterations, MAX_INT)
        if validation_data is not None:
            options["validation_data"] = self._dev_batches(validation_data)
        return super().fit(id_batches(x, self.vocabulary), shuffle=False, **options)

    @python_errors()
    def evaluate(self, x: Any = None, y: Any = None, **options: Any) -> Any:
        """Returns the loss per target token without label smoothing, and the metrics; `x` and `y`
        as for `fit`.
        """
        if not options.get("_use_cached_eval_dataset"):  # else `fit` calls, with batches
            x = self._dev_batches(x, y)
            y = None
        return super().evaluate(x, y, **options)

    @python_errors()
    def predict(self, x: Any, **options: Any) -> Any:
        """Returns the logits of all examples of `x`, which is as for `fit`; [B, T, V] or ragged."""
        return super().predict(self._dev_batches(x), **options)

    def _dev_batches(self, x: Any, y: Any = None) -> tf.data.Dataset:
        pairs = pairs_in(x, y, self.vocabulary)
        return id_batches(dev_batches(pairs, self.hparams) if pairs else x, self.vocabulary)

    @functools.cached_property
    def translator(self) -> Translator:
        """The translator of this model, whose results follow the model's weights."""
        return Translator(
            self.model,
            self.vocabulary,
            self.problem.decode_hparams,
            self.hparams.max_length,
            self.problem.output_rules,
            self.tags,
        )

    @python_errors()
    def generate(
        self, texts: str | Iterable[str], target_language: str = "", **decode_hparams: Any
    ) -> Any:
        """Returns the translation of a text, or a list with that of each text, as t2t-decoder
        writes them.

        Args:
            texts: a text or several texts.
            target_language: the language of the outputs, if the model has several.
            decode_hparams: values for fields of `DecodeHParams`, e.g. beam_size=4.
        """
        sources = [texts] if isinstance(texts, str) else list(texts)
        translations = self.translator.translate(
            sources, target_language=target_language, **decode_hparams
        )
        outputs, _ = self.problem.finish(
            sources, [translation.text for translation in translations]
        )
        return outputs[0] if isinstance(texts, str) else outputs

    @python_errors()
    def export(self, filepath: str | Path, **decode_hparams: Any) -> Path:
        """Writes a SavedModel that translates texts, as t2t-exporter does; returns the folder of
        its version.
        """
        translator = copy.copy(self.translator)
        translator.decode_hparams = with_changes(translator.decode_hparams, decode_hparams)
        return export(translator, filepath)

    @python_errors()
    def save_to_preset(self, preset_dir: str | Path) -> None:
        """Writes a new model folder, which all programs and `from_preset` take. ValueError if the
        path exists.
        """
        if Path(preset_dir).exists():
            raise UserError(f"{preset_dir}: exists already; give a new path")
        folder = ModelFolder.create(
            preset_dir, self.hparams, self.vocabulary, self.origin, self.problem
        )
        optimizer = self.optimizer if self.optimizer and self.optimizer.built else None
        weights = SimpleNamespace(trainable_variables=self.weights)  # also those that are frozen
        checkpoints = Checkpoints(folder, weights, optimizer.variables if optimizer else [], keep=1)
        checkpoints.save(int(optimizer.iterations.numpy()) if optimizer else 0)

    def get_config(self) -> dict[str, Any]:
        """Returns everything that `from_config` needs as JSON, with the vocabularies in base64."""
        fields = {
            "hparams": dataclasses.asdict(self.hparams),
            "origin": dataclasses.asdict(self.origin),
        }
        sides = self.vocabulary, self.vocabulary.sources
        vocabularies = [[side.kind, base64.b64encode(side.model).decode()] for side in sides]
        return super().get_config() | fields | {"vocabularies": vocabularies}

    @classmethod
    @python_errors()
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """Returns a new model from the result of `get_config`. ValueError if it is damaged or the
        model is unknown.
        """
        fields = dict(config)
        hparams = config["hparams"]
        file = "config.json"
        hparams = from_fields(registry.hparams_class(hparams["model"]), fields.pop("hparams"), file)
        targets, sources = (
            KINDS[kind](base64.b64decode(model), file) for kind, model in fields.pop("vocabularies")
        )
        origin = from_fields(Origin, fields.pop("origin"), file)
        content = (
            hparams,
            origin,
            registry.problem(origin.problem, origin.settings),
            targets.with_sources(sources),
        )
        return cls(ModelFolder("", content), **fields)


def _count(targets: Any) -> Any:
    """Returns the number of target tokens in the global batch, float32 []."""
    return _sum_over_replicas(tf.cast(tf.math.count_nonzero(targets), tf.float32))


def _sum_over_replicas(value: Any) -> Any:
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, value)
