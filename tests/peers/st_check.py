#!/usr/bin/env python3
"""Open safetensors files with the Python library and read every tensor.

    st_check.py FILE…            one JSON line a file: {"file", "tensors", "bytes"}; exit status 1 at the first that does not open

A build directory counts as its *.safetensors files.  Beyond what the library demands, every tensor must begin at a multiple of its element
size in the file, so that any loader can map it.  Needs: pip install safetensors numpy ml_dtypes
"""
import glob
import json
import os
import sys

import ml_dtypes
import numpy as np
from safetensors import safe_open

np.float8_e4m3fn = ml_dtypes.float8_e4m3fn      # where the library looks for it; bfloat16 it finds by itself

ELEMENT = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
           "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8}


def aligned(path):
    """The header is read here once more: the library does not tell offsets."""
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(n))
    header.pop("__metadata__", None)
    for name, t in header.items():
        if (8 + n + t["data_offsets"][0]) % ELEMENT[t["dtype"]]:
            raise ValueError(f"{name}: {t['dtype']} data begin at byte {8 + n + t['data_offsets'][0]}")
    return header


def check(path):
    header, total = aligned(path), 0
    with safe_open(path, "np") as f:
        names = list(f.keys())
        for name in names:
            tensor = f.get_tensor(name)
            if list(tensor.shape) != header[name]["shape"]:
                raise ValueError(f"{name}: shape {tensor.shape}, header {header[name]['shape']}")
            total += np.asarray(tensor).nbytes
    if sorted(names) != sorted(header):
        raise ValueError("the library sees other names than the header holds")
    return {"file": os.path.basename(path), "tensors": len(names), "bytes": total}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for arg in sys.argv[1:]:
        files = sorted(glob.glob(os.path.join(arg, "*.safetensors"))) if os.path.isdir(arg) else [arg]
        if not files:
            sys.exit(f"st_check: {arg}: holds no .safetensors file")
        for path in files:
            try:
                print(json.dumps(check(path)))
            except Exception as e:      # whatever the library says is the finding
                sys.exit(f"st_check: {path}: {type(e).__name__}: {e}")


if __name__ == "__main__":
    main()
