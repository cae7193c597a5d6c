#!/usr/bin/env python3
"""Does `tokenize` give what Hugging Face tokenizers gives?  Random strings of any Unicode, with U+0000, spaces, newlines and the model's own
pieces and added tokens inside, to ids; random ids, with runs of byte tokens, back to text.

    python tokenizer_check.py MODEL_DIR TOKENIZE [--count 10000] [--seed 1]
Needs: pip install tokenizers
"""
import argparse
import json
import os
import random
import subprocess
import sys

from tokenizers import Tokenizer

RANGES = [(0, 0x7F), (0x20, 0x7E), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF), (0x4E00, 0x9FFF), (0x1F300, 0x1F6FF)]
COMMON = " \n\t\r\u2581\u00a0\0ae<>|"


def random_text(rng, pieces, added):
    parts = []
    for _ in range(rng.choice([0, 1, 1, 2, 3, 5, 8, 13, 30])):
        kind = rng.randrange(6)
        if kind == 0:
            low, high = rng.choice(RANGES)
            parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8))).encode("utf-8", "ignore").decode())
        elif kind == 1:
            parts.append(rng.choice(COMMON) * rng.choice([1, 1, 2, 3, 7, 31, 40]))
        elif kind == 2:
            token = rng.choice(added)
            parts.append(rng.choice([token, token, token[:-1], token * 2, token.upper()]))
        else:
            parts.append(rng.choice(pieces).replace("\u2581", rng.choice([" ", " ", " ", "\u2581"])))
    return "".join(parts)


def random_ids(rng, size, byte_ids, known):
    ids = []
    for _ in range(rng.randint(0, 12)):
        if rng.random() < 0.3:
            text = rng.choice(["é", "日", "😀", "a\n", "\0"]).encode()
            if rng.random() < 0.3:
                text = text[:-1] + bytes([rng.randrange(256)])
            ids += [byte_ids[b] for b in text]
        else:
            ids.append(rng.choice(known))
    return ids


def run(command, lines, key):
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    done = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE)
    out = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
    if done.returncode != 0 or len(out) != len(lines):
        sys.exit(f"tokenizer_check: {' '.join(command)}: status {done.returncode}, {len(out)} lines for {len(lines)}: {[o for o in out if 'error' in o][:3]}")
    return [line[key] for line in out]


def report(what, inputs, ours, theirs):
    wrong = [(i, o, t) for i, o, t in zip(inputs, ours, theirs) if o != t]
    for given, our, their in wrong[:5]:
        print(f"{what} {given!r}\n  tokenize: {our}\n  peer:     {their}")
    print(f"{what}: {len(inputs) - len(wrong)} of {len(inputs)} equal")
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("tokenize")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)

    peer = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
    vocab = peer.get_vocab(with_added_tokens=True)
    pieces = sorted(vocab)
    added = [t.content for _, t in sorted(peer.get_added_tokens_decoder().items())]
    byte_ids = [vocab[f"<0x{b:02X}>"] for b in range(256)]
    known = sorted(vocab.values())

    texts = [random_text(rng, pieces, added) for _ in range(args.count)]
    ours = run([args.tokenize, "--model", args.model], [{"text": t} for t in texts], "token_ids")
    theirs = [e.ids for e in peer.encode_batch(texts, add_special_tokens=False)]
    same = report("encode", texts, ours, theirs)

    ids = [random_ids(rng, len(vocab), byte_ids, known) for _ in range(args.count)]
    ours = run([args.tokenize, "--model", args.model, "--decode"], [{"token_ids": i} for i in ids], "text")
    same &= report("decode", ids, ours, peer.decode_batch(ids, skip_special_tokens=False))
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
