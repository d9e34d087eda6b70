"""Finds the parts of a MarianMT model in a folder of transformers, and writes them as a model
folder.

In shapes, V is the number of pieces, P the number of positions, D the model's width and F that of a
feed-forward network. PyTorch's kernels have the shape [out, in], ours [in, out].
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from t2t_repro import registry
from t2t_repro.checkpoints.imported import write_imported
from t2t_repro.errors import UserError, counted, shortened
from t2t_repro.hparam import HParams
from t2t_repro.huggingface.config import ACTIVATIONS, CONFIG, MarianConfig, read_config, read_json
from t2t_repro.huggingface.names import (
    BIAS,
    DECODER,
    ENCODER,
    POSITIONS,
    SHARED,
    SOFTMAX,
    layer_weights,
    scaled,
)
from t2t_repro.huggingface.vocabulary import TOKENIZER, read_vocabulary
from t2t_repro.huggingface.weights import read_weights
from t2t_repro.metrics.languages import iso_code
from t2t_repro.problem import Problem

HPARAMS_SET = "marian_base"
LANGUAGES = ("source_lang", "target_lang")
TOLERANCE = 1e-2
"""Largest error of sinusoids in 16 bits."""


class MarianImport:
    """A MarianMT model: its weights, hparams and vocabulary in our form. `write` writes the model
    folder.

    Raises UserError if something is missing, damaged or cannot be imported, or two files contradict
    each other.
    """

    def __init__(self, folder: Path) -> None:
        from t2t_repro.models.model import (
            model_without_values,
        )  # imported here, because it loads TensorFlow

        self._folder, self.config = folder, read_config(folder)
        self.vocabulary, source_ids, self.target_ids = read_vocabulary(folder, self.config)
        self.problem = _problem(folder, self.config, sorted(self.vocabulary.tags))
        self._weights = read_weights(folder)
        self._unused = self._weights.keys() - {SHARED, ENCODER, DECODER, SOFTMAX}
        pos, factor, positions = self._positions()
        self._weights = scaled(self._weights, 1 / factor, self.config.decoder_layers)
        tables = self._tables(source_ids, self.target_ids) | positions
        # Here, decoding starts from zeros. In transformers, it starts from a token, which always
        # has position 0.
        start = tables["target_embedding/table"][
            self.target_ids.index(self.config.decoder_start_token_id)
        ]
        if start.any():
            pos = "emb"
            tables["decoder/position/table"][0] += start * (
                start.size**0.5 if self.config.scale_embedding else 1
            )
        self.hparams = self._hparams(pos, factor, tables)
        weights = {
            f"{self.hparams.model}/{name}": value for name, value in tables.items()
        } | self._layers()
        if self._unused:
            shown = shortened(", ".join(sorted(self._unused)))
            raise UserError(
                f"{folder}: has weights that no model here has: {shown}; choose another model"
            )
        model = model_without_values(
            self.hparams,
            self.vocabulary.size,
            source_vocab_size=self.vocabulary.separate_source_size,
        )
        self.weights = {
            variable.path: weights[variable.path] for variable in model.trainable_variables
        }

    def _positions(self) -> tuple[str, float, dict[str, np.ndarray]]:
        """Returns the hparam `pos`, the factor by which our export has multiplied positions, and
        tables without it.
        """
        from t2t_repro.models.transformer import Sinusoids
        from t2t_repro.models.variants import MarianSinusoids

        shape = self.config.max_position_embeddings, self.config.d_model
        zeros = np.zeros((1, *shape), np.float32)
        kinds = {"marian": MarianSinusoids, "timing": Sinusoids}
        signals = {pos: np.asarray(kind(shape[1])(zeros))[0] for pos, kind in kinds.items()}
        tables = [
            self._take([n], *shape) if n in self._weights else signals["marian"]
            for n in POSITIONS.values()
        ]
        factor = float(tables[0][0, -1])  # the last cosine of sinusoids at position 0 is 1
        tolerance = factor * TOLERANCE
        kinds = [
            pos
            for pos, signal in signals.items()
            if np.allclose(tables, factor * signal, atol=tolerance)
        ]
        pos, factor = (kinds[0], factor) if kinds and factor > 0 else ("emb", 1.0)
        names = (f"{side}/position/table" for side in POSITIONS)
        return (
            pos,
            factor,
            {name: table / factor for name, table in zip(names, tables, strict=True)},
        )

    def _tables(self, source_ids: list[int], target_ids: list[int]) -> dict[str, np.ndarray]:
        """Returns the embeddings [V, D], the matrix before the softmax and its bias [V], with rows
        in our order.
        """
        config, width = self.config, self.config.d_model
        sizes = config.vocab_size, config.decoder_vocab_size
        # A file may lack copies of a matrix. If it has one, transformers uses it, even if it
        # differs.
        shared = [SHARED, ENCODER, DECODER] if config.share_encoder_decoder_embeddings else []
        tied = [*shared, DECODER, SOFTMAX] if config.tie_word_embeddings else []
        source = self._take([ENCODER, *shared], sizes[0], width)
        target = self._take([DECODER, *shared, *tied], sizes[1], width)
        last = self._take([SOFTMAX, *tied], sizes[1], width)
        bias = (
            self._take([BIAS], 1, sizes[1])[0]
            if BIAS in self._weights
            else np.zeros(sizes[1], np.float32)
        )
        return {
            "embedding/table": source[source_ids],
            "target_embedding/table": target[target_ids],
            "softmax/table": last[target_ids],
            "softmax_bias": bias[target_ids],
        }

    def _hparams(self, pos: str, factor: float, tables: dict[str, np.ndarray]) -> HParams:
        config, place = self.config, self._folder / CONFIG
        source, target, last = (
            tables[f"{name}/table"] for name in ("embedding", "target_embedding", "softmax")
        )
        is_shared = not self.vocabulary.separate_source_size and np.array_equal(source, target)
        is_tied, usual = np.array_equal(target, last), registry.hparams(HPARAMS_SET)
        try:
            return replace(
                usual,
                num_hidden_layers=config.encoder_layers,
                num_decoder_layers=config.decoder_layers
                * (config.decoder_layers != config.encoder_layers),
                hidden_size=config.d_model,
                filter_size=max(config.encoder_ffn_dim, config.decoder_ffn_dim),
                num_heads=config.encoder_attention_heads,
                activation=ACTIVATIONS[config.activation_function],
                multiply_embedding_mode="sqrt_depth" if config.scale_embedding else "none",
                shared_embedding_and_softmax_weights=is_shared and is_tied,
                shared_embedding=is_shared and not is_tied,
                pos=pos,
                norm_epsilon=float(f"{usual.norm_epsilon / factor**2:.3g}"),
                layer_prepostprocess_dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                relu_dropout=config.activation_dropout,
                max_length=config.max_position_embeddings,
            )
        except UserError as error:
            raise UserError(f"{place}: {error}") from None

    def _layers(self) -> dict[str, np.ndarray]:
        """Returns the weights of all layers."""
        weights = {}
        for side, name, names, letters in layer_weights(self.hparams):
            sizes = {"D": self.config.d_model, "F": getattr(self.config, f"{side}_ffn_dim")}
            parts = [self._take([part], *(sizes[letter] for letter in letters)).T for part in names]
            # The narrower of two stacks gets inner channels of zeros, which stay zeros in training.
            missing = {"D": 0, "F": self.hparams.filter_size - sizes["F"]}
            padding = [(0, missing[letter]) for letter in reversed(letters)]
            weights[name] = np.pad(np.concatenate(parts, axis=-1), padding)
        return weights

    def _take(self, names: Sequence[str], *shape: int) -> np.ndarray:
        """Returns the first of some weights that exists. It must have this shape."""
        name = next((name for name in names if name in self._weights), names[:2][-1])
        self._unused.discard(name)
        if (weight := self._weights.get(name)) is None:
            raise UserError(
                f"{self._folder}: the weight {name} is missing; copy the whole folder again"
            )
        if weight.shape != shape:
            shapes = f"has the shape {list(weight.shape)}, but by {CONFIG} it must be {list(shape)}"
            raise UserError(f"{self._folder}: {name} {shapes}; copy the whole folder again")
        if not np.isfinite(weight).all():
            raise UserError(
                f"{self._folder}: {name} has values that are not finite; get the file again"
            )
        return weight

    def report(self) -> str:
        """Returns lines that say what is imported."""
        config, vocabulary, languages = self.config, self.vocabulary, self.problem.languages
        count = sum(value.size for value in self.weights.values())
        sizes = " to ".join(
            f"{size:,}" for size in (vocabulary.separate_source_size, vocabulary.size) if size
        )
        tags, usual = vocabulary.tags, vars(registry.hparams(HPARAMS_SET))
        changes = [
            f"{name}={value}" for name, value in vars(self.hparams).items() if value != usual[name]
        ]
        unused = ", ".join(f"{name}={value}" for name, value in config.unused.items())
        return "\n".join(
            [
                f"{self._folder}: {count:,} parameters, layers: {config.encoder_layers} and "
                f"{config.decoder_layers}, width {config.d_model}, {self.hparams.activation}",
                f"vocabulary: {sizes} pieces"
                + (f", {counted(len(tags), 'target language')}" if tags else ""),
                f"problem: {self.problem.name}"
                + (f", {' to '.join(languages)}" if all(languages) else ""),
                f"to train on: --hparams_set={HPARAMS_SET}"
                + (f" --hparams={','.join(changes)}" if changes else ""),
                *([f"not used: {shortened(unused)}"] if unused else []),
            ]
        )

    def write(self, output_dir: str) -> str:
        """Writes the model folder, and returns the path of its checkpoint. Raises UserError if the
        folder has files.
        """
        return write_imported(
            output_dir, (self.hparams, self.problem, self.vocabulary), self.weights, 0
        )


def _problem(folder: Path, config: MarianConfig, tags: list[str]) -> Problem:
    """Returns the problem t2t_text, with the languages that the tokenizer's file names, if it names
    any.
    """
    tokenizer = read_json(folder / TOKENIZER, is_optional=True)
    codes = [iso_code(str(tokenizer.get(name, ""))) for name in LANGUAGES]
    languages = ",".join(codes) if all(codes) else ""
    # A model with one language needs no tag.
    symbols = ",".join(tags) if len(tags) > 1 else ""
    settings = {"languages": languages, "symbols": symbols, "beams": config.num_beams}
    return registry.problem("t2t_text", settings)
