#!/usr/bin/env python3
"""Write a stand-in for Gemma 4 E2B emb4 as a GGUF: llama.cpp's gemma3 with E2B's widths and layers and random weights in Q4_0.

    python e2b_gguf.py OUT.gguf

llama.cpp's gemma3 has one MLP width for all layers, no per-layer embedding and no shared K/V; the width here is the mean of E2B's, so that a token reads about
as many bytes (printed).  What it computes means nothing; how fast it does is what is asked.
"""
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

HIDDEN, LAYERS, HEADS, HEAD_DIM, MLP, VOCAB = 1536, 35, 8, 256, 9664, 262144


def q4_0(rng, rows, cols):
    """[rows, bytes] of blocks: an f16 step, then 16 bytes of nibbles."""
    blocks = rng.integers(0, 256, (rows * cols // 32, 18), np.uint8)
    blocks[:, :2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    return blocks.reshape(rows, -1)


def write_settings(w):
    w.add_context_length(32768)
    w.add_embedding_length(HIDDEN)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(MLP)
    w.add_head_count(HEADS)
    w.add_head_count_kv(1)
    w.add_key_length(HEAD_DIM)
    w.add_value_length(HEAD_DIM)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_sliding_window(512)
    w.add_rope_freq_base(1e6)
    w.add_vocab_size(VOCAB)
    w.add_tokenizer_model("no_vocab")
    w.add_file_type(2)


def main():
    rng = np.random.default_rng(1)
    w = GGUFWriter(sys.argv[1], "gemma3")
    total = 0
    write_settings(w)
    linears = {"attn_q": (HEADS * HEAD_DIM, HIDDEN), "attn_k": (HEAD_DIM, HIDDEN), "attn_v": (HEAD_DIM, HIDDEN), "attn_output": (HIDDEN, HEADS * HEAD_DIM),
               "ffn_gate": (MLP, HIDDEN), "ffn_up": (MLP, HIDDEN), "ffn_down": (HIDDEN, MLP)}
    norms = {"attn_norm": HIDDEN, "post_attention_norm": HIDDEN, "ffn_norm": HIDDEN, "post_ffw_norm": HIDDEN, "attn_q_norm": HEAD_DIM, "attn_k_norm": HEAD_DIM}
    matrices = [("token_embd", (VOCAB, HIDDEN))] + [(f"blk.{i}.{name}", shape) for i in range(LAYERS) for name, shape in linears.items()]
    for name, (rows, cols) in matrices:
        data = q4_0(rng, rows, cols)
        total += data.nbytes
        w.add_tensor(name + ".weight", data, raw_dtype=GGMLQuantizationType.Q4_0)
    for name, n in [("output_norm", HIDDEN)] + [(f"blk.{i}.{name}", n) for i in range(LAYERS) for name, n in norms.items()]:
        w.add_tensor(name + ".weight", np.ones(n, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    print(f"{total / 1e9:.3f} GB of weights a token")


if __name__ == "__main__":
    main()
