#!/usr/bin/env python3
"""Write a Gemma 3 build with int4 linears and tables (recipe emb4, exact f16 scales) as a GGUF in Q4_0, for llama.cpp to run.

    python build_gguf.py BUILD OUT.gguf

Levels and steps are the build's own, bit for bit; only the order of the nibbles differs: byte j of a block holds the levels j and
j + 16.  There is no vocabulary in the file: what is measured needs none.
"""
import glob
import json
import os
import struct
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

LAYER = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
}


def tensors(build):
    """name -> (dtype, shape, bytes) of every tensor of every shard."""
    found = {}
    for path in sorted(glob.glob(os.path.join(build, "*.safetensors"))):
        data = np.memmap(path, np.uint8, "r")
        n = struct.unpack("<Q", data[:8].tobytes())[0]
        for name, t in json.loads(data[8:8 + n].tobytes()).items():
            if name != "__metadata__":
                begin, end = t["data_offsets"]
                found[name] = (t["dtype"], t["shape"], data[8 + n + begin:8 + n + end])
    return found


def q4_0(packed, scale, rows):
    """[rows, bytes] of Q4_0 blocks: an f16 step, then 16 bytes of nibbles offset by 8."""
    low = packed.reshape(-1, 16) & 15
    high = packed.reshape(-1, 16) >> 4
    level = np.stack([low, high], -1).reshape(-1, 32)
    blocks = np.concatenate([scale.reshape(-1, 2), level[:, :16] | level[:, 16:] << 4], 1)
    return blocks.astype(np.uint8).reshape(rows, -1)


def gguf_name(module):
    if not module.startswith("model.layers."):
        return {"model.embed_tokens": "token_embd.weight", "model.norm": "output_norm.weight", "lm_head": "output.weight"}[module]
    layer, part = module[len("model.layers."):].split(".", 1)
    return f"blk.{layer}.{LAYER[part]}.weight"


def write_settings(w, c):
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_sliding_window(c["sliding_window"])
    w.add_rope_freq_base(c.get("rope_theta", 1e6))
    w.add_vocab_size(c["vocab_size"])
    w.add_tokenizer_model("no_vocab")
    w.add_file_type(2)


def main():
    build, out = sys.argv[1:3]
    found = tensors(build)
    with open(os.path.join(build, "config.json")) as f:
        config = json.load(f)
    w = GGUFWriter(out, "gemma3")
    write_settings(w, config)
    for name, (dtype, shape, data) in found.items():
        module, _, part = name.rpartition(".")
        if part == "weight_packed":
            kind, _, scale = found[module + ".weight_scale"]
            if kind != "F16":
                sys.exit(f"build_gguf: {module}: scales are {kind}: make the build with --scale-dtype f16")
            w.add_tensor(gguf_name(module), q4_0(data, scale, shape[0]), raw_dtype=GGMLQuantizationType.Q4_0)
        elif part == "weight" and len(shape) == 1:
            half = data.view(np.uint16).astype(np.uint32) << 16
            w.add_tensor(gguf_name(module), half.view(np.float32) + np.float32(1))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
