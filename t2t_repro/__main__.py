"""Lists the programs of this package: python -m t2t_repro"""

import ast
import re
import sys

from t2t_repro.bin import PROGRAMS
from t2t_repro.console.terminal import definitions

if unexpected := [argument for argument in sys.argv[1:] if argument not in ("-h", "--help")]:
    print(
        f"t2t_repro: unexpected argument {unexpected[0]!r}; python -m t2t_repro lists the programs",
        file=sys.stderr,
    )
    sys.exit(2)
# Reading a docstring is faster than importing the program. It begins with what the program does.
docstrings = {
    name: str(ast.get_docstring(ast.parse(path.read_text("utf-8"))))
    for name, path in PROGRAMS.items()
}
print(definitions({name: re.split(r": t2t-|\.\s", text)[0] for name, text in docstrings.items()}))
print("\nFor the flags of a program, give it --help: t2t-trainer --help")
