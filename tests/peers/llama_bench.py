#!/usr/bin/env python3
"""How fast llama.cpp runs a GGUF on the CPU: {"decode_tokens_per_s", "prefill_tokens_per_s", "first_ids"}, as gpu-decode --bench has them.

    python llama_bench.py MODEL.gguf [--threads N] [--prompt P] [--gen G]

Whole tokens, the median step of G after a prompt of P in one batch, which ran once before.  The ids are those of gpu-decode --bench.
"""
import argparse
import ctypes
import json
import statistics
import time

import llama_cpp as l


def decode(ctx, ids):
    array = (l.llama_token * len(ids))(*ids)
    start = time.perf_counter()
    if l.llama_decode(ctx, l.llama_batch_get_one(array, len(ids))):
        raise SystemExit("llama_bench: llama_decode failed")
    l.llama_synchronize(ctx)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--gen", type=int, default=64)
    a = parser.parse_args()

    l.llama_backend_init()
    silent = l.llama_log_callback(lambda *_: None)
    l.llama_log_set(silent, ctypes.c_void_p(0))
    model = l.llama_model_load_from_file(a.model.encode(), l.llama_model_default_params())
    if not model:
        raise SystemExit(f"llama_bench: {a.model}: cannot be loaded")
    p = l.llama_context_default_params()
    p.n_ctx = p.n_batch = p.n_ubatch = a.prompt + a.gen
    p.n_threads = p.n_threads_batch = a.threads
    ctx = l.llama_init_from_model(model, p)
    vocab = l.llama_vocab_n_tokens(l.llama_model_get_vocab(model))
    ids = [(i * 7919 + 5) % vocab for i in range(a.prompt)]

    decode(ctx, ids)
    l.llama_memory_clear(l.llama_get_memory(ctx), True)
    prefill = decode(ctx, ids)
    logits = l.llama_get_logits_ith(ctx, -1)
    first = max(range(vocab), key=lambda i: logits[i])
    steps = [decode(ctx, [ids[i % a.prompt]]) for i in range(a.gen)]
    print(json.dumps({"threads": a.threads, "prompt_tokens": a.prompt, "gen_tokens": a.gen, "first_id": first,
                      "prefill_tokens_per_s": a.prompt / prefill, "decode_tokens_per_s": 1 / statistics.median(steps)}))


if __name__ == "__main__":
    main()
