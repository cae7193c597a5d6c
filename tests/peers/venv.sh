#!/bin/bash
# A Python environment with the packages of tests/peers/NAME.txt at build/peers/NAME, made once; prints the path of its python3.
# usage: tests/peers/venv.sh NAME
set -eu -o pipefail

here=$(cd "$(dirname "$0")" && pwd)
list=$here/${1:?usage: venv.sh NAME (a list in tests/peers/NAME.txt)}.txt
[ -r "$list" ] || { echo "venv.sh: $list: no such list" >&2; exit 66; }
venv=$here/../../build/peers/$1

# Rebuilt when the list changed: the environment keeps the list it was made from.
if ! cmp -s "$list" "$venv/made-from.txt"; then
    rm -rf "$venv"
    mkdir -p "$(dirname "$venv")"
    python3 -m venv "$venv" >&2 || { echo "venv.sh: python3 -m venv failed: apt-get install python3-venv" >&2; exit 69; }
    "$venv/bin/pip" --disable-pip-version-check install --quiet -r "$list" >&2 ||
        { echo "venv.sh: pip could not install what $list names" >&2; exit 69; }
    cp "$list" "$venv/made-from.txt"
fi
echo "$(cd "$venv" && pwd)/bin/python3"
