"""Writes the script with which bash and zsh complete the flags of all programs; see
--completion.
"""

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import fields

from absl import flags

from t2t_repro import registry
from t2t_repro.bin import PROGRAMS
from t2t_repro.paper.rows import PREFIX, ROWS

SCRIPT = r"""_t2t_repro() {
  local word="${COMP_LINE:0:$COMP_POINT}" names="" values="" flag="" start="" end folder choice
  word="${word##*[[:space:]]}"
  case "${1##*/}" in
NAMES
  esac
  case "$word" in
    -*=*) flag="${word%%=*}" start="${word%%=*}=" ;;
    -*) ;;
    *) [[ " $names " == *" $3= "* ]] && flag="$3" ;;
  esac
  end="${word#"$start"}"
  case "${1##*/} $flag" in
    *' ') values="$names" ;;
VALUES
  esac
  for choice in $values; do
    [[ "$choice" == *= ]] || choice+=" "
    [[ "$choice" == "$end"* ]] && COMPREPLY+=("$start$choice")
  done
  if [[ -z "$values" ]]; then
    start+="${end%"${end##*,}"}" end="${end##*,}"
    folder="${end/#\~\//$HOME/}"
    for choice in "$folder"*; do
      [[ -d "$choice" ]] && choice+=/
      [[ -e "$choice" ]] && COMPREPLY+=("$start$end${choice#"$folder"}")
    done
  fi
  [[ -n "$ZSH_VERSION" ]] && return
  [[ -z "$values" ]] && compopt -o filenames
  word="${word%"${word##*["$COMP_WORDBREAKS"]}"}"
  COMPREPLY=("${COMPREPLY[@]#"$word"}")
}
if [[ -n "$ZSH_VERSION" ]]; then
  autoload -Uz compinit bashcompinit
  whence compdef >/dev/null || compinit
  bashcompinit
fi
complete -o nospace -F _t2t_repro PROGRAMS"""
"""The shell function completes a word: it keeps `start`, e.g. "--train=a.en,", and completes `end`,
e.g. "a.d". It adds a space after a completed name, but not after a path, which a comma may follow.
Bash replaces only what follows "=".
"""


def script(common: flags.FlagValues) -> str:
    """Returns the script. `common` are the flags of all programs."""
    registered = registry.names()
    values = {f"*' --{flag}'": words for flag, words in registered.items()}
    values["*' --row'"] = [
        each.hparams_set.removeprefix(PREFIX) for row in ROWS for each in row.experiments
    ]
    settings = [
        field
        for name in registered["problem"]
        for field in fields(registry.problem_class(name).Settings)
    ]
    names = {}
    for program, path in PROGRAMS.items():
        program_flags = importlib.import_module(f"t2t_repro.bin.{path.stem}").FLAGS
        all_flags = [group[name] for group in (program_flags, common) for name in group]
        names[program] = [_words(flag.name, flag.boolean) for flag in all_flags]
        if "tmp_dir" in program_flags:
            names[program] += [
                _words(field.name, isinstance(field.default, bool)) for field in settings
            ]
        enums = [flag for flag in all_flags if isinstance(flag.parser, flags.EnumParser)]
        values |= {f"'{program} --{flag.name}'": flag.parser.enum_values for flag in enums}
    text = SCRIPT.replace("NAMES", _cases("names", names)).replace(
        "VALUES", _cases("values", values)
    )
    return text.replace("PROGRAMS", " ".join(names))


def _words(name: str, is_boolean: bool) -> str:
    return f"--{name} --no{name}" if is_boolean else f"--{name}="


def _cases(variable: str, words: Mapping[str, Iterable[str]]) -> str:
    """Returns lines of a shell's `case` that set a variable to the words for each pattern."""
    return "\n".join(
        f"    {pattern}) {variable}='{' '.join(sorted({*words[pattern]}))}' ;;" for pattern in words
    )
