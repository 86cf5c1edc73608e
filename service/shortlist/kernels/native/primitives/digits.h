/* Context vectors in whole numbers: in levels of int8, or in two digits of int8, a coarse and a fine one.
 *
 * The coarse digit is a whole number of coarse steps, -63 to 63; the fine digit is what is left, in steps 126 times
 * finer. Sums over the weights' zero point are subtracted from the products.
 */
#ifndef SHORTLIST_DIGITS_H
#define SHORTLIST_DIGITS_H

#include "kernels.h"
#include "primitives/vectors.h"

#define COARSE_LEVELS 63.0f  /* the largest coarse digit */
#define FINE_LEVELS 126.0f   /* fine steps in a coarse one */
#define MAX_LEVEL 127.0f     /* a context's largest number in levels */
#define MIN_PEAK 1e-30f      /* as in the exporter's `graphs.quantized` */
#define ROUNDER 12582912.0f  /* 1.5 * 2**23: a small number added to it is rounded to a whole one, in its last bits */
#define ROUNDER_BITS 0x4B400000

enum { CODE_PREFETCH_ROWS = 24 }; /* how many rows ahead of the current one */

/* What a 1 of each digit stands for, and what the weights' zero point adds to the sums over each digit. */
struct digit_steps {
    float coarse, fine;
    int32_t coarse_shift, fine_shift;
};

/* The largest absolute value of numbers [n], at least MIN_PEAK. */
INLINE float find_peak(const float *numbers, int64_t n) {
    floats peaks[PARTS];
    float lanes[LANES], peak = MIN_PEAK;
    int64_t i = 0;
    for (int part = 0; part < PARTS; part++) peaks[part] = repeat_float(MIN_PEAK);
    for (; i + LANES <= n; i += LANES)
        for (int part = 0; part < PARTS; part++) {
            ints bits = (ints)load_floats(numbers + i + WIDTH * part) & 0x7fffffff;
            peaks[part] = max_floats((floats)bits, peaks[part]);
        }
    memcpy(lanes, peaks, sizeof lanes);
    for (int lane = 0; lane < LANES; lane++) peak = lanes[lane] > peak ? lanes[lane] : peak;
    for (; i < n; i++) peak = fabsf(numbers[i]) > peak ? fabsf(numbers[i]) : peak;
    return peak;
}

/* `number`, small, to the nearest whole one; of two the even one. */
INLINE int32_t round_to_whole(float number) {
    float sum = number + ROUNDER;
    int32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    return bits - ROUNDER_BITS;
}

/* Writes numbers [n] as whole ones of -127 to 127 to `levels`; returns what a level of 1 stands for. */
INLINE float quantize(const float *numbers, int64_t n, int8_t *levels) {
    float scale = find_peak(numbers, n) / MAX_LEVEL;
    for (int64_t i = 0; i < n; i++) levels[i] = (int8_t)round_to_whole(numbers[i] / scale);
    return scale;
}

INLINE int32_t sum_levels(const int8_t *levels, int64_t n) {
    int32_t total = 0;
    for (int64_t i = 0; i < n; i++) total += levels[i];
    return total;
}

/* Writes how many whole steps are in numbers [n] to `digits`, and leaves the rest in `numbers`.
 * Returns what the zero point adds to a sum over these digits. */
INLINE int32_t extract_digit(float *numbers, int64_t n, float step, int8_t *digits) {
    for (int64_t i = 0; i < n; i++) {
        int32_t whole = round_to_whole(numbers[i] / step);
        digits[i] = (int8_t)whole;
        numbers[i] -= (float)whole * step;
    }
    return WEIGHT_ZERO_POINT * sum_levels(digits, n);
}

/* Splits a context [n] into digits, to 1/16,000 of its largest number. rest: [n], overwritten. */
INLINE struct digit_steps split_digits(const float *context, int64_t n, int8_t *coarse, int8_t *fine, float *rest) {
    struct digit_steps steps;
    memcpy(rest, context, n * sizeof *rest);
    steps.coarse = find_peak(rest, n) / COARSE_LEVELS;
    steps.fine = steps.coarse / FINE_LEVELS;
    steps.coarse_shift = extract_digit(rest, n, steps.coarse, coarse);
    steps.fine_shift = extract_digit(rest, n, steps.fine, fine);
    return steps;
}

/* The sums over both digits as one product, for weights of this scale. Steps are multiplied by the scale first, since
 * sums times steps could overflow where the product does not. */
INLINE float combine_sums(int32_t coarse_sum, int32_t fine_sum, float scale, struct digit_steps steps) {
    float coarse = (float)(coarse_sum - steps.coarse_shift), fine = (float)(fine_sum - steps.fine_shift);
    return (steps.coarse * scale) * coarse + (steps.fine * scale) * fine;
}

/* The sums [2, 2, LANES] of two blocks, one behind the other, with both digits: each block's coarse ones first. */
#ifndef HAS_TWO_BLOCKS
INLINE void multiply_two_blocks_by_digits(const uint8_t *blocks, const int8_t *coarse, const int8_t *fine,
                                          int64_t lines, int32_t *sums) {
    for (int64_t i = 0; i < 2; i++)
        multiply_block_by_digits(blocks + i * lines * LINE_BYTES, coarse, fine, lines, sums + 2 * i * LANES,
                                 sums + (2 * i + 1) * LANES);
}
#endif

/* The products [LANES] of a block of columns, whose sums [2, LANES] over both digits are there; as `combine_sums`. */
INLINE void combine_block(const int32_t *sums, const float *scales, struct digit_steps steps, float *products) {
    for (int64_t lane = 0; lane < LANES; lane += WIDTH) {
        floats coarse = convert_ints(load_ints(sums + lane) - steps.coarse_shift);
        floats fine = convert_ints(load_ints(sums + LANES + lane) - steps.fine_shift);
        floats scale = load_floats(scales + lane);
        store_floats(products + lane, (steps.coarse * scale) * coarse + (steps.fine * scale) * fine);
    }
}

/* The products [16 blocks] of columns with a context in two digits. Two blocks at a time share the context's digits. */
INLINE void multiply_columns(const struct int8_columns *columns, const int8_t *coarse, const int8_t *fine,
                             struct digit_steps steps, float *products) {
    int64_t lines = columns->lines, size = lines * LINE_BYTES, block = 0;
    int32_t sums[4 * LANES];
    for (; block + 2 <= columns->blocks; block += 2) {
        multiply_two_blocks_by_digits(columns->weights + block * size, coarse, fine, lines, sums);
        for (int64_t i = 0; i < 2; i++)
            combine_block(sums + 2 * i * LANES, columns->scale + (block + i) * LANES, steps,
                          products + (block + i) * LANES);
    }
    if (block == columns->blocks) return;
    multiply_block_by_digits(columns->weights + block * size, coarse, fine, lines, sums, sums + LANES);
    combine_block(sums, columns->scale + block * LANES, steps, products + block * LANES);
}

#endif
