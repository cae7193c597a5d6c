/* The wire block of a recovered weight (safetensors-stream(5)) and int4 packing.
 *
 *   byte  0 1 | 2        3        …  17
 *        scale| u1<<4|u0 u3<<4|u2 …  u31<<4|u30         u = level + 8, level -8..7; scale little-endian F16 or BF16
 *
 * A group of 32 bf16 values <-> one 18-byte block.  Value of a weight = bf16(level * scale).  Example: scale 1.0 (bf16 0x3f80), levels
 * -8, 7, 0 … 0  ->  80 3f f0 88 88 … 88.
 */
#ifndef QUANT_Q4_H
#define QUANT_Q4_H
#include <stddef.h>
#include <stdint.h>

#define Q4_GROUP 32
#define Q4_BLOCK 18
enum q4_scale { Q4_BF16, Q4_F16 };

const char *q4_scale_name(enum q4_scale kind);          /* "bf16", "f16": the spelling of --scale-dtype */
const char *q4_scale_meta(enum q4_scale kind);          /* "BF16", "F16": that of metadata q4_scale */
int q4_scale_from_name(const char *name);               /* either spelling; -1 = unknown */
/* A 16-bit scale as a number. */
float q4_scale_value(uint16_t bits, enum q4_scale kind);

/* compressed-tensors' row layout from n blocks and back: packed = 16 bytes a group (low nibble = lower index), scale 2 bytes a group. */
void q4_split(const uint8_t *blocks, size_t n, uint8_t *packed, uint8_t *scales);
void q4_join(const uint8_t *packed, const uint8_t *scales, size_t n, uint8_t *blocks);
/* n blocks to 32 n bf16 values: the float32 product (exact for a 16-bit scale), rounded once. */
void q4_to_bf16(const uint8_t *blocks, size_t n, enum q4_scale kind, uint16_t *values);
#endif
