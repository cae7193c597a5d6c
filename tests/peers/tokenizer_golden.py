#!/usr/bin/env python3
"""Make tests/golden/tokenizer: small tokenizers of the structure of Gemma's, and what Hugging Face tokenizers computes with them.

    gemma       as Gemma 3's: added tokens matched in the raw text (specials, runs of newlines, tabs and spaces, HTML tags, unused ones), one id past the
                vocabulary, a post-processor that adds <bos>, merges as pairs
    variant     as older files and other hands write them: merges as "a b" strings and before the vocab, an added token that goes through the
                normalizer, no post-processor, a merge of two byte pieces, keys that no reader knows
    unknown     no byte fallback: unknown characters become one fused <unk>

    python tokenizer_golden.py OUT_DIR
Needs: pip install tokenizers
"""
import json
import os
import random
import sys

from tokenizers import Tokenizer, models, trainers
from tokenizer_check import random_ids, random_text

CORPUS = """The quick brown fox jumps over the lazy dog. How are you today? Numbers 0123456789 and (brackets), [more], {these}.
Café naïve façade über Straße; déjà vu — żółw język. 人工知能は未来を変える。 한국어 테스트입니다. Привет, мир! שלום עולם
for (int i = 0; i < n; i++) sum += a[i] * b[i];  return sum;   the theory of the other then there these those that than
question answer language model model models weight weights weighted build builds building token tokens tokenizer"""


def trained():
    """Characters and merges of the corpus, spaces as U+2581."""
    text = CORPUS.replace(" ", "\u2581")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.train_from_iterator(text.split("\n") * 2, trainers.BpeTrainer(vocab_size=600, show_progress=False, max_token_length=12))
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [tuple(m) for m in model["merges"]]


def token(number, content, special, normalized=False):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized, "special": special}


def runs(mark, longest, merges):
    """Pieces of 1 .. longest marks; merges that make the longer ones."""
    for n in range(2, longest + 1):
        merges += [(mark * i, mark * (n - i)) for i in range(n - 1, 0, -1)]
    return [mark * n for n in range(1, longest + 1)]


def gemma_file(learnt, merges, name):
    merges = list(merges)
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    added = specials + ["<unused0>", "<unused1>", "<start_of_turn>", "<end_of_turn>", "<table>", "</table>"]
    first_runs = runs("\n", 7, merges) + runs("\u2581", 9, merges)[1:] + runs("\t", 4, merges)
    pieces = added + first_runs + [f"<0x{b:02X}>" for b in range(256)]
    pieces += [p for p in learnt if p not in pieces] + ["<", ">", "/", "_", "\\", "\""]
    pieces = list(dict.fromkeys(pieces))
    tokens = [token(pieces.index(p), p, p in specials or "_turn" in p) for p in added + first_runs]
    post = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}}}
    if name == "gemma":
        tokens.append(token(len(pieces), "<image_soft_token>", True))
    if name == "variant":
        merges.insert(40, ("<0xF0>", "<0x9F>"))
        pieces.append("<0xF0><0x9F>")
        tokens.append(token(len(pieces), "the lazy", False, normalized=True))
        post = None
    if name == "unknown":
        post = None
    vocab = {p: i for i, p in enumerate(pieces)}
    merges = [m for m in dict.fromkeys(merges) if m[0] in vocab and m[1] in vocab and m[0] + m[1] in vocab]
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": True, "byte_fallback": name != "unknown", "ignore_merges": False}
    if name == "variant":
        model = {"merges": [" ".join(m) for m in merges], "vocab": vocab, **model}
    else:
        model.update(vocab=vocab, merges=[list(m) for m in merges])
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
            "post_processor": post, "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
            "model": model}


def main():
    out = sys.argv[1]
    learnt, merges = trained()
    rng = random.Random(1)
    for name in ("gemma", "variant", "unknown"):
        directory = os.path.join(out, name)
        os.makedirs(directory)
        path = os.path.join(directory, "tokenizer.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(gemma_file(learnt, merges, name), f, ensure_ascii=name == "variant", indent=None if name == "variant" else 1)
        peer = Tokenizer.from_file(path)
        vocab = peer.get_vocab(with_added_tokens=True)
        added = [t.content for _, t in sorted(peer.get_added_tokens_decoder().items())]
        byte_ids = [vocab[f"<0x{b:02X}>"] for b in range(256)]
        with open(os.path.join(directory, "lines.jsonl"), "w", encoding="utf-8") as f:
            for line in CORPUS.split("\n") + [random_text(rng, sorted(vocab), added) for _ in range(300)]:
                f.write(json.dumps({"text": line, "token_ids": peer.encode(line, add_special_tokens=False).ids}, ensure_ascii=False) + "\n")
        with open(os.path.join(directory, "decode.jsonl"), "w", encoding="utf-8") as f:
            for _ in range(150):
                ids = random_ids(rng, len(vocab), byte_ids, sorted(vocab.values()))
                f.write(json.dumps({"token_ids": ids, "text": peer.decode(ids, skip_special_tokens=False)}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
