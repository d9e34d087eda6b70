"""BLEU and chrF of translations against references, with signatures that state how each score was computed.

Newer papers report sacreBLEU's BLEU (Post 2018) and chrF (Popović 2015), which take untokenised text. The BLEU in the
paper's Table 2 was computed by another method, that of tensor2tensor's get_ende_bleu.sh: Moses tokenises the text,
hyphenated words are split, and multi-bleu.perl scores the tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version

import sacremoses
from sacrebleu import BLEU, CHRF

from t2t_repro.errors import UserError
from t2t_repro.metrics.score import PAPER_BLEU, Score


def scores(translations: Sequence[str], references: Sequence[str], language: str = "de") -> list[Score]:
    """Returns sacreBLEU's BLEU and chrF, each cased and lower-cased, and BLEU by the paper's method.

    Args:
        translations: untokenised translations.
        references: untokenised references; reference n belongs to translation n.
        language: code of the translations' language, for example "de". The paper's method tokenises by its rules.

    Raises:
        UserError: if Moses has no rules for the language.
        ValueError: if there are no translations, or the numbers of translations and references differ.
    """
    return [
        _score("BLEU", BLEU(), translations, references),
        # BLEU() above already warns of text that looks tokenised. `force` suppresses a second warning.
        _score("BLEU, lower-cased", BLEU(lowercase=True, force=True), translations, references),
        _score("chrF", CHRF(), translations, references),
        _score("chrF, lower-cased", CHRF(lowercase=True), translations, references),
        paper_bleu(translations, references, language),
    ]


def paper_bleu(translations: Sequence[str], references: Sequence[str], language: str = "de") -> Score:
    """Returns BLEU by the paper's method: cased and unsmoothed, over Moses tokens in which hyphenated words are split.

    Quotation marks are not replaced. tensor2tensor's authors scored newstest2014 against a reference in which they had
    replaced typographic quotation marks by hand (their issue 317). Scores against that reference are not comparable
    with this score. Arguments and errors are those of `scores`.
    """
    # Without its own tokenisation and smoothing, sacreBLEU computes the same score as multi-bleu.perl.
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    tokenised = [
        [split_compounds(tokens) for tokens in moses_tokens(lines, language)] for lines in (translations, references)
    ]
    tokeniser = f"sacremoses-{version('sacremoses')}-{language}-escaped+compounds-split"
    return _score(PAPER_BLEU, metric, tokenised[0], tokenised[1], tokeniser)


def moses_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Returns each line's tokens, separated by spaces, as Moses's tokenizer.perl -l <language> writes them.

    Characters that Moses reserves are escaped: '"' becomes "&quot;". A hyphenated word stays one token.

    Raises UserError if sacremoses has no rules for the language; sacremoses itself would silently use those of English.
    """
    languages = moses_languages()
    if language not in languages:
        raise UserError(f"no Moses rules for language {language!r}; there are: {', '.join(sorted(languages))}")
    tokenizer = sacremoses.MosesTokenizer(lang=language)
    return [tokenizer.tokenize(line, return_str=True) for line in lines]


def moses_languages() -> set[str]:
    """Returns the codes of the languages for which sacremoses has rules. A code has two or three letters."""
    return set(sacremoses.corpus.NonbreakingPrefixes().available_langs.values())


def split_compounds(tokens: str) -> str:
    """Returns the tokens with hyphenated words split: "rich-text" becomes "rich ##AT##-##AT## text".

    As in get_ende_bleu.sh, a match consumes the characters beside the hyphen, so only the first hyphen of "a-b-c" is
    split.
    """
    # The Perl script matches bytes, not characters: "à" is two bytes, so both hyphens of "vis-à-vis" are split.
    return re.sub(rb"(\S)-(\S)", rb"\1 ##AT##-##AT## \2", tokens.encode()).decode()


def _score(
    label: str, metric: BLEU | CHRF, translations: Sequence[str], references: Sequence[str], tokeniser: str = ""
) -> Score:
    """Returns the metric's score. In the signature, a non-empty `tokeniser` replaces the metric's own tokeniser."""
    if not translations or len(translations) != len(references):  # sacreBLEU would ignore surplus lines
        raise ValueError(f"{len(translations)} translations, {len(references)} references; the counts must be equal")
    result = metric.corpus_score(translations, [references])
    signature = metric.get_signature()
    if tokeniser:
        signature.update("tok", tokeniser)
    return Score(label, float(result.score), str(signature))
