"""Tests that scores equal those computed by hand and by sacreBLEU."""

import math
from importlib.metadata import version

import pytest
import sacrebleu

from t2t_repro.metrics import bleu
from t2t_repro.metrics.score import PAPER_BLEU, PAPER_BLEU_ASCII

REFERENCES = [
    "Der Hund lief über die Brücke.",
    "Die Haus-Tür war zu, sagte er.",
    "Heute regnet es nicht in Bonn!",
]
TRANSLATIONS = [
    "Der Hund lief über eine Brücke.",
    "Die Garten-Tür war zu, sagte sie.",
    "heute regnet es nicht in Bonn!",
]


def by_label(
    translations: list[str], references: list[str], language: str = "de"
) -> dict[str, bleu.Score]:
    return {score.label: score for score in bleu.scores(translations, references, language)}


def test_without_a_language_no_score_depends_on_one() -> None:
    scores = bleu.scores(TRANSLATIONS, REFERENCES)
    labels = [score.label for score in scores]
    assert labels == ["BLEU", "BLEU, lower-cased", "chrF", "chrF, lower-cased"]
    assert "give --target_language" in bleu.missing_bleu(scores, "")
    assert bleu.missing_bleu(bleu.scores(TRANSLATIONS, REFERENCES, "fr"), "fr") == ""


# Sentences without spaces between words. Each counts as one word for sacreBLEU's usual tokenizer.
CHINESE = ["一个人在骑车。", "两只狗"]
JAPANESE = ["二匹の犬が遊ぶ。", "はい"]
THAI = ["สุนัขสองตัวเล่น", "ดี"]


@pytest.mark.parametrize(
    ("texts", "language", "label", "words"),
    [
        (CHINESE, "zh", "BLEU", "Moses has no rules for language 'zh'"),
        (CHINESE, "zh-TW", "BLEU", "Moses has no rules for language 'zh-TW'"),
        (CHINESE, "", "chrF", "--target_language=zh"),
        (THAI, "", "chrF", "--target_language=zh"),
        (THAI, "th", "chrF", "no tokenizer for language 'th'"),
        (JAPANESE, "ja", "chrF", 'pip install "sacrebleu[ja]"'),
        (TRANSLATIONS, "tr", "BLEU", "Moses has no rules for language 'tr'"),
        (TRANSLATIONS, "Old German", "BLEU", "Moses has no rules for language 'Old German'"),
    ],
)
def test_a_perfect_output_has_100_points_in_any_language(
    texts: list[str], language: str, label: str, words: str
) -> None:
    scores = bleu.scores(texts, texts, language)
    assert scores[0].label == label and scores[0].score == pytest.approx(100)
    assert words in bleu.missing_bleu(scores, language)


def test_scores_equal_sacrebleus() -> None:
    scores = bleu.scores(TRANSLATIONS, REFERENCES, "de-AT")
    chrf = sacrebleu.CHRF(lowercase=True)
    expected = {
        "BLEU": sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES]),
        "BLEU, lower-cased": sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES], lowercase=True),
        "chrF": sacrebleu.corpus_chrf(TRANSLATIONS, [REFERENCES]),
        "chrF, lower-cased": chrf.corpus_score(TRANSLATIONS, [REFERENCES]),
        PAPER_BLEU: bleu.paper_bleu(TRANSLATIONS, REFERENCES, "de"),
        PAPER_BLEU_ASCII: bleu.paper_bleu(TRANSLATIONS, REFERENCES, "de", True),
    }
    assert [(score.label, score.score) for score in scores] == [
        (label, score.score) for label, score in expected.items()
    ]
    assert len({score.score for score in scores[:4]}) == 4


