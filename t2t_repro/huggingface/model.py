"""Finds the parts of a MarianMT model in a folder of transformers, and writes them as a model folder.

In shapes, V is the number of pieces, P the number of positions, D the model's width and F that of a feed-forward
network. PyTorch's kernels have the shape [out, in], ours [in, out].
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from t2t_repro import registry
from t2t_repro.checkpoints.imported import write_imported
from t2t_repro.data.vocabularies.text_rules import PAD_ID
from t2t_repro.errors import UserError, counted, shortened
from t2t_repro.hparam import HParams
from t2t_repro.huggingface.config import ACTIVATIONS, CONFIG, MarianConfig, read_config, read_json
from t2t_repro.huggingface.names import BIAS, DECODER, ENCODER, POSITIONS, SHARED, SOFTMAX, layer_weights
from t2t_repro.huggingface.vocabulary import read_vocabulary
from t2t_repro.huggingface.weights import read_weights
from t2t_repro.metrics.languages import iso_code
from t2t_repro.problem import Problem

HPARAMS_SET = "marian_base"
TOKENIZER = "tokenizer_config.json"
LANGUAGES = ("source_lang", "target_lang")


class MarianImport:
    """A MarianMT model: its weights, hparams and vocabulary in our form. `write` writes the model folder.

    Raises UserError if something is missing, damaged or cannot be imported, or two files contradict each other.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self.config = folder, read_config(folder)
        self.vocabulary, *ids = read_vocabulary(folder, self.config)
        self.hparams = self._hparams()
        self.problem = _problem(folder, self.config, sorted(self.vocabulary.tags))
        self._weights = read_weights(folder)
        from t2t_repro.models.model import model_without_values  # imported here, because it loads TensorFlow

        self.weights = self._tables(*ids)
        self._take_layers()
        for name in POSITIONS.values():
            self._check_positions(name)
        if self._weights:
            shown = shortened(", ".join(self._weights))
            raise UserError(f"{folder}: has weights that no model here has: {shown}; choose another model")
        model = model_without_values(self.hparams, self.vocabulary.size, self.vocabulary.separate_source_size)
        self.weights = {variable.path: self.weights[variable.path] for variable in model.trainable_variables}

    def _hparams(self) -> HParams:
        config, place = self.config, self._folder / CONFIG
        heads = {"encoder": config.encoder_attention_heads, "decoder": config.decoder_attention_heads}
        if len({*heads.values()}) > 1:
            shown = ", ".join(f"{side}_attention_heads={number}" for side, number in heads.items())
            raise UserError(f"{place}: {shown}; only equal numbers can be imported; choose another model")
        special = {(config.pad_token_id,), (config.decoder_start_token_id,)}
        if not {tuple(word) for word in config.bad_words_ids} <= special:
            raise UserError(f"{place}: bad_words_ids={config.bad_words_ids}: only padding can be forbidden; change it")
        is_shared = config.share_encoder_decoder_embeddings and not self.vocabulary.separate_source_size
        try:
            return replace(
                registry.hparams(HPARAMS_SET),
                num_hidden_layers=config.encoder_layers,
                num_decoder_layers=config.decoder_layers * (config.decoder_layers != config.encoder_layers),
                hidden_size=config.d_model,
                filter_size=max(config.encoder_ffn_dim, config.decoder_ffn_dim),
                num_heads=config.encoder_attention_heads,
                activation=ACTIVATIONS[config.activation_function],
                multiply_embedding_mode="sqrt_depth" if config.scale_embedding else "none",
                shared_embedding_and_softmax_weights=is_shared and config.tie_word_embeddings,
                shared_embedding=is_shared and not config.tie_word_embeddings,
                layer_prepostprocess_dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                relu_dropout=config.activation_dropout,
                max_length=config.max_position_embeddings,
            )
        except UserError as error:
            raise UserError(f"{place}: {error}") from None

    def _tables(self, source_ids: list[int], target_ids: list[int]) -> dict[str, np.ndarray]:
        """Returns the embeddings [V, D], the matrix before the softmax and its bias [V], with rows in our order."""
        config, hparams = self.config, self.hparams
        is_shared, is_tied = config.share_encoder_decoder_embeddings, config.tie_word_embeddings
        sources, targets, softmax = [ENCODER], [DECODER], [SOFTMAX]
        targets = [*targets, *softmax] if is_tied else targets
        sources = [SHARED, *sources, *targets] if is_shared else sources
        width, sizes = config.d_model, (config.vocab_size, config.decoder_vocab_size)
        source = self._take_one(sources, sizes[0], width)
        target = source if is_shared else self._take_one(targets, sizes[1], width)
        last = target if is_tied else self._take(SOFTMAX, sizes[1], width)
        if target[target_ids[PAD_ID]].any():
            raise UserError(f"{self._folder}: decoding starts from a vector that is not zero; choose another model")
        bias = self._take(BIAS, 1, sizes[1])[0] if BIAS in self._weights else np.zeros(sizes[1], np.float32)
        tables = {"embedding/table": source[source_ids], "target_embedding/table": target[target_ids]}
        tables |= {"softmax/table": last[target_ids], "softmax_bias": bias[target_ids]}
        return {f"{hparams.model}/{name}": value for name, value in tables.items()}

    def _take_layers(self) -> None:
        """Adds the weights of all layers to `weights`."""
        for side, name, names, letters in layer_weights(self.hparams):
            sizes = {"D": self.config.d_model, "F": getattr(self.config, f"{side}_ffn_dim")}
            parts = [self._take(part, *(sizes[letter] for letter in letters)).T for part in names]
            # The narrower of two stacks gets inner channels of zeros, which stay zeros in training.
            missing = {"D": 0, "F": self.hparams.filter_size - sizes["F"]}
            padding = [(0, missing[letter]) for letter in reversed(letters)]
            self.weights[name] = np.pad(np.concatenate(parts, axis=-1), padding)

    def _check_positions(self, name: str) -> None:
        """Raises UserError if a table of positions [P, D], which older files have, is not that of `Sinusoids`."""
        if name in self._weights:
            from t2t_repro.layers.position import Sinusoids

            table = self._take(name, self.config.max_position_embeddings, self.config.d_model)
            signals = Sinusoids(self.config.d_model, is_marian=True)(table[None])
            if not np.allclose(np.asarray(signals)[0], table, atol=1e-2):
                raise UserError(f"{self._folder}: {name}: these are not Marian's sinusoids; choose another model")

    def _take_one(self, names: list[str], *shape: int) -> np.ndarray:
        """Removes a weight that may have several names from `_weights`, and returns it."""
        first, *others = [name for name in names if name in self._weights] or names[:1]
        weight = self._take(first, *shape)
        for name in others:
            if not np.array_equal(self._take(name, *shape), weight):
                raise UserError(f"{self._folder}: {first} and {name} must be equal by {CONFIG}; get the files again")
        return weight

    def _take(self, name: str, *shape: int) -> np.ndarray:
        """Removes a weight of this shape from `_weights`, and returns it."""
        if (weight := self._weights.pop(name, None)) is None:
            raise UserError(f"{self._folder}: the weight {name} is missing; copy the whole folder again")
        if weight.shape != shape:
            shapes = f"has the shape {list(weight.shape)}, but by {CONFIG} it must be {list(shape)}"
            raise UserError(f"{self._folder}: {name} {shapes}; copy the whole folder again")
        if not np.isfinite(weight).all():
            raise UserError(f"{self._folder}: {name} has values that are not finite; get the file again")
        return weight

    def report(self) -> str:
        """Returns lines that say what is imported."""
        config, vocabulary, languages = self.config, self.vocabulary, self.problem.languages
        count = sum(value.size for value in self.weights.values())
        sizes = " to ".join(f"{size:,}" for size in (vocabulary.separate_source_size, vocabulary.size) if size)
        tags, usual = self.problem.symbols, vars(registry.hparams(HPARAMS_SET))
        changes = [f"{name}={value}" for name, value in vars(self.hparams).items() if value != usual[name]]
        return "\n".join(
            [
                f"{self._folder}: {count:,} parameters, layers: {config.encoder_layers} and {config.decoder_layers}, "
                f"width {config.d_model}, {self.hparams.activation}",
                f"vocabulary: {sizes} pieces" + (f", {counted(len(tags), 'target language')}" if tags else ""),
                f"problem: {self.problem.name}" + (f", {' to '.join(languages)}" if all(languages) else ""),
                f"to train on: --hparams_set={HPARAMS_SET}" + (f" --hparams={','.join(changes)}" if changes else ""),
            ]
        )

    def write(self, output_dir: str) -> str:
        """Writes the model folder, and returns the path of its checkpoint. Raises UserError if the folder has files."""
        return write_imported(output_dir, (self.hparams, self.problem, self.vocabulary), self.weights, 0)


def _problem(folder: Path, config: MarianConfig, tags: list[str]) -> Problem:
    """Returns the problem t2t_text, with the languages that the tokenizer's file names, if it names any."""
    tokenizer = read_json(folder / TOKENIZER) if (folder / TOKENIZER).exists() else {}
    codes = [iso_code(str(tokenizer.get(name, ""))) for name in LANGUAGES]
    languages = ",".join(codes) if all(codes) else ""
    settings = {"languages": languages, "symbols": ",".join(tags), "beams": config.num_beams}
    return registry.problem("t2t_text", settings)
