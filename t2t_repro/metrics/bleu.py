"""BLEU and chrF of translations against references, with signatures that state how each score was computed.

Newer papers report sacreBLEU's BLEU (Post 2018) and chrF (Popović 2015), which take untokenised text and do not depend
on its language. The BLEU in the paper's Table 2 was computed by another method, that of tensor2tensor's
get_ende_bleu.sh: Moses tokenises the text, hyphenated words are split, and multi-bleu.perl scores the tokens. The
script is for German. For other languages, hyphenated words are not split.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version

import sacremoses
from sacrebleu import BLEU, CHRF

from t2t_repro.errors import UserError
from t2t_repro.metrics.score import PAPER_BLEU, PAPER_BLEU_ASCII, Score

COMPOUND_LANGUAGE = "de"
"""The language for which get_ende_bleu.sh was written, and so the only one whose hyphenated words are split."""
QUOTATION_MARKS = str.maketrans({**dict.fromkeys("„‟«»", '"'), **dict.fromkeys("‚‛‘‹›", "'")})  # noqa: RUF001
"""Quotation marks that Moses's replace-unicode-punctuation.perl leaves as they are, with their replacements."""
MECAB_LANGUAGES = ("ja", "ko")
"""Languages whose words sacreBLEU separates with MeCab, which is not installed."""
_NORMALIZER = sacremoses.MosesPunctNormalizer()


def scores(translations: Sequence[str], references: Sequence[str], language: str = "") -> list[Score]:
    """Returns sacreBLEU's BLEU and chrF, each cased and lower-cased, and BLEU by the paper's method.

    The paper's BLEU is computed twice: with punctuation as it is, and with Unicode punctuation replaced by ASCII.

    Args:
        translations: untokenised translations.
        references: untokenised references; reference n belongs to translation n.
        language: code of the translations' language, for example "de". If it is "", the result lacks the paper's BLEU.
            For "zh", sacreBLEU's BLEU has the tokens that it prescribes for Chinese.

    Raises UserError if Moses has no rules for the language.
    """
    if language:
        check_language(language)  # sacreBLEU needs more packages for some languages that Moses has no rules for
    sacrebleu_scores = [
        _score("BLEU", BLEU(trg_lang=language), translations, references),
        # The BLEU above already warns of text that looks tokenised. `force` suppresses a second warning.
        _score("BLEU, lower-cased", BLEU(trg_lang=language, lowercase=True, force=True), translations, references),
        _score("chrF", CHRF(), translations, references),
        _score("chrF, lower-cased", CHRF(lowercase=True), translations, references),
    ]
    if not language:
        return sacrebleu_scores
    variants = [paper_bleu(translations, references, language, replaces) for replaces in (False, True)]
    return sacrebleu_scores + variants


def paper_bleu(
    translations: Sequence[str], references: Sequence[str], language: str, replaces_punctuation: bool = False
) -> Score:
    """Returns BLEU by the paper's method: cased and unsmoothed, over Moses tokens. German compounds are split.

    Args:
        translations, references, language: as for `scores`, but `language` must not be "".
        replaces_punctuation: true to replace Unicode punctuation in translations and references first; false to keep
            it, as the first version of get_ende_bleu.sh does. Later versions of the script replace it only in the
            translations, because their reference, newstest2013, has only ASCII quotation marks. newstest2014 has
            typographic ones, which tensor2tensor's authors replaced in the reference by hand (tensor2tensor issue 317).
    """
    # Without its own tokenisation and smoothing, sacreBLEU computes the same score as multi-bleu.perl.
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    label, tokeniser = PAPER_BLEU, f"sacremoses-{version('sacremoses')}-{language}-escaped"
    if replaces_punctuation:
        label, tokeniser = PAPER_BLEU_ASCII, f"{tokeniser}+ascii-punctuation"
    if language == COMPOUND_LANGUAGE:
        tokeniser += "+compounds-split"

    def tokens(lines: Sequence[str]) -> list[str]:
        lines = moses_tokens([ascii_punctuation(line) for line in lines] if replaces_punctuation else lines, language)
        return [split_compounds(line) for line in lines] if language == COMPOUND_LANGUAGE else lines

    return _score(label, metric, tokens(translations), tokens(references), tokeniser)