def test_signatures_state_metric_tokeniser_and_version() -> None:
    score = by_label(TRANSLATIONS, REFERENCES, "fr")
    end = f"version:{version('sacrebleu')}"
    lower_cased = score["BLEU, lower-cased"].signature
    assert lower_cased == f"nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|{end}"
    assert score["chrF"].signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{end}"
    tokens = f"sacremoses-{version('sacremoses')}-fr-escaped"
    french = score[PAPER_BLEU].signature
    assert french == f"nrefs:1|case:mixed|eff:no|tok:{tokens}|smooth:none|{end}"
    german = by_label(TRANSLATIONS, REFERENCES, "de")[PAPER_BLEU_ASCII].signature
    assert german.split("|")[3].endswith("-de-escaped+ascii-punctuation+compounds-split")


def test_german_lines_have_the_tokens_of_moses_and_compounds_are_split_as_by_perl() -> None:
    """Tokens are those of tokenizer.perl (1.1) -l de. Compounds: perl -ple 's{(\\S)-(\\S)}{$1
    ##AT##-##AT## $2}g'.
    """
    for line, tokens in (
        (
            'Sie zahlt 1.000,50 Euro, z. B. "bar" & gern.',
            "Sie zahlt 1.000,50 Euro , z. B. &quot; bar &quot; &amp; gern .",
        ),
        ("[a|b] <c>", "&#91; a &#124; b &#93; &lt; c &gt;"),
    ):
        assert bleu.moses_tokens([line], "de") == [tokens]
    for tokens, split in (
        ("ab-cd-ef", "ab ##AT##-##AT## cd ##AT##-##AT## ef"),
        ("x-y-z-w", "x ##AT##-##AT## y-z ##AT##-##AT## w"),
        ("vis-à-vis", "vis ##AT##-##AT## à ##AT##-##AT## vis"),
        ("- Nord- und Südsee -3", "- Nord- und Südsee -3"),
    ):
        assert bleu.split_compounds(tokens) == split


def test_only_german_compounds_are_split() -> None:
    translations = ["un rendez-vous de dix-huit minutes"]
    references = ["un rendez-vous de vingt-huit minutes"]
    # With split compounds, one of 9 tokens differs, so 8 of 9 words match, 6 of 8 pairs, and so on.
    # Without them, no sequence of four words matches.
    matches = 8 / 9 * 6 / 8 * 4 / 7 * 2 / 6
    for language, expected in (("de", 100 * matches**0.25), ("en", 0), ("fr", 0)):
        for replaces_punctuation in (False, True):
            score = bleu.paper_bleu(translations, references, language, replaces_punctuation)
            assert score.score == pytest.approx(expected)
            assert ("compounds-split" in score.signature) == (language == "de")


def test_only_as_released_counts_the_style_of_quotation_marks() -> None:
    references = ["Sie sagte: „Der Hund lief über die Brücke.“", "Das „Haus“ ist alt und groß."]
    translations = [line.replace("„", '"').replace("“", '"') for line in references]
    score = by_label(translations, references)
    assert score[PAPER_BLEU].score < 70
    assert score[PAPER_BLEU_ASCII].score == pytest.approx(100)
    assert by_label(references, translations)[PAPER_BLEU_ASCII].score == pytest.approx(100)


def test_the_papers_bleu_has_a_brevity_penalty_and_no_smoothing() -> None:
    score = by_label(["the cat sat on"], ["the cat sat on a mat"])
    assert score["BLEU"].score == pytest.approx(100 * math.exp(1 - 6 / 4))
    assert score[PAPER_BLEU].score == pytest.approx(100 * math.exp(1 - 6 / 4))
    assert by_label(["a b c x d e"], ["a b c y d e"])[PAPER_BLEU].score == pytest.approx(0)


def test_lines_without_a_partner_are_refused() -> None:
    for translations, references in ((["a", "b"], ["a"]), (["a"], ["a", "b"]), ([], [])):
        counts = f"translations: {len(translations)}, references: {len(references)}"
        with pytest.raises(ValueError, match=counts):
            bleu.scores(translations, references)
