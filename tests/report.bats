#!/usr/bin/env bats
# pipelines/report: one page with nothing outside it; what a browser makes of it.
load lib

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    need_program tabulate
    need_command gnuplot
}

report() { "$ROOT/pipelines/report" "$@"; }

# A result with streams and load, so that every plot has something.
served() {      # FILE BUILD TTFT
    jq --arg build "$2" --argjson ttft "$3" '.build = $build | .settings.goodput = {ttft_ms: 100}
        | def reply($i): {sent_ms: (100 * $i), scheduled_ms: (100 * $i), ttft_ms: ($ttft + $i), tpot_ms: 20, e2e_ms: ($ttft + $i + 40), prompt_tokens: 50, completion_tokens: 3,
            chunk_ms: [$ttft + $i, $ttft + $i + 10, $ttft + $i + 40]};
        .stream = [{concurrency: 1, requests: [range(15) | reply(.)]}, {concurrency: 4, requests: [range(15) | reply(. * 3)]}]
        | .load = [{rate: 2, requests: [range(8) | reply(.)]}, {rate: 4, requests: [range(8) | reply(. * 2)]}]
        | .questions[0] = (.questions[0] | del(.answer_sha256) | .answer = "<script>alert(1)</script> \($build)")' "$ROOT/data/published/e2b-text.json" >"$1"
}

@test "the published study as a page: every table, plots inside, nothing outside it, under 2 MB" {
    run -0 report -o out --title 'The <study>' "$ROOT/data/published" "$ROOT/data/published/single"
    [ "$output" = out/report.html ]
    [ "$(stat -c %s out/report.html)" -lt 2000000 ]
    grep -q '<title>The &lt;study&gt;</title>' out/report.html
    [ "$(grep -c '<svg ' out/report.html)" = 3 ]
    ! grep -oE '(src|href)="[^"#][^"]*"' out/report.html | grep -v 'href="data:,"' || false
    ! grep -qE '<script|@import|url\([^#]' out/report.html || false
    # each plot names itself, and stands above a table
    [ "$(grep -c '<svg role="img"' out/report.html)" = "$(grep -c '<title>' out/plots/*.svg | awk -F: '{n += $2} END {print n}')" ]
    grep -q '^!\[roofline\](plots/roofline.svg)$' out/report.md
    grep -q '| e2b | emb4 | .* 141.7 |' out/report.md
    only_holds out plots report.html report.md
    # the same again, byte for byte
    cp -r out first
    report -o out --title 'The <study>' "$ROOT/data/published" "$ROOT/data/published/single"
    diff -r first out
}

@test "streams and load have plots; hostile text stays text" {
    served text.json text 30
    served emb4.json emb4 20
    report -o out text.json emb4.json
    only_holds out/plots summary.svg roofline.svg bytes.svg distribution.svg load.svg
    ! grep -q '<script' out/report.html || false
    grep -q '&lt;script&gt;alert(1)&lt;/script&gt; emb4' out/report.html
    grep -q 'requests per second asked for' out/plots/load.svg
    grep -q 'time to first token, ms' out/plots/distribution.svg
}

@test "names run nothing, and what else lies in the directory stays" {
    jq --arg ran "$PWD/ran" '"`touch \($ran)`" as $name | .model = $name
        | .build = $name + "\"; !touch \($ran)\n" + $name + "\u0027; system(\"touch \($ran)\")"' "$ROOT/data/published/e2b-text.json" >hostile.json
    mkdir -p -- -out/plots
    echo mine >-out/plots/mine
    report -o -out hostile.json
    [ ! -e ran ]
    only_holds ./-out/plots bytes.svg roofline.svg summary.svg mine
}