def moses_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Returns each line's tokens, separated by spaces, as Moses's tokenizer.perl -l <language> writes them.

    Characters that Moses reserves are escaped: '"' becomes "&quot;". A hyphenated word stays one token.

    Raises UserError if sacremoses has no rules for the language; sacremoses itself would silently use those of English.
    """
    check_language(language)
    tokenizer = sacremoses.MosesTokenizer(lang=language)
    return [tokenizer.tokenize(line, return_str=True) for line in lines]


def check_language(language: str) -> None:
    """Raises UserError if sacremoses has no rules for a language."""
    languages = moses_languages()
    if language in MECAB_LANGUAGES:
        raise UserError(f"{_needs_mecab(language)}, or omit the language")
    if language not in languages:
        raise UserError(
            f"no Moses rules for language {language!r}, and only the paper's BLEU needs them; omit the language, or "
            f"give one of {', '.join(sorted(languages))}"
        )


def moses_languages() -> set[str]:
    """Returns the codes of the languages for which sacremoses has rules. A code has two or three letters."""
    return set(sacremoses.corpus.NonbreakingPrefixes().available_langs.values())


def ascii_punctuation(line: str) -> str:
    """Returns the line with ASCII punctuation, as by Moses's replace-unicode-punctuation.perl.

    Also replaces the quotation marks that this script leaves as they are, such as the lower German ones. So a line has
    the same result with typographic and with ASCII quotation marks.
    """
    replaced: str = _NORMALIZER.replace_unicode_punct(line)
    return replaced.translate(QUOTATION_MARKS)


def split_compounds(tokens: str) -> str:
    """Returns the tokens with hyphenated words split: "rich-text" becomes "rich ##AT##-##AT## text".

    As in get_ende_bleu.sh, a match consumes the characters beside the hyphen, so only the first hyphen of "a-b-c" is
    split.
    """
    # The Perl script matches bytes, not characters: "à" is two bytes, so both hyphens of "vis-à-vis" are split.
    return re.sub(rb"(\S)-(\S)", rb"\1 ##AT##-##AT## \2", tokens.encode()).decode()


def reason_without_paper_bleu(scores: Sequence[Score], language: str) -> str:
    """Returns a message for the user if the scores have BLEU but not the paper's BLEU; "" otherwise.

    `language` is the code of the target language, or "" if it is unknown.
    """
    labels = {score.label for score in scores}
    if "BLEU" not in labels or PAPER_BLEU in labels:
        return ""
    reason = "its tokens depend on the target language; give --target_language, e.g. --target_language=de"
    if language:
        reason = f"Moses has no rules for language {language!r}"
    if language in MECAB_LANGUAGES:
        return f"BLEU above is useless: {_needs_mecab(language)}"
    return f"BLEU, the paper's way: not computed, because {reason}"


def _needs_mecab(language: str) -> str:
    return (
        f"language {language!r} needs MeCab's tokens; score with sacreBLEU's own program (pip install "
        f'"sacrebleu[{language}]")'
    )


def _score(
    label: str, metric: BLEU | CHRF, translations: Sequence[str], references: Sequence[str], tokeniser: str = ""
) -> Score:
    """Returns the score of the translations. If `tokeniser` is not "", the signature names it as the tokeniser."""
    if not translations or len(translations) != len(references):  # sacreBLEU would ignore surplus lines
        raise ValueError(f"{len(translations)} translations, {len(references)} references; the counts must be equal")
    result = metric.corpus_score(translations, [references])
    signature = metric.get_signature()
    if tokeniser:
        signature.update("tok", tokeniser)
    return Score(label, float(result.score), str(signature))
