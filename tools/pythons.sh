#!/usr/bin/env bash
# Prints "VERSION PATH" of an interpreter for each Python version that setup.py allows, and names those not found.
set -euo pipefail
shopt -s nullglob
for version in 3.11 3.12 3.13; do
  for python in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
    # Runs it, because pyenv puts commands on PATH that fail.
    if "$python" -c "import ensurepip, sys; sys.exit('$version' != '%d.%d' % sys.version_info[:2])" 2> /dev/null; then
      echo "$version $(command -v "$python")"
      continue 2
    fi
  done
  echo "Python $version was not found; it is not tested" >&2
done
