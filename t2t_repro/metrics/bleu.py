"""BLEU and chrF of translations against references, with signatures that state how each score was
computed.

Newer papers report sacreBLEU's BLEU (Post 2018) and chrF (Popović 2015), which take untokenised
text and do not depend on its language. The BLEU in the paper's Table 2 was computed by another
method, that of tensor2tensor's get_ende_bleu.sh: Moses tokenises the text, hyphenated words are
split, and multi-bleu.perl scores the tokens. The script is for German. For other languages,
hyphenated words are not split.
"""

import contextlib
import re
from collections.abc import Collection, Sequence
from importlib.metadata import version

import sacremoses
from sacrebleu import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from t2t_repro.metrics import languages
from t2t_repro.metrics.score import PAPER_BLEU, PAPER_BLEU_ASCII, Score

COMPOUND_LANGUAGE = "de"
"""The language for which get_ende_bleu.sh was written, and so the only one whose hyphenated words
are split.
"""
QUOTATION_MARKS = str.maketrans({**dict.fromkeys("„‟«»", '"'), **dict.fromkeys("‚‛‘‹›", "'")})  # noqa: RUF001
"""Quotation marks that Moses's replace-unicode-punctuation.perl leaves as they are, with their
replacements.
"""
DEFAULT_METRICS = ("bleu", "chrf")
"""The metrics that programs compute unless the user names others. (In TER, lower is better.)"""
_NORMALIZER = sacremoses.MosesPunctNormalizer()


def scores(
    translations: Sequence[str], references: Sequence[str], language: str = ""
) -> list[Score]:
    """Returns sacreBLEU's BLEU and chrF, each cased and lower-cased, and BLEU by the paper's
    method.

    If the words of the language are not separated by spaces and sacreBLEU has no tokenizer for it,
    only chrF is computed; `missing_words` says why.

    Translations and references are untokenised. `language` is any code of their language, for
    example "de" or "zh-CN"; "" if it is unknown. It selects the tokenizer, and the Moses rules of
    the paper's BLEU, which needs them.
    """
    scores = [
        score(label, metric, translations, [references])
        for label, metric in metrics(references, language).items()
    ]
    return scores + paper_scores(translations, references, language)


def metrics(
    references: Sequence[str], language: str = "", names: Collection[str] = DEFAULT_METRICS
) -> dict[str, Metric]:
    """Returns the metrics of sacreBLEU that suit the language, by label: BLEU and chrF, each cased
    and lower-cased, and TER.

    `names` are some of "bleu", "chrf" and "ter". If `language` is "", the script of the references
    decides.
    """
    metrics: dict[str, Metric] = {"chrF": CHRF(), "chrF, lower-cased": CHRF(lowercase=True)}
    with contextlib.suppress(RuntimeError):  # of a tokenizer that is not installed
        if tokenizer := languages.tokenizer(language, references):
            is_asian = tokenizer != "13a"  # then each character is a word of TER
            metrics = {
                "BLEU": BLEU(tokenize=tokenizer),
                # BLEU warns of text that looks tokenised. `force` suppresses a second warning.
                "BLEU, lower-cased": BLEU(tokenize=tokenizer, lowercase=True, force=True),
                **metrics,
                "TER": TER(normalized=is_asian, asian_support=is_asian),
            }
    return {
        label: metric
        for label, metric in metrics.items()
        if label.partition(",")[0].lower() in names
    }


def paper_scores(
    translations: Sequence[str], references: Sequence[str], language: str
) -> list[Score]:
    """Returns BLEU by the paper's method with punctuation as it is, and with Unicode punctuation
    replaced by ASCII.

    Returns no scores if Moses has no rules for the language, or the language has no spaces.
    """
    # A user's problem may call its language "german".
    language = languages.iso_code(language) or language
    codes = sacremoses.corpus.NonbreakingPrefixes().available_langs.values()
    if language not in codes or languages.tokenizer(language) != "13a":
        return []
    return [paper_bleu(translations, references, language, replaces) for replaces in (False, True)]


