/* NEON with dot products (ARMv8.2): AArch64 servers since 2019, Apple silicon.
 *
 * SDOT multiplies signed bytes: weights are shifted to signed ones, 128 less, and 128 times the levels' sums added.
 */
#define TARGET "neon"
#define KERNELS kernels_neon
#define KERNEL_PARTS kernel_parts_neon
#define VECTOR_BYTES 16
#define HAS_DOT_PRODUCTS
#include "primitives/vectors.h"

#include <arm_neon.h>

INLINE int8x16_t load_weights(const uint8_t *weights) {
    return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(weights), vdupq_n_u8(WEIGHT_ZERO_POINT)));
}

INLINE int8x16_t repeat_levels(const int8_t *levels) {
    int32_t word;
    memcpy(&word, levels, sizeof word);
    return vreinterpretq_s8_s32(vdupq_n_s32(word));
}

/* 64 times the sums of four levels: twice that is what the shift of the weights takes. */
INLINE int32x4_t add_half_shift(int32x4_t sums, int8x16_t levels) {
    return vdotq_s32(sums, vdupq_n_s8(WEIGHT_ZERO_POINT / 2), levels);
}

INLINE void multiply_block(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums) {
    int32x4_t totals[PARTS], half_shift = vdupq_n_s32(0);
    for (int part = 0; part < PARTS; part++) totals[part] = vdupq_n_s32(0);
    for (int64_t i = 0; i < lines; i++) {
        int8x16_t context = repeat_levels(levels + LANE_BYTES * i);
        half_shift = add_half_shift(half_shift, context);
        for (int part = 0; part < PARTS; part++)
            totals[part] = vdotq_s32(totals[part], load_weights(block + LINE_BYTES * i + VECTOR_BYTES * part), context);
    }
    for (int part = 0; part < PARTS; part++)
        vst1q_s32(sums + WIDTH * part, vaddq_s32(totals[part], vaddq_s32(half_shift, half_shift)));
}

INLINE void multiply_block_by_digits(const uint8_t *block, const int8_t *coarse, const int8_t *fine, int64_t lines,
                                     int32_t *coarse_sums, int32_t *fine_sums) {
    multiply_block(block, coarse, lines, coarse_sums);
    multiply_block(block, fine, lines, fine_sums);
}

INLINE void multiply_two_bit_block(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums) {
    int32x4_t totals[PARTS];
    for (int part = 0; part < PARTS; part++) totals[part] = vdupq_n_s32(0);
    for (int64_t i = 0; i < WEIGHTS_PER_BYTE * lines; i++) {
        int8x16_t context = repeat_levels(levels + LANE_BYTES * i);
        int8x16_t place = vdupq_n_s8(-2 * (int8_t)(i % WEIGHTS_PER_BYTE)); /* to the left by less than 0 */
        const uint8_t *line = block + LINE_BYTES * (i / WEIGHTS_PER_BYTE);
        for (int part = 0; part < PARTS; part++) {
            uint8x16_t bits = vandq_u8(vshlq_u8(vld1q_u8(line + VECTOR_BYTES * part), place), vdupq_n_u8(TWO_BIT_MAX));
            totals[part] = vdotq_s32(totals[part], vreinterpretq_s8_u8(bits), context);
        }
    }
    for (int part = 0; part < PARTS; part++) vst1q_s32(sums + WIDTH * part, totals[part]);
}

INLINE int32_t multiply_row(const uint8_t *row, const int8_t *levels, int64_t lines) {
    int32x4_t total = vdupq_n_s32(0), half_shift = vdupq_n_s32(0);
    for (int64_t i = 0; i < LINE_BYTES * lines; i += VECTOR_BYTES) {
        int8x16_t context = vld1q_s8(levels + i);
        half_shift = add_half_shift(half_shift, context);
        total = vdotq_s32(total, load_weights(row + i), context);
    }
    return vaddvq_s32(vaddq_s32(total, vaddq_s32(half_shift, half_shift)));
}

INLINE void multiply_row_by_digits(const uint8_t *row, const int8_t *coarse, const int8_t *fine, int64_t lines,
                                   int32_t *sums) {
    sums[0] = multiply_row(row, coarse, lines);
    sums[1] = multiply_row(row, fine, lines);
}

INLINE int64_t select_block(const float *scores, float threshold, int32_t start, int32_t *positions) {
    int64_t count = 0;
    for (int32_t i = 0; i < LANES; i++) {
        positions[count] = start + i;
        count += scores[i] >= threshold;
    }
    return count;
}

#include "targets/loops.h"