@test "a title is taken as it is; OUT= means out" {
    need_command make
    # shellcheck disable=SC2016
    env Q4BIN="$BIN" "$ROOT/q4sweep" report OUT= TITLE='The "best" `touch ran` it'"'"'s' RESULTS="$ROOT/data/published/e2b-text.json"
    grep -qF "<title>The &quot;best&quot; \`touch ran\` it&#39;s</title>" out/report/report.html
    [ ! -e ran ]
    run -2 --separate-stderr env Q4BIN="$BIN" "$ROOT/q4sweep" sweep OUT=/dev/null BUILDS=text
    [[ $stderr = *"sweep: OUT=/dev/null: nothing can be made there: name another directory"* ]]
    run -2 --separate-stderr env Q4BIN="$BIN" "$ROOT/q4sweep" sweep OUT=/dev/null BUILDS=text MODEL="$ROOT/README.md"
    [[ $stderr = *"chain: /dev/null: nothing can be made there: OUT names another directory"* ]]
}

@test "RESULTS is names, never commands" {
    need_command make
    local one=$ROOT/data/published/e2b-text.json
    cp "$one" "it's \"one\" file.json"
    env Q4BIN="$BIN" "$ROOT/q4sweep" report OUT=spaced RESULTS="it's \"one\" file.json"
    [ -s spaced/report/report.html ]
    env Q4BIN="$BIN" "$ROOT/q4sweep" report OUT=two RESULTS="$one $ROOT/data/published/e2b-emb4.json"
    [ "$(grep -c '^| \(text\|emb4\) ' two/report/report.md)" -ge 2 ]
    run -2 --separate-stderr env Q4BIN="$BIN" "$ROOT/q4sweep" report OUT=no RESULTS="$one;touch ran"
    [[ $stderr = *"e2b-text.json;touch"* ]]
    [ ! -e ran ]
}

@test "mistakes leave nothing" {
    run -64 report -o out
    run -66 report -o out nowhere.json
    echo '{}' >bad.json
    run -65 report -o out bad.json
    run -66 --separate-stderr report -o out no/where.json
    [[ $stderr = *"report: no/where.json: no such file"* ]]
    run -74 --separate-stderr report -o /dev/null "$ROOT/data/published"
    [[ $stderr = *"report: /dev/null: nothing can be written there: name another directory with -o"* ]]
    [ ! -e out/report.html ]
    [ -z "$(find out -name '.part*' 2>/dev/null)" ]
}

# What the page says of itself, on stdout: a frame of the given width holds it, and its width is compared with that of what is in it.
browser_says() {        # PAGE WIDTH SCHEME
    cat >frame.html <<H
<!doctype html><html><body style="margin:0"><iframe id=f src="$1" style="width:$2px;height:4000px;border:0"></iframe><pre id=said></pre><script>
f.onload = () => { const d = f.contentDocument, e = d.documentElement;
  said.textContent = 'width ' + e.scrollWidth + ' of ' + e.clientWidth + ' svg ' + d.querySelectorAll('svg').length + ' tables ' + d.querySelectorAll('table').length +
    ' ids ' + (new Set([...d.querySelectorAll('[id]')].map(x => x.id)).size == d.querySelectorAll('[id]').length ? 'unique' : 'twice'); };
</script></body></html>
H
    timeout 120 chromium --headless --no-sandbox --disable-gpu --allow-file-access-from-files --enable-logging=stderr --v=0 --force-color-profile=srgb \
        --user-data-dir="$PWD/profile" --blink-settings=preferredColorScheme="$3" --window-size=1400,4000 --virtual-time-budget=5000 --dump-dom "file://$PWD/frame.html" 2>browser.log | grep -o 'width [0-9]* of [^<]*'
}

@test "in a browser: no console message, no overflow at 390 and 1280 pixels, light and dark" {
    need_command chromium
    served text.json text 30
    served emb4.json emb4 20
    report -o out text.json emb4.json
    local width scheme said
    for width in 390 1280; do
        for scheme in 0 1; do
            said=$(browser_says out/report.html "$width" "$scheme")
            echo "$said"
            [[ $said =~ ^width\ ([0-9]+)\ of\ ([0-9]+)\ svg\ 5\ tables\ [0-9]+\ ids\ unique$ ]]
            [ "${BASH_REMATCH[1]}" = "${BASH_REMATCH[2]}" ] && [ "${BASH_REMATCH[2]}" -gt $((width - 20)) ]     # a scroll bar's width less
            ! grep CONSOLE browser.log || false
        done
    done
}