def paper_bleu(
    translations: Sequence[str],
    references: Sequence[str],
    language: str,
    replaces_punctuation: bool = False,
) -> Score:
    """Returns BLEU by the paper's method: cased and unsmoothed, over Moses tokens. German compounds
    are split.

    Args:
        translations, references: untokenised lines.
        language: code of a language for which Moses has rules.
        replaces_punctuation: true to replace Unicode punctuation in translations and references
            first; false to keep it, as the first version of get_ende_bleu.sh does. Later versions
            of the script replace it only in the translations, because their reference,
            newstest2013, has only ASCII quotation marks. newstest2014 has typographic ones, which
            tensor2tensor's authors replaced in the reference by hand (tensor2tensor issue 317).
    """
    # Without its own tokenisation and smoothing, sacreBLEU computes the same score as
    # multi-bleu.perl.
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    label = PAPER_BLEU_ASCII if replaces_punctuation else PAPER_BLEU
    splits_compounds = language == COMPOUND_LANGUAGE
    tokeniser = f"sacremoses-{version('sacremoses')}-{language}-escaped"
    if replaces_punctuation:
        tokeniser += "+ascii-punctuation"
    if splits_compounds:
        tokeniser += "+compounds-split"

    def tokens(lines: Sequence[str]) -> Sequence[str]:
        if replaces_punctuation:
            lines = list(map(ascii_punctuation, lines))
        lines = moses_tokens(lines, language)
        return list(map(split_compounds, lines)) if splits_compounds else lines

    return score(label, metric, tokens(translations), [tokens(references)], tokeniser)


def moses_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Returns each line's tokens, separated by spaces, as Moses's tokenizer.perl -l <language>
    writes them.

    Characters that Moses reserves are escaped: '"' becomes "&quot;". A hyphenated word stays one
    token.

    For a language without rules, sacremoses silently uses those of English.
    """
    tokenizer = sacremoses.MosesTokenizer(lang=language)
    return [tokenizer.tokenize(line, return_str=True) for line in lines]


def ascii_punctuation(line: str) -> str:
    """Returns the line with ASCII punctuation, as by Moses's replace-unicode-punctuation.perl.

    Also replaces the quotation marks that this script leaves as they are, such as the lower German
    ones. So a line has the same result with typographic and with ASCII quotation marks.
    """
    replaced: str = _NORMALIZER.replace_unicode_punct(line)
    return replaced.translate(QUOTATION_MARKS)


def split_compounds(tokens: str) -> str:
    """Returns the tokens with hyphenated words split: "rich-text" becomes "rich ##AT##-##AT##
    text".

    As in get_ende_bleu.sh, a match consumes the characters beside the hyphen, so only the first
    hyphen of "a-b-c" is split.
    """
    # The Perl script matches bytes, not characters: "à" is two bytes, so both hyphens of
    # "vis-à-vis" are split.
    return re.sub(rb"(\S)-(\S)", rb"\1 ##AT##-##AT## \2", tokens.encode()).decode()


def missing_bleu(scores: Sequence[Score], language: str) -> str:
    """Returns a message for the user if `scores` returned no BLEU, or no BLEU by the paper's
    method; "" otherwise.

    `language` is the code of the target language, or "" if it is unknown.
    """
    if scores[0].label == "chrF":
        return f"BLEU: not computed, because {missing_words(language)}"
    if scores[0].label != "BLEU" or any(score.label == PAPER_BLEU for score in scores):
        return ""
    reason = (
        f"Moses has no rules for language {language!r}"
        if language
        else "its tokens depend on the target language; give --target_language, e.g. "
        "--target_language=de"
    )
    return f"BLEU, the paper's way: not computed, because {reason}"


def missing_words(language: str) -> str:
    """Returns the reason why `metrics` computes only chrF for texts of a language."""
    if not language:
        return (
            "no spaces separate the words of this text; name its language, e.g. "
            "--target_language=zh"
        )
    if tokenizer := languages.tokenizer(language):
        return f'language {language!r} needs MeCab: pip install "sacrebleu[{tokenizer[:2]}]"'
    return f"sacreBLEU has no tokenizer for language {language!r}"


def score(
    label: str,
    metric: Metric,
    translations: Sequence[str],
    references: Sequence[Sequence[str]],
    tokeniser: str = "",
) -> Score:
    """Returns the score of the translations. If `tokeniser` is not "", the signature names it as
    the tokeniser.
    """
    for lines in references:
        # sacreBLEU would ignore surplus lines.
        if not translations or len(translations) != len(lines):
            raise ValueError(
                f"translations: {len(translations)}, references: {len(lines)}; the counts must be "
                "equal"
            )
    result = metric.corpus_score(translations, references)
    signature = metric.get_signature()
    if tokeniser:
        signature.update("tok", tokeniser)
    return Score(label, float(result.score), str(signature))
