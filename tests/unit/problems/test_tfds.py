"""Tests that pairs of TensorFlow Datasets are read from data sets that the tests prepare."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from t2t_repro import registry
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.dataset import load_data
from toys import GREEK, lines
from user_errors import user_error

tfds: Any = pytest.importorskip("tensorflow_datasets", reason="the extra datasets is not installed")
pytest.importorskip("importlib_resources", reason="the extra datasets is not installed")
PAIRS = [*zip(lines(60), lines(60, GREEK), strict=True)]
LANGUAGES = tfds.features.Translation(("el", "en"))
TEXT = tfds.features.Text()
LABEL = tfds.features.ClassLabel(num_classes=60)
FEATURES = {
    "keys": (LANGUAGES, ("en", "el"), "test"),
    "order": (LANGUAGES, None, "validation"),
    "none": (tfds.features.FeaturesDict({"el": TEXT, "en": TEXT, "label": LABEL}), None, "other"),
}
"""Features, supervised keys and the second split of each configuration."""


class ToyTranslations(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]
    """A data set with several configurations."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS: ClassVar = [tfds.core.BuilderConfig(name=name) for name in FEATURES]

    def _info(self) -> Any:
        features, keys, _ = FEATURES[self.builder_config.name]
        return tfds.core.DatasetInfo(builder=self, features=features, supervised_keys=keys)

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {
            "train": self._generate_examples(50),
            FEATURES[self.builder_config.name][2]: self._generate_examples(5),
        }

    def _generate_examples(self, count: int) -> Iterator[tuple[int, Any]]:
        for number, (english, greek) in enumerate(PAIRS[:count]):
            label = {"label": number} if self.builder_config.name == "none" else {}
            yield number, {"en": english, "el": f"{greek}\n.", **label}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tfds")


@pytest.mark.parametrize(
    ("name", "settings", "order"),
    [
        ("keys", {}, 1),
        ("order", {"tfds_train": "train[:50]"}, -1),
        ("none", {"languages": "en, el", "tfds_dev": "other"}, 1),
    ],
)
def test_data_has_the_pairs_of_the_data_set(
    tmp_path: Path, folder: Path, name: str, settings: dict[str, Any], order: int
) -> None:
    problem = registry.problem(
        "tfds", {"tfds_name": f"toy_translations/{name}", "vocab_size": 400, **settings}
    )
    generate_data(problem, tmp_path, str(folder))
    data = load_data(str(tmp_path), "tfds")
    for split, count in (("train", 50), ("dev", 5)):
        decoded = [
            tuple(data.vocabulary.decode(data.records[split][number])) for number in range(count)
        ]
        assert sorted(decoded) == sorted(
            (english, f"{greek} .")[::order] for english, greek in PAIRS[:count]
        )
    assert problem.languages == (("en", "el") if "languages" in settings else ("", ""))


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("", {}, "--tfds_name"),
        ("toy_translation/keys", {}, "toy_translations"),
        ("toy_translations/key", {}, "--tfds_name=toy_translations/key"),
        ("toy_translations/keys:9.0.0", {}, "only: 1.0.0"),
        ("toy_translations/keys", {"tfds_train": "trai"}, "--tfds_train=trai"),
        ("toy_translations/keys", {"tfds_train": "train[:0]"}, "--tfds_train=train[:0]"),
        ("toy_translations/none", {"languages": "en,el"}, "--tfds_dev"),
        ("toy_translations/none", {"tfds_dev": "other"}, "--languages"),
        ("toy_translations/none", {"languages": "label,en", "tfds_dev": "other"}, "label"),
        ("toy_translations/none", {"languages": "en,ell", "tfds_dev": "other"}, "'el'"),
        ("toy_translations/none", {"languages": "en", "tfds_dev": "other"}, "--languages=en"),
    ],
)
def test_wrong_settings_are_named(
    tmp_path: Path, folder: Path, name: str, settings: dict[str, Any], words: str
) -> None:
    problem = registry.problem("tfds", {"tfds_name": name, **settings})
    assert words in user_error(generate_data, problem, tmp_path / "data", str(folder))
    assert not (tmp_path / "data").exists()
