#!/usr/bin/env bash
# tools/test_wheel.sh PYTHON [CONSTRAINTS]
#
# Builds the wheel, installs it in a new virtual environment of PYTHON, and runs the demo and tests/unit in a folder
# without the source, so that they use the installed package. CONSTRAINTS is a file with the
# versions of all packages, by default requirements/lock.txt.
# With the lowest versions that setup.py allows:
#   uv pip compile setup.py --extra test --python-version 3.11 --resolution lowest-direct --output-file lowest.txt
#   tools/test_wheel.sh python3.11 lowest.txt
set -euo pipefail
python=$(command -v "${1:?usage: tools/test_wheel.sh PYTHON [CONSTRAINTS]}") || { echo "$1 is not a program" >&2; exit 2; }
python=$(realpath --no-symlinks "$python")
root=$(realpath "$(dirname "$0")/..")
constraints=$(realpath "${2:-$root/requirements/lock.txt}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

stage() { # stage NAME COMMAND...: runs COMMAND, then prints its time
  local name=$1 start=$SECONDS
  shift
  "$@"
  echo "== $("$python" --version), $name: $((SECONDS - start)) s"
}

mkdir "$work/source" "$work/tested"
cd "$root"
cp -r setup.py pyproject.toml README.md LICENSE t2t_repro problems hparams bin "$work/source"
git ls-files --cached --others --exclude-standard -- ':!t2t_repro' ':!problems' ':!hparams' ':!bin' |
  xargs -d '\n' cp --parents --target-directory "$work/tested"
cd "$work/tested"
bin=$work/environment/bin
stage "virtual environment" "$python" -m venv "$work/environment"
pip=("$bin/pip" --disable-pip-version-check -qq)
stage wheel "${pip[@]}" wheel --no-deps --wheel-dir "$work" "$work/source"
stage installation "${pip[@]}" install --constraint "$constraints" "$(echo "$work"/*.whl)[test]"
# -o: make does not install the package again.
stage demo make -o .venv/installed demo BIN="$bin"
stage tests/unit "$bin/pytest" tests/unit -n 2 --dist loadfile
