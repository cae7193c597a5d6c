#!/bin/bash
# Do the two commands of the README work for a newcomer on bare Debian 12?  Makes a minimal root with debootstrap, clones the committed state of
# this repository into it, runs `./bootstrap sweep` and `./bootstrap test` there by chroot, prints what each took.  Needs root, debootstrap,
# and a mirror (MIRROR=URL; otherwise Debian's own).  Exit status 0 when both commands succeeded.
#
# usage: tests/bare-debian.sh [COMMAND…]        other commands than the two, a word each:  'sweep' 'test T=unit'
set -eu -o pipefail

repository=$(realpath "$(dirname "$0")/..")
# shellcheck source=tests/debian-root.bash
. "$repository/tests/debian-root.bash"
[ $# -gt 0 ] || set -- sweep test

debian_root

# The minimal root has no git: the clone is made here.  As in any clone, only what is committed is there.
git clone -q --no-hardlinks "$repository" "$root/root/q4sweep"

for command; do
    begin=$SECONDS
    echo "bare-debian: ./bootstrap $command"
    read -ra words <<<"$command"
    inside sh -c 'cd /root/q4sweep && exec ./bootstrap "$@"' sh "${words[@]}"
    echo "bare-debian: ./bootstrap $command took $((SECONDS - begin)) s"
done
