#!/usr/bin/env bats
# Documents: links lead somewhere, messages exist, what docs/extending.md says to do works, policies name the calls that are made.
load lib

documents() { cd "$ROOT" && find . -name '*.md' -not -path './build/*' -not -path './out/*' -not -path './.git/*' | sed 's,^\./,,'; }

# A heading's anchor, as GitHub makes it.
anchors() { sed -nE '/^```/,/^```/!s/^#+ +(.*)/\1/p' "$1" | tr 'A-Z' 'a-z' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'; }

@test "links between documents lead to files and headings that exist" {
    local doc link path anchor bad=0 n=0
    while read -r doc; do
        while read -r link; do
            n=$((n + 1))
            case $link in http://* | https://* | mailto:*) continue ;; esac
            path=${link%%#*} anchor=
            [[ $link != *'#'* ]] || anchor=${link#*#}
            path=$ROOT/$(dirname "$doc")/$path
            [ -n "${link%%#*}" ] || path=$ROOT/$doc
            [ -e "$path" ] || { echo "$doc: $link: no such file"; bad=1; continue; }
            [ -z "$anchor" ] || anchors "$path" | grep -qxF -e "$anchor" || { echo "$doc: $link: no such heading"; bad=1; }
        done < <(sed '/^```/,/^```/d' "$ROOT/$doc" | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//')
    done < <(documents)
    [ "$bad" -eq 0 ] && [ "$n" -ge 8 ]
}

@test "files that documents name in src, tests, data, docs and pipelines exist" {
    local doc word bad=0 new='^pipelines/int8ple4$\|^pipelines/targets/exact$'      # examples of docs/extending.md
    while read -r doc; do
        while read -r word; do
            compgen -G "$ROOT/$word" >/dev/null || { echo "$doc: $word does not exist"; bad=1; }
        done < <(sed '/^```/,/^```/d' "$ROOT/$doc" | grep -oE '`(src|tests|data|docs|pipelines|man)/[A-Za-z0-9_./*-]+`' | tr -d '`' | grep -v "$new" | grep -v 'NAME\|BUILD\|PROGRAM\|NN-' | sort -u)
    done < <(documents | grep -v '^tests/golden/')
    [ "$bad" -eq 0 ]
}

# The sources with adjacent string literals joined and quotes bare, on one line each file.
texts() { cat "$ROOT"/src/*.c "$ROOT"/src/*/*.c "$ROOT"/cuda/*.c "$ROOT"/pipelines/* "$ROOT"/pipelines/targets/* "$ROOT/sweep.mk" 2>/dev/null | tr '\n' '\001' | sed -E 's/"\x01 *"//g; s/\\"/"/g' | tr '\001' '\n'; }

@test "every message of docs/troubleshooting.md is in the sources" {
    local message piece bad=0 n=0
    texts >sources
    # A message as an extended regular expression in which … is any format or variable, within one literal.
    while IFS= read -r message; do
        n=$((n + 1))
        piece=$(sed -E 's/[][\.*^$()+?{}|\\]/\\&/g; s/…/.*/g' <<<"$message")
        grep -qE -- "$piece" sources || { echo "no such message: $message"; bad=1; }
    done < <(grep -oE '\*\*`[^`]+`\*\*' "$ROOT/docs/troubleshooting.md" | sed 's/^\*\*`//; s/`\*\*$//')
    [ "$bad" -eq 0 ] && [ "$n" -ge 30 ]
}

@test "docs/extending.md: its files written, its commands run" {
    need_program st-synth st-extract q4-regrid emb-untie ct-pack ct-check gpu-serve gpu-decode sm-invoke tabulate
    unset "${!AWS_@}" OUT TARGET BUILDS MODEL SERVER SERVE REPACK MEASURE MAKEFLAGS MAKELEVEL MFLAGS
    cp -r "$ROOT"/{pipelines,data,sweep.mk} .
    ln -s "$BIN" bin
    ln -s "$(model e2b)" model
    # `PATH`: before a block writes it; a block of sh is run.
    awk '/^```sh$/ { run = "block" ++n; next } /^```bash$/ { run = path; next } /^```$/ { run = ""; next }
        run { print >run; next } /^`[a-z0-9\/]+`:$/ { path = substr($0, 2, length($0) - 3) }' "$ROOT/docs/extending.md"
    [ -e pipelines/int8ple4 ] && [ -e pipelines/targets/exact ] && [ -e block5 ]
    local i
    for i in 1 2 3 4 5; do
        PATH=$BIN:$PATH timeout 120 bash -e -o pipefail "block$i" >log 2>&1 || { cat "block$i"; tail -n 20 log; return 1; }
    done
    if command -v shellcheck >/dev/null; then shellcheck -x -S warning pipelines/int8ple4 pipelines/targets/exact; fi
}

@test "the policies allow the calls that the sources make, and SageMaker's no others" {
    local allowed=$ROOT/data/caller-policy.json
    jq -e '.policy.Statement | all(.Effect == "Allow")' "$ROOT"/data/{caller-policy,endpoint-role,scheduler-role}.json >/dev/null
    jq -r '.policy.Statement[].Action | if type == "array" then .[] else . end | select(startswith("sagemaker:")) | sub("sagemaker:"; "")' "$allowed" | sort >have
    # AddTags comes with the tags of what is created; Invoke… are the runtime's paths.
    { grep -ohE '"(Create|Describe|List|Delete|Update)(Model|EndpointConfig|Endpoint|Tag)s?"' "$ROOT"/src/aws/*.c "$ROOT"/src/sm-*.c | tr -d '"'
        grep -ohE '"(Describe|Delete|List)%ss?"' "$ROOT"/src/aws/*.c | tr -d '"' | while read -r call; do
            for noun in Model EndpointConfig Endpoint; do echo "${call/\%s/$noun}"; done; done
        printf '%s\n' AddTags InvokeEndpoint InvokeEndpointWithResponseStream; } | sort -u >made
    diff made have
    for word in logs:FilterLogEvents ecr:DescribeImages servicequotas:ListServiceQuotas scheduler:CreateSchedule scheduler:DeleteSchedule s3:PutObject iam:PassRole; do
        grep -q "\"$word\"" "$allowed"
    done
}

@test "CI ends with the README's test command, word for word" {
    local command
    command=$(sed -n 's/^    \(.*[^ ]\) *# .*, then the tests$/\1/p' "$ROOT/README.md")
    [ "$command" = "./bootstrap test" ]
    [ "$(tail -n 1 "$ROOT/.ci/run")" = "$command" ]
}
