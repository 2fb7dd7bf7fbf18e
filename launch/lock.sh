#!/usr/bin/env bash
# Writes launch/requirements.txt anew, at the newest versions setup.cfg allows.
#
# One file serves every supported Python: where the newest JAX needs a newer
# Python, both versions are there, with markers. It pins the packages of
# all extras, so it is used as a constraint (`pip install -c`), which installs
# nothing by itself. Needs uv (`pip install uv`).

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v uv >/dev/null; then
  echo 'lock.sh: uv was not found on PATH; install it with: pip install uv' >&2
  exit 77
fi

# Without an index or a path in the header the file is the same from anywhere.
uv pip compile setup.cfg --all-extras --universal --python-version=3.11 \
  --upgrade --quiet --no-emit-index-url --no-emit-find-links --no-annotate \
  --custom-compile-command='launch/lock.sh' \
  --output-file=launch/requirements.txt
