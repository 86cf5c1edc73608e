/* Sums of exponentials: powers of two by Taylor's polynomial, to 1e-6 of the sum. */
#ifndef SHORTLIST_EXPONENTIALS_H
#define SHORTLIST_EXPONENTIALS_H

#include "primitives/digits.h"
#include "primitives/sums.h"

#define LOG2_OF_E 1.4426950408889634f
#define SMALLEST_POWER (-126.0f) /* exponent of the smallest normal float32 */

/* exp(scores) in each lane, of scores of at most 0; no number where a score is none. */
INLINE floats compute_exp(floats scores) {
    floats power = scores * LOG2_OF_E, lowest = repeat_float(SMALLEST_POWER);
    power = choose_floats(power < lowest, lowest, power);
    floats rounded = power + ROUNDER, x = power - (rounded - ROUNDER), result = repeat_float(1.5403530e-4f);
    words exponent = (words)((ints)rounded - ROUNDER_BITS + 127) << 23;
    result = result * x + 1.3333558e-3f;
    result = result * x + 9.6181291e-3f;
    result = result * x + 5.5504109e-2f;
    result = result * x + 2.4022651e-1f;
    result = result * x + 6.9314718e-1f;
    result = result * x + 1.0f;
    return result * (floats)exponent;
}

INLINE void add_exp(floats sums[PARTS], const float *scores, float peak) {
    for (int part = 0; part < PARTS; part++) sums[part] += compute_exp(load_floats(scores + WIDTH * part) - peak);
}

/* The sum of exp(scores - peak) [n], in the order of vectors.h; no number where a score is none. */
INLINE float sum_exp(const float *scores, int64_t n, float peak) {
    floats sums[PARTS] = {0};
    float last[LANES];
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) add_exp(sums, scores + i, peak);
    for (int lane = 0; lane < LANES; lane++) last[lane] = i + lane < n ? scores[i + lane] : -INFINITY;
    if (i < n) add_exp(sums, last, peak);
    return add_lanes(sums);
}

/* The log of the sum of exp(scores) [n]. */
INLINE float log_sum_exp(const float *scores, int64_t n) {
    float peak = find_largest(scores, n);
    return peak + logf(sum_exp(scores, n, peak));
}

/* log(exp(a) + exp(b)). */
INLINE float log_add_exp(float a, float b) {
    float high = a > b ? a : b, low = a > b ? b : a;
    return high == low ? high + 0.6931472f : high + log1pf(expf(low - high));
}

#endif
