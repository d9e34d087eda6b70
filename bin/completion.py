"""Writes the script with which bash and zsh complete the flags of all programs; see
--completion.
"""

import importlib
import itertools
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
    experiments = itertools.chain.from_iterable(row.experiments for row in ROWS)
    values["*' --row'"] = [each.hparams_set.removeprefix(PREFIX) for each in experiments]
    settings = []
    for name in registered["problem"]:
        for field in fields(registry.problem_class(name).Settings):
            settings.append(_words(field.name, isinstance(field.default, bool)))
    names = {}
    for program, path in PROGRAMS.items():
        program_flags = importlib.import_module(f"t2t_repro.bin.{path.stem}").FLAGS
        names[program] = list(settings) if "tmp_dir" in program_flags else []
        for group in (program_flags, common):
            for flag in map(group.__getitem__, group):
                names[program].append(_words(flag.name, flag.boolean))
                if isinstance(flag.parser, flags.EnumParser):
                    values[f"'{program} --{flag.name}'"] = flag.parser.enum_values
    text = SCRIPT.replace("NAMES", _cases("names", names))
    text = text.replace("VALUES", _cases("values", values))
    return text.replace("PROGRAMS", " ".join(names))


def _words(name: str, is_boolean: bool) -> str:
    return f"--{name} --no{name}" if is_boolean else f"--{name}="


def _cases(variable: str, words: Mapping[str, Iterable[str]]) -> str:
    """Returns lines of a shell's `case` that set a variable to the words for each pattern."""
    lines = []
    for pattern in words:
        choices = " ".join(sorted({*words[pattern]}))
        lines.append(f"    {pattern}) {variable}='{choices}' ;;")
    return "\n".join(lines)
