"""Tests --completion: in bash and zsh, a user types the beginnings of words, and the shell
completes them.
"""

import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

from programs import error, output
from t2t_repro.bin import PROGRAMS
from terminals import Terminal

FILES = ("corpus.de", "corpus.en", "data/wmt/shard", "with space", "home/data_x/shard")
TYPED = {
    "trainer --prob\tnum\t--dry_r\t--hparams_s\ttransformer_multi\t": (
        "--problem=numbers_ende --dry_run --hparams_set=transformer_multi30k"
    ),
    "trainer --problem num\t--model\tbyt\t": "--problem numbers_ende --model=bytenet",
    "trainer --model byt\t--nodry\t": "--model bytenet --nodry_run",
    "trainer --precision=mixed_b\t --data_dir=da\twm\t": (
        "--precision=mixed_bfloat16 --data_dir=data/wmt/"
    ),
    "datagen --train=corpus.e\t,corpus.d\t --vocab_s\t5": (
        "--train=corpus.en,corpus.de --vocab_size=5"
    ),
    "datagen --tmp_dir da\twm\t --dev=wi\t": "--tmp_dir data/wmt/ --dev=with space",
    "datagen --data_dir=~/da\t --lang\ten": "--data_dir=~/data_x/ --languages=en",
    "exporter --form\tct\t": "--format=ctranslate2",
    "paper --form\tc\t": "--format=csv",
    "reproduce --row=ff4\t": "--row=ff4096",
    "bleu --vocab_s\t --tr\tcorpus.d\t": "--vocab_s --translation=corpus.de",
}
"""Programs and arguments as a user types them, and the arguments that the program gets."""


@pytest.mark.parametrize(
    "shell", [["bash", "--norc", "--noprofile"], ["zsh", "-f"]], ids=lambda shell: shell[0]
)
def test_a_shell_completes_what_a_user_types(shell: list[str], tmp_path: Path) -> None:
    if not shutil.which(shell[0]):
        pytest.skip(f"install it: apt-get install {shell[0]}")
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    programs = "".join(f'{name}() {{ echo "$@" >> home/typed; }}\n' for name in PROGRAMS)
    (tmp_path / "home" / "script").write_text(
        output("trainer", f"--completion={shell[0]}") + programs
    )
    ours, theirs = pty.openpty()
    variables = {"PATH": os.environ["PATH"], "HOME": f"{tmp_path}/home", "TERM": "dumb"}
    process = subprocess.Popen(
        [*shell, "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=variables,
        cwd=tmp_path,
        start_new_session=True,
    )
    terminal = Terminal(ours, theirs)
    terminal.type(b"source home/script; unset zle_bracketed_paste; PS1=READY\n")
    for line in TYPED:
        terminal.read(b"READY")
        terminal.type(f"t2t-{line}\n".encode())
    terminal.read(b"READY")
    terminal.type(b"exit\n")
    terminal.read()
    process.wait()
    os.close(ours)
    typed = (tmp_path / "home" / "typed").read_text().splitlines()
    assert dict(zip(TYPED, typed, strict=True)) == TYPED


def test_an_unknown_shell_is_refused() -> None:
    assert "--completion=fish" in error("bleu", "--completion=fish")
