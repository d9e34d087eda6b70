"""Text pairs of TensorFlow Datasets, which is in the extra "datasets": pip install
"t2t_repro[datasets]".
"""

import contextlib
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from t2t_repro import registry
from t2t_repro.console.quiet import quiet_tensorflow
from t2t_repro.corpora.parallel import Pair
from t2t_repro.data.vocabularies.text_rules import one_line
from t2t_repro.errors import UserError, require_extra, shortened, unknown
from t2t_repro.problem import Problem, setting


@registry.register_problem
class Tfds(Problem):
    """Text pairs of TensorFlow Datasets: --problem=tfds --tfds_name=ted_hrlr_translate/ru_to_en."""

    @dataclass(frozen=True)
    class Settings(Problem.Settings):
        tfds_name: str = setting(
            "", "data set in TensorFlow Datasets: NAME, NAME/CONFIG or NAME/CONFIG:VERSION"
        )
        languages: str = setting(
            "", "features of sources and targets, e.g. en,de; by default, the data set names them"
        )
        tfds_train: str = setting("train", 'split to train on, e.g. "train[1000:]"')
        tfds_dev: str = setting(
            "", 'split to compute the dev loss on, e.g. "train[:1000]"; else validation or test'
        )

    is_self_contained = False

    @property
    def languages(self) -> tuple[str, str]:
        """The codes of the languages that the setting names; "" for a feature whose name is no
        code.
        """
        # Imported late, because langcodes is slow to import.
        from t2t_repro.metrics.languages import iso_code

        source, target, *_ = [*map(iso_code, self.settings.languages.split(",")), ""]
        return source, target

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        """Yields the pairs of a split in the order of the data set's files. A newline becomes a
        space.
        """
        tfds, builder = _prepared(self.settings.tfds_name, tmp_dir)
        name = self._split(split, builder.info.splits)
        keys = self._keys(builder.info)
        config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
        dataset = builder.as_dataset(split=name, read_config=config, shuffle_files=False)
        for example in tfds.as_numpy(dataset):
            source, target = (one_line(example[key].decode("utf-8", "replace")) for key in keys)
            yield {"inputs": source, "targets": target}

    def _split(self, split: str, splits: Any) -> str:
        name: str = getattr(self.settings, f"tfds_{split}")
        name = name or next(filter(splits.get, ("validation", "test")), "")
        with contextlib.suppress(KeyError, ValueError):
            if splits[name].num_examples:
                return name
        raise UserError(
            f"--tfds_{split}={name}: name one of the splits {', '.join(splits)}, or a part: "
            '"train[:1000]"'
        )

    def _keys(self, info: Any) -> list[str]:
        keys = self.settings.languages.replace(",", " ").split()
        if not keys:
            keys = list(map(str, info.supervised_keys or getattr(info.features, "languages", ())))
        for key in keys:
            if key not in info.features:
                raise unknown(f"feature of {info.name}", key, info.features)
            feature = info.features[key]
            if feature.shape or feature.tf_dtype != "string":
                raise UserError(
                    f"--languages: {key} of {info.name} is not text; name another feature"
                )
        if len(keys) != 2:
            raise UserError(
                f"--languages={','.join(keys)}: name two of the features {', '.join(info.features)}"
            )
        return keys


@functools.cache
def _prepared(name: str, tmp_dir: str) -> tuple[Any, Any]:
    """Returns the module and the builder of a data set, which is downloaded if `tmp_dir` lacks
    it.
    """
    require_extra("datasets", "tensorflow_datasets", "importlib_resources")
    if not name:
        raise UserError(
            "--tfds_name: name the data set, e.g. --tfds_name=ted_hrlr_translate/ru_to_en"
        )
    with quiet_tensorflow():
        import tensorflow  # noqa: F401
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import downloader

    # With the default of 10, a run without a network ends after several minutes.
    downloader.MAX_RETRIES = 0
    tfds.disable_progress_bar()  # it fills log files
    try:
        with contextlib.redirect_stdout(sys.stderr):
            builder = tfds.builder(name, data_dir=tmp_dir)
            builder.download_and_prepare()
    except tfds.core.DatasetNotFoundError:
        names = tfds.list_builders(with_community_datasets=False)
        raise unknown("data set", name.partition("/")[0], names) from None
    except Exception as error:  # each builder raises other exceptions
        reason = shortened(" ".join(str(error).split()), 300)
        raise UserError(
            f"--tfds_name={name}: {reason}; correct it, or copy the prepared data to {tmp_dir}"
        ) from None
    return tfds, builder
