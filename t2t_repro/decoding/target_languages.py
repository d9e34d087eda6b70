"""Puts the tag of the target language in front of texts, for models that have several target languages."""

from collections.abc import Sequence

from t2t_repro.data.vocabularies.tags import split_tag, tag
from t2t_repro.data.vocabularies.text_rules import is_empty
from t2t_repro.decoding.translation import UNKNOWN_FILE, InputFile
from t2t_repro.errors import UserError, refuse_unknown, unknown


def with_tags(
    texts: Sequence[str], tags: Sequence[str], target_language: str = "", input_file: InputFile = UNKNOWN_FILE
) -> list[str]:
    """Returns the texts, in which each text without a tag now begins with the tag of the target language.

    Empty texts stay as they are. If the model needs no tags, `tags` is empty, and all texts stay as they are.

    Raises UserError, which names the line in `input_file`, if a text has another tag, or none and no `target_language`
    is given; and if the model does not have this language.
    """
    if not tags:
        if target_language:
            raise UserError(f"--target_language={target_language}: the model has only one target language; omit it")
        return list(texts)
    languages = [name[2:-2] for name in tags]
    if target_language:
        refuse_unknown("--target_language", target_language, languages)
    tagged = []
    for text, line_number in zip(texts, input_file.line_numbers, strict=False):
        own_tag, _ = split_tag(text)
        place = f"{input_file.name}:{line_number + 1}"
        if own_tag and own_tag not in tags:
            raise UserError(f"{place}: {unknown('tag', own_tag, tags)}")
        needs_tag = not own_tag and not is_empty(text)
        if needs_tag and not target_language:
            raise UserError(
                f"{place}: no target language; begin the line with its tag, e.g. {tags[0]}, or give t2t-decoder "
                f"--target_language; the languages are {', '.join(languages)}"
            )
        tagged.append(f"{tag(target_language)} {text}" if needs_tag else text)
    return tagged
