# shellcheck shell=bash
# A minimal Debian 12 in a directory of its own, made with debootstrap and removed at the end.  Sourced by scripts that prove what works on a bare one.
#
#   debian_root     makes it: $root; needs root, debootstrap and a mirror (MIRROR=URL; otherwise Debian's own); exits 77 or 69 without
#   inside COMMAND… runs by chroot, in a clean environment

me=$(basename "$0")
mirror=${MIRROR:-http://deb.debian.org/debian}
work='' root='' mounted=()

debian_clean_up() {
    local m
    for m in "${mounted[@]}"; do umount -l "$m"; done
    rm -rf --one-file-system "$work"
}

debian_root() {
    local begin=$SECONDS fs
    [ "$(id -u)" = 0 ] || { echo "$me: skipped: needs root: chroot and mounts" >&2; exit 77; }
    command -v debootstrap >/dev/null || { echo "$me: skipped: debootstrap is not installed: apt-get install debootstrap" >&2; exit 69; }
    work=$(mktemp -d "${TMPDIR:-/tmp}/debian-root.XXXXXX")
    root=$work/root
    trap debian_clean_up EXIT
    trap 'exit 130' INT TERM
    debootstrap --variant=minbase bookworm "$root" "$mirror" >"$work/debootstrap.log" 2>&1 || { tail "$work/debootstrap.log" >&2; exit 69; }
    echo "$me: a minimal root in $((SECONDS - begin)) s"
    for fs in proc dev; do
        mount --rbind "/$fs" "$root/$fs"
        mount --make-rslave "$root/$fs"
        mounted=("$root/$fs" "${mounted[@]}")
    done
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
}

inside() {
    chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} TERM=dumb "$@"
}
