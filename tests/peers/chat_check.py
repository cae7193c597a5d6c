#!/usr/bin/env python3
"""Does `tokenize --render` write what the chat template in a model's directory writes?  Runs the template with jinja2, set up as Hugging Face
transformers does, on random conversations, and on those of a golden file where one is named.

What tokenize refuses is counted, not compared, unless it is a plain conversation; where the template raises, tokenize must refuse.

    python chat_check.py MODEL_DIR TOKENIZE [--golden FILE.jsonl] [--count 2000] [--seed 1] [--plain]
Needs: pip install jinja2
"""
import argparse
import json
import os
import random
import subprocess
import sys

import jinja2
import jinja2.sandbox

SPACE = ["", "", " ", "\n", " \t\n", "\u3000", "\x1f"]
WORDS = ["Hi", "Grüße", "世界", "a  b", "{{ x }}", "<|channel>thought\nhm<channel|>", "<|channel>", "<channel|>", "<turn|>", "<start_of_turn>", "\0"]


def template_of(directory):
    jinja = os.path.join(directory, "chat_template.jinja")
    if os.path.exists(jinja):
        with open(jinja, encoding="utf-8", newline="") as f:
            return f.read()
    with open(os.path.join(directory, "tokenizer_config.json"), encoding="utf-8") as f:
        return json.load(f)["chat_template"]


def raise_exception(message):
    raise jinja2.TemplateError(message)


def renderer(directory):
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.globals["raise_exception"] = raise_exception
    template = env.from_string(template_of(directory))

    def render(request):
        messages = [{k: v for k, v in m.items() if v is not None} for m in request["messages"]]
        options = {k: request[k] for k in ("enable_thinking", "preserve_thinking") if k in request}
        try:
            return template.render(messages=messages, tools=request.get("tools") or None, bos_token="<bos>",
                                   add_generation_prompt=request.get("add_generation_prompt", True), **options)
        except (jinja2.TemplateError, TypeError, AttributeError, IndexError):
            return None
    return render


def random_text(rng):
    return "".join(rng.choice(SPACE) + rng.choice(WORDS) for _ in range(rng.randrange(4))) + rng.choice(SPACE)


def random_content(rng):
    if rng.random() < 0.6:
        return random_text(rng)
    return [{"type": "text", "text": random_text(rng)} for _ in range(rng.randint(1, 3))]


def random_request(rng, number):
    messages = [{"role": rng.choice(["system", "system", "developer"]), "content": random_content(rng)}] if rng.random() < 0.4 else []
    alternate = rng.random() < 0.6
    for turn in range(rng.randint(1, 6)):
        role = ("user", "assistant")[turn % 2] if alternate else rng.choice(["user", "assistant", "assistant", "system"])
        messages.append({"role": role, "content": random_content(rng)})
    request = {"id": number, "messages": messages, "add_generation_prompt": rng.random() < 0.7}
    if rng.random() < 0.3:
        request["enable_thinking"] = rng.random() < 0.7
    return request


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("tokenize")
    parser.add_argument("--golden")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="of the golden file, only conversations without tools, reasoning fields and continuation")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    requests = [random_request(rng, i) for i in range(args.count)]
    if args.golden:
        with open(args.golden, encoding="utf-8") as f:
            golden = [json.loads(line) for line in f]
        if args.plain:
            golden = [g for g in golden if g["policy"] == "must" and "reasoning" not in g["id"]]
        requests += [g for g in golden if not g.get("continue_final_message")]

    done = subprocess.run([args.tokenize, "-q", "--model", args.model, "--render"], stdout=subprocess.PIPE,
                          input="".join(json.dumps(r) + "\n" for r in requests).encode())
    ours = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
    render = renderer(args.model)
    equal = refused = wrong = 0
    for request, our in zip(requests, ours, strict=True):
        their = render(request)
        if "error" in our and (their is None or request.get("policy", "may_refuse") != "must"):
            refused += 1
        elif our.get("rendered") == their:
            equal += 1
        else:
            wrong += 1
            if wrong <= 5:
                print(json.dumps(request), f"\n  tokenize: {our}\n  template: {their!r}")
    print(f"{equal} equal, {refused} refused, {wrong} wrong")
    sys.exit(0 if wrong == 0 and equal > args.count // 4 else 1)


if __name__ == "__main__":
    main()
