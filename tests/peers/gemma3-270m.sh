#!/bin/bash
# One command to the checkpoint of Gemma 3 270M on the Q4_0 grid: makes the Python environment, runs gemma3_270m.py.
# usage: tests/peers/gemma3-270m.sh [OUT] [--steps signed|positive]      OUT defaults to build/gemma-3-270m, where the suites look for it
set -eu -o pipefail

here=$(cd "$(dirname "$0")" && pwd)
case ${1:-} in
    "" | --*) out=$here/../../build/gemma-3-270m ;;
    *) out=$1; shift ;;
esac
python=$("$here/venv.sh" gemma3-270m)
exec "$python" "$here/gemma3_270m.py" "$out" "$@"
