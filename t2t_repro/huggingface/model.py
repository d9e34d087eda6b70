"""Finds the parts of a MarianMT model in a folder of transformers, and writes them as a model
folder.

In shapes, V is the number of pieces, P the number of positions, D the model's width and F the inner
width of a feed-forward network. PyTorch's kernels have the shape [out, in], ours [in, out].
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t2t_repro import registry
from t2t_repro.checkpoints.imported import ImportedModel
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


class Positions(NamedTuple):
    """What a model adds to its embeddings."""

    pos: str
    """The hparam `pos`."""
    factor: float
    """Factor by which our export has multiplied the tables, see `names.scaled`."""
    tables: dict[str, np.ndarray]
    """The tables [P, D] without the factor, by our names."""


class MarianImport(ImportedModel):
    """A MarianMT model: its weights, hparams and vocabulary in our form. `write` writes the model
    folder.

    Raises UserError if something is missing, damaged or cannot be imported, or two files contradict
    each other.
    """

    def __init__(self, folder: Path) -> None:
        # imported here, because it loads TensorFlow
        from t2t_repro.models.model import model_without_values

        self._folder = folder
        self.config = read_config(folder)
        self.vocabulary, source_ids, self.target_ids = read_vocabulary(folder, self.config)
        self.problem = _problem(folder, self.config, sorted(self.vocabulary.tags))
        self._weights = read_weights(folder)
        self._unused = self._weights.keys() - {SHARED, ENCODER, DECODER, SOFTMAX}
        pos, factor, positions = self._positions()
        self._weights = scaled(self._weights, 1 / factor, self.config.decoder_layers)
        tables = self._tables(source_ids, self.target_ids) | positions
        # transformers starts decoding from a token. Our decoder starts from zeros, so the token's
        # embedding becomes a part of position 0, the only one that the token ever has.
        start_row = self.target_ids.index(self.config.decoder_start_token_id)
        start = tables["target_embedding/table"][start_row]
        if start.any():
            pos = "emb"
            if self.config.scale_embedding:
                start = start * start.size**0.5
            table = tables["decoder/position/table"].copy()
            table[0] += start
            tables["decoder/position/table"] = table
        self.hparams = self._hparams(pos, factor, tables)
        weights = self._layers()
        for name, table in tables.items():
            weights[f"{self.hparams.model}/{name}"] = table
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

    def _positions(self) -> Positions:
        from t2t_repro.models.transformer import Sinusoids
        from t2t_repro.models.variants import MarianSinusoids

        width = self.config.d_model
        zeros = np.zeros((1, self.config.max_position_embeddings, width), np.float32)
        sinusoids = {
            "marian": np.asarray(MarianSinusoids(width)(zeros))[0],
            "timing": np.asarray(Sinusoids(width)(zeros))[0],
        }
        tables = {}
        for side, name in POSITIONS.items():
            # Without a table in the file, transformers computes Marian's sinusoids.
            table = sinusoids["marian"]
            if name in self._weights:
                table = self._take([name], *table.shape)
            tables[f"{side}/position/table"] = table
        # The last cosine of sinusoids at position 0 is 1, so a table has the factor there.
        factor = float(tables["encoder/position/table"][0, -1])
        if factor > 0:
            unscaled = {name: table / factor for name, table in tables.items()}
            for pos, signal in sinusoids.items():
                if np.allclose([*unscaled.values()], signal, atol=TOLERANCE):
                    return Positions(pos, factor, unscaled)
        return Positions("emb", 1.0, tables)

    def _tables(self, source_ids: list[int], target_ids: list[int]) -> dict[str, np.ndarray]:
        """Returns the embeddings [V, D], the matrix before the softmax and its bias [V], with rows
        in our order.
        """
        config = self.config
        source_shape = (config.vocab_size, config.d_model)
        target_shape = (config.decoder_vocab_size, config.d_model)
        # A file may lack copies of a matrix. If it has one, transformers uses it, even if it
        # differs.
        shared = [SHARED, ENCODER, DECODER] if config.share_encoder_decoder_embeddings else []
        tied = [*shared, DECODER, SOFTMAX] if config.tie_word_embeddings else []
        source = self._take([ENCODER, *shared], *source_shape)
        target = self._take([DECODER, *shared, *tied], *target_shape)
        last = self._take([SOFTMAX, *tied], *target_shape)
        bias = np.zeros(config.decoder_vocab_size, np.float32)
        if BIAS in self._weights:
            bias = self._take([BIAS], 1, config.decoder_vocab_size)[0]
        return {
            "embedding/table": source[source_ids],
            "target_embedding/table": target[target_ids],
            "softmax/table": last[target_ids],
            "softmax_bias": bias[target_ids],
        }

    def _hparams(self, pos: str, factor: float, tables: dict[str, np.ndarray]) -> HParams:
        config = self.config
        target = tables["target_embedding/table"]
        is_shared = not self.vocabulary.separate_source_size and np.array_equal(
            tables["embedding/table"], target
        )
        is_tied = np.array_equal(target, tables["softmax/table"])
        is_equal = config.decoder_layers == config.encoder_layers
        usual = registry.hparams(HPARAMS_SET)
        try:
            return replace(
                usual,
                num_hidden_layers=config.encoder_layers,
                num_decoder_layers=0 if is_equal else config.decoder_layers,
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
            raise UserError(f"{self._folder / CONFIG}: {error}") from None

    def _layers(self) -> dict[str, np.ndarray]:
        """Returns the weights of all layers."""
        weights = {}
        for side, name, names, letters in layer_weights(self.hparams):
            sizes = {"D": self.config.d_model, "F": getattr(self.config, f"{side}_ffn_dim")}
            shape = [sizes[letter] for letter in letters]
            kernel = np.concatenate([self._take([part], *shape).T for part in names], axis=-1)
            # The narrower of two stacks gets inner channels of zeros, which stay zeros in training.
            missing = {"D": 0, "F": self.hparams.filter_size - sizes["F"]}
            weights[name] = np.pad(kernel, [(0, missing[letter]) for letter in reversed(letters)])
        return weights

    def _take(self, names: Sequence[str], *shape: int) -> np.ndarray:
        """Returns the first of `names` that exists as a weight. It must have this shape."""
        existing = [name for name in names if name in self._weights]
        if not existing:
            raise UserError(
                f"{self._folder}: the weight {' or '.join(dict.fromkeys(names))} is missing; copy "
                "the whole folder again"
            )
        name = existing[0]
        self._unused.discard(name)
        weight = self._weights[name]
        if weight.shape != shape:
            raise UserError(
                f"{self._folder}: {name} has the shape {list(weight.shape)}, but by {CONFIG} it "
                f"must be {list(shape)}; copy the whole folder again"
            )
        if not np.isfinite(weight).all():
            raise UserError(
                f"{self._folder}: {name} has values that are not finite; get the file again"
            )
        return weight

    def report(self) -> str:
        config = self.config
        vocabulary = self.vocabulary
        sizes = f"{vocabulary.size:,} pieces"
        if vocabulary.separate_source_size:
            sizes = f"{vocabulary.separate_source_size:,} to {sizes}"
        if vocabulary.tags:
            sizes += f", {counted(len(vocabulary.tags), 'target language')}"
        lines = [
            f"{self._folder}: {self._size()}, layers: {config.encoder_layers} and "
            f"{config.decoder_layers}, width {config.d_model}, {self.hparams.activation}",
            f"vocabulary: {sizes}",
            self._problem_line(),
            self._training_line(HPARAMS_SET),
        ]
        if config.unused:
            unused = ", ".join(f"{name}={value}" for name, value in config.unused.items())
            lines.append(f"not used: {shortened(unused)}")
        return "\n".join(lines)


def _problem(folder: Path, config: MarianConfig, tags: list[str]) -> Problem:
    """Returns the problem t2t_text, with the languages in the tokenizer's file, if it has any."""
    tokenizer = read_json(folder / TOKENIZER, is_optional=True)
    codes = [iso_code(str(tokenizer.get(name, ""))) for name in LANGUAGES]
    languages = ",".join(codes) if all(codes) else ""
    # A model with one language needs no tag.
    symbols = ",".join(tags) if len(tags) > 1 else ""
    settings = {"languages": languages, "symbols": symbols, "beams": config.num_beams}
    return registry.problem("t2t_text", settings)
