"""Tests that each source of a model for several target languages gets its tag, and each segment of
a long source.
"""

from typing import Any

import numpy as np
import pytest

from models import Copier
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.long_lines import cut_texts
from t2t_repro.decoding.translation import EMPTY, InputFile, with_tags
from t2t_repro.decoding.translator import Translator
from t2t_repro.hparam import DecodeHParams
from t2t_repro.visualization.attention import source_ids
from user_errors import user_error

TAGS = [">>de<<", ">>fr<<"]
LONG = "the cat sat on the dog. a dog sat on a cat. the dog"


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return sentencepiece.train(["the dog", "a cat", "the cat sat on the dog"], 292, TAGS)


@pytest.fixture(scope="module")
def copier(vocabulary: Vocabulary) -> Translator:
    """Returns a translator whose outputs equal its inputs, with their tags."""
    return Translator(Copier(vocabulary.size), vocabulary, DecodeHParams(), 12, tags=TAGS)


@pytest.mark.usefixtures("no_graphs")
def test_lines_with_and_without_tags_are_translated_together(copier: Translator) -> None:
    texts = ["the dog", ">>de<<  a cat", "", " >>fr<< \u200b", "\t>>fr<<the cat", " a dog "]
    translations = copier.translate(texts, target_language="fr")
    expected = [">>fr<< the dog", ">>de<< a cat", "", "", ">>fr<< the cat", ">>fr<< a dog"]
    assert [translation.text for translation in translations] == expected
    assert translations[3] == EMPTY
    assert copier.translate(expected) == translations


@pytest.mark.usefixtures("no_graphs")
@pytest.mark.parametrize("long_lines", ["split", "sentences"])
def test_each_segment_of_a_long_line_has_the_tag(
    copier: Translator, vocabulary: Vocabulary, long_lines: str
) -> None:
    # Too short for the first sentence and its tag.
    longest = len(vocabulary.encode([LONG.partition(" a dog")[0]])[0])
    whole = Translator(copier.model, vocabulary, DecodeHParams(max_input_size=longest - 1))
    [untagged] = whole.translate([LONG], ["the cat"], long_lines=long_lines)
    options: Any = {"long_lines": long_lines, "max_input_size": longest}
    [ours] = copier.translate([LONG], ["the cat"], target_language="fr", **options)
    ids = np.array(ours.source_ids)
    is_tag = ids == vocabulary.tags[">>fr<<"]
    starts = np.flatnonzero(is_tag)
    assert starts.tolist() == [0, *np.flatnonzero(ids[:-1] == 1) + 1]
    assert len(starts) == untagged.segments == 5
    assert ids[~is_tag].tolist() == [*untagged.source_ids]
    assert np.diff([*starts, len(ids)]).max() <= longest


@pytest.mark.usefixtures("no_graphs")
def test_the_tag_counts_as_a_token_and_is_never_cut_off(
    copier: Translator, vocabulary: Vocabulary
) -> None:
    [ids] = vocabulary.encode([LONG])
    tagged = [vocabulary.tags[">>de<<"], *ids]
    [truncated] = copier.translate([f">>de<< {LONG}"], long_lines="truncate", max_input_size=9)
    assert truncated.source_ids == (*tagged[:8], 1) and truncated.is_truncated
    for longest, segments in ((len(tagged), 1), (len(tagged) - 1, 3)):
        assert copier.translate([f">>de<< {LONG}"], max_input_size=longest)[0].segments == segments


def test_sources_of_attention_need_a_tag(copier: Translator, vocabulary: Vocabulary) -> None:
    assert source_ids(copier, ">>de<< a cat") == vocabulary.encode_sources([">>de<< a cat"])[0]
    assert ">>de<<" in user_error(source_ids, copier, "a cat") and "empty" in user_error(
        source_ids, copier, ">>de<<"
    )


@pytest.mark.parametrize(
    ("texts", "tags", "language", "words"),
    [
        (["", "a"], TAGS, "", ("x.en:21", ">>de<<", "--target_language", "de, fr")),
        ([">>dee<< a"], TAGS, "fr", ("x.en:11", "'>>dee<<'", "'>>de<<'")),
        ([">>dee<<"], TAGS, "fr", ("x.en:11", "'>>dee<<'", "'>>de<<'")),
        ([], TAGS, "fra", ("--target_language", "'fra'", "'fr'")),
        ([], TAGS, "it", ("--target_language", "'it'", "de, fr")),
        ([">>dee<<"], [], "de", ("--target_language=de", "omit it")),
    ],
)
def test_a_missing_or_unknown_language_is_an_error(
    texts: list[str], tags: list[str], language: str, words: Any
) -> None:
    message = user_error(with_tags, texts, tags, language, InputFile("x.en", [10, 20]))
    assert all(word in message for word in words) and "\n" not in message


def test_a_tag_inside_a_text_is_text(vocabulary: Vocabulary) -> None:
    [segments] = cut_texts(["the dog. >>de<< a cat"], vocabulary, 0, "sentences", InputFile())
    assert [segment.ids for segment in segments] == vocabulary.encode(["the dog.", ">>de<< a cat"])
