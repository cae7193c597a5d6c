#!/bin/bash
# Do the includes of src/ keep to the order of the modules?  A module includes itself, what it knows, and what that knows in turn.  A program
# (src/NAME.c) may include any module, and never another program's file.  cuda/ may include engine and what that knows, and stands behind one header: engine
# alone includes it, and nothing else of it.  `make layers`; tests/layers.sh DIR checks another tree.
set -eu -o pipefail

root=${1:-$(realpath "$(dirname "$0")/..")}
declare -A knows=(
    [base]=""      [tensor]="base"  [gemma]="tensor"    [ct]="gemma"   [quant]="tensor"
    [engine]="ct quant"             [net]="base"        [aws]="net"    [serve]="engine"  [rehearse]="aws serve"
    [report]="base" [mcp]="base"
)

closure() {     # MODULE: itself and all it may include
    local m
    echo "$1"
    for m in ${knows[$1]}; do closure "$m"; done
}

declare -A allowed
for module in "${!knows[@]}"; do allowed[$module]=" $(closure "$module" | sort -u | tr '\n' ' ')"; done
every=" ${!knows[*]} "

bad=0
complain() { echo "layers: $1:$2: $3" >&2; bad=1; }

check() {       # FILE, relative to root
    local file=$1 module may line text target
    case $file in
        cuda/*) module=cuda may="${allowed[engine]}cuda " ;;
        src/*/*) module=${file#src/} module=${module%%/*}
                 [ -n "${knows[$module]+x}" ] || { complain "$file" 1 "$module is no module: expected one of$every"; return; }
                 may=${allowed[$module]} ;;
        *) module="a program" may=$every ;;
    esac
    while IFS=: read -r line text; do
        target=$(sed -E 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]([^>"]*)[>"].*/\1/' <<<"$text")
        if [[ $target = cuda/* ]]; then
            [[ $module = cuda || ( $module = engine && $target = cuda/cuda.h ) ]] ||
                complain "$file" "$line" "includes $target: cuda stands behind cuda/cuda.h, which engine alone includes"
        elif [ -e "$root/src/$target" ] && [[ $target = */* ]]; then
            [[ $may = *" ${target%%/*} "* ]] || complain "$file" "$line" "includes $target, but $module does not know ${target%%/*}"
        elif [[ $text = *\"* && $target != version.h && $target != gpus_json.h ]]; then        # those two are generated
            complain "$file" "$line" "includes \"$target\", which is no file of a module: spell it \"module/name.h\""
        fi
        if [[ $target = *.c ]]; then complain "$file" "$line" "includes a C file"; fi
    done < <(grep -nE '^[[:space:]]*#[[:space:]]*include' "$root/$file" || true)
}

while read -r file; do check "$file"; done < <(cd "$root" && find src cuda \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \) 2>/dev/null | sort)
exit "$bad"
