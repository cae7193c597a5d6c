# shellcheck shell=bash disable=SC2154 # what tests/bench/run and lib.bash set
# A remote source over loopback, against curl of the same bytes from the same server.
if wanted remote; then
    if command -v curl >/dev/null; then
        model
        st-extract --text-only model >whole.safetensors
        coproc server { exec range-server "$work"; }
        read -r url <&"${server[0]}"
        whole=$(stat -c %s whole.safetensors)
        compare remote "st-extract of a remote file to /dev/null" "curl" 0.9 1 "$whole" "st-extract -q $url/whole.safetensors >/dev/null" "$whole" "curl -s -o /dev/null $url/whole.safetensors"
        eval "exec ${server[1]}>&-"        # the end of its input ends it
        wait "$server_PID" 2>/dev/null
        rm -f whole.safetensors
    else
        no_peer remote "st-extract of a remote file" "curl is not installed"
    fi
fi
