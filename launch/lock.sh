#!/usr/bin/env bash
# Rewrites launch/requirements.txt with the newest versions that satisfy
# setup.cfg.
#
# One file serves every supported Python; a package whose newest version needs a
# newer Python is pinned twice, with markers. The file pins the packages of all
# extras, so it is a constraint (`pip install -c`), which installs nothing by
# itself. Needs uv (`pip install uv`).

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v uv >/dev/null; then
  echo 'lock.sh: uv was not found; install it with: pip install uv' >&2
  exit 77
fi

# gymnax, which the tests under Python 3.11 need, would hold back the JAX of every
# Python. The other flags keep indexes and paths of this machine out of the file.
uv pip compile setup.cfg --all-extras --universal --python-version=3.11 \
  --constraint=<(echo "jax>=0.12 ; python_full_version >= '3.12'") \
  --upgrade --quiet --no-emit-index-url --no-emit-find-links --no-annotate \
  --custom-compile-command='launch/lock.sh' \
  --output-file=launch/requirements.txt
