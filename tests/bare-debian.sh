#!/bin/bash
# Do the two commands of the README work for a newcomer on bare Debian 12?  Makes a minimal root with debootstrap, clones the committed state of
# this repository into it, runs `./bootstrap sweep` and `./bootstrap test` there by chroot, prints what each took.  Needs root, debootstrap,
# and a mirror (MIRROR=URL; otherwise Debian's own).  Exit status 0 when both commands succeeded.
#
# usage: tests/bare-debian.sh [COMMAND…]        other commands than the two, a word each:  'sweep' 'test T=unit'
set -eu -o pipefail

repository=$(cd "$(dirname "$0")/.." && pwd)
mirror=${MIRROR:-http://deb.debian.org/debian}
[ "$(id -u)" = 0 ] || { echo "bare-debian.sh: needs root: chroot and mounts" >&2; exit 77; }
command -v debootstrap >/dev/null || { echo "bare-debian.sh: debootstrap is not installed: apt-get install debootstrap" >&2; exit 69; }
[ $# -gt 0 ] || set -- sweep test

work=$(mktemp -d "${TMPDIR:-/tmp}/bare-debian.XXXXXX")
root=$work/root
mounted=()
clean_up() {
    local m
    for m in "${mounted[@]}"; do umount -l "$m"; done
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

inside() { chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} TERM=dumb "$@"; }

begin=$SECONDS
debootstrap --variant=minbase bookworm "$root" "$mirror" >"$work/debootstrap.log" 2>&1 || { tail "$work/debootstrap.log" >&2; exit 69; }
echo "bare-debian: a minimal root in $((SECONDS - begin)) s"
for fs in proc dev; do
    mount --rbind "/$fs" "$root/$fs"
    mount --make-rslave "$root/$fs"
    mounted=("$root/$fs" "${mounted[@]}")
done
cp -L /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true

# The minimal root has no git: the clone is made here.  As in any clone, only what is committed is there.
git clone -q --no-hardlinks "$repository" "$root/root/q4sweep"

for command; do
    begin=$SECONDS
    echo "bare-debian: ./bootstrap $command"
    read -ra words <<<"$command"
    inside sh -c 'cd /root/q4sweep && exec ./bootstrap "$@"' sh "${words[@]}"
    echo "bare-debian: ./bootstrap $command took $((SECONDS - begin)) s"
done
