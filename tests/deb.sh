#!/bin/bash
# Does the package of `make deb` install on a bare Debian 12, and work there?  Makes a minimal root with debootstrap, installs the package with apt-get,
# which fetches what it depends on, then makes, checks and decodes a small build with the installed programs, runs a sweep, and purges.
# Needs root, debootstrap, and a mirror (MIRROR=URL; otherwise Debian's own); without them it says so and exits 77 or 69.
#
# usage: tests/deb.sh
set -eu -o pipefail

repository=$(realpath "$(dirname "$0")/..")
# shellcheck source=tests/debian-root.bash
. "$repository/tests/debian-root.bash"
debian_root

package=$repository/$(make -s --no-print-directory -C "$repository" deb | tail -n 1)
cp "$package" "$root/root/"
begin=$SECONDS
inside apt-get update -q >"$work/apt.log" 2>&1 || { tail "$work/apt.log" >&2; exit 69; }
inside sh -c 'cd /root && apt-get install -y -q --no-install-recommends ./q4sweep_*.deb' >"$work/apt.log" 2>&1 || { tail "$work/apt.log" >&2; exit 1; }
echo "$me: $(basename "$package") ($(stat -c %s "$package") bytes) installed in $((SECONDS - begin)) s"

inside bash -eu -o pipefail -c '
    cd /root
    st-synth --size e2b -o source
    q4sweep emb4 source build
    ct-check build --against source | tail -n 1
    echo "{\"id\": 1, \"prompt\": \"Once\", \"max_tokens\": 4}" | gpu-decode --model build | jq -e ".completion_tokens == 4" >/dev/null
    q4sweep sweep BUILDS=text MEASURE="--parts replies --repeats 1 --long 32" | grep -F "| text |"
    tabulate --table fit /usr/share/q4sweep/data/published
    for p in $(dpkg -L q4sweep | grep ^/usr/bin/); do "$p" --version >/dev/null; done
    dpkg -L q4sweep | grep -q /usr/share/man/man7/q4sweep.7.gz || [ -e /etc/dpkg/dpkg.cfg.d/excludes ]'
inside apt-get purge -y -q q4sweep >"$work/apt.log" 2>&1
left=$(find "$root/usr" -name '*q4sweep*')
[ -z "$left" ] || { echo "$me: left after the purge: $left" >&2; exit 1; }
echo "$me: installed, used and purged"
