/* The graph bounds.onnx as loops: an estimate of every logit from int8 rows, and a bound on its error.
 *
 * Sums of bytes are exact. Float operations are those that the exporter's `certificate` accounts for, in blocks of the
 * same size; none is contracted.
 */
#ifndef SHORTLIST_BOUNDS_H
#define SHORTLIST_BOUNDS_H

#include "digits.h"
#include "kernels.h"

#include <stdlib.h>

enum { DOUBLES = 8 }; /* partial sums of a norm */

/* The Euclidean norm of numbers [n], in float64. */
INLINE double compute_norm(const float *numbers, int64_t n) {
    double sums[DOUBLES] = {0}, total = 0;
    int64_t i = 0;
    for (; i + DOUBLES <= n; i += DOUBLES)
        for (int lane = 0; lane < DOUBLES; lane++) sums[lane] += (double)numbers[i + lane] * (double)numbers[i + lane];
    for (; i < n; i++) sums[i % DOUBLES] += (double)numbers[i] * (double)numbers[i];
    for (int lane = 0; lane < DOUBLES; lane++) total += sums[lane];
    return sqrt(total);
}

/* Writes (context - mean) P to `turned` [dim], summed in blocks. centred: context - mean. part: [dim], overwritten. */
static void change_basis(const struct bounds *bounds, const float *centred, float *part, float *turned) {
    int64_t dim = bounds->dim, rows = bounds->block_rows;
    memset(turned, 0, dim * sizeof *turned);
    for (int64_t start = 0; start < dim; start += rows) {
        memset(part, 0, dim * sizeof *part);
        for (int64_t i = start; i < dim && i < start + rows; i++) {
            const float *row = bounds->change + i * dim;
            for (int64_t j = 0; j < dim; j++) part[j] += centred[i] * row[j];
        }
        for (int64_t j = 0; j < dim; j++) turned[j] += part[j];
    }
}

/* Changes a context's basis and splits it into digits; scratch: [3, dim]. */
static void quantize_context(const struct bounds *bounds, const float *context, int8_t *digits, float *steps,
                             int32_t *shifts, float *spread, float *scratch) {
    int64_t dim = bounds->dim, width = bounds->lines * LANE_BYTES;
    float *centred = scratch, *part = scratch + dim, *turned = scratch + 2 * dim;
    for (int64_t i = 0; i < dim; i++) centred[i] = context[i] - bounds->mean[i];
    change_basis(bounds, centred, part, turned);
    double sum = bounds->factors[0] * compute_norm(turned, dim) + bounds->factors[2] * compute_norm(centred, dim);
    steps[0] = find_peak(turned, dim) / COARSE_LEVELS;
    steps[1] = steps[0] / FINE_LEVELS;
    shifts[0] = extract_digit(turned, dim, steps[0], digits);
    shifts[1] = extract_digit(turned, dim, steps[1], digits + width);
    *spread = (float)(sum + bounds->factors[1] * compute_norm(turned, dim));
}

static int64_t quantize_contexts(const struct bounds *bounds, const float *contexts, int64_t count, int8_t *digits,
                                 float *steps, int32_t *shifts, float *spreads) {
    int64_t width = bounds->lines * LANE_BYTES;
    float *scratch = malloc(3 * bounds->dim * sizeof *scratch);
    if (!scratch) return 0;
    for (int64_t row = 0; row < count; row++)
        quantize_context(bounds, contexts + row * bounds->dim, digits + row * 2 * width, steps + 2 * row,
                         shifts + 2 * row, spreads + row, scratch);
    free(scratch);
    return 1;
}

/* Estimates of the classes of one block for one context. */
INLINE void estimate_block(const struct bounds *bounds, int64_t block, const int8_t *digits, const float *steps,
                           const int32_t *shifts, float *estimates) {
    int32_t coarse_sums[LANES], fine_sums[LANES];
    int64_t width = bounds->lines * LANE_BYTES, start = LANES * block, left = bounds->classes - start;
    const uint8_t *weights = bounds->rows + block * bounds->lines * LINE_BYTES;
    multiply_block_by_digits(weights, digits, digits + width, bounds->lines, coarse_sums, fine_sums);
    for (int64_t i = 0; i < (left < LANES ? left : LANES); i++) {
        float coarse = (float)(coarse_sums[i] - shifts[0]), fine = (float)(fine_sums[i] - shifts[1]);
        float product = steps[0] * coarse + steps[1] * fine;
        estimates[start + i] = product * bounds->scale[start + i] + bounds->constant[start + i];
    }
}

static void estimate_logits(const struct bounds *bounds, const int8_t *digits, const float *steps,
                            const int32_t *shifts, float *estimates, int64_t count, int64_t first, int64_t last) {
    for (int64_t block = first; block < last; block++)
        for (int64_t row = 0; row < count; row++)
            estimate_block(bounds, block, digits + row * 2 * bounds->lines * LANE_BYTES, steps + 2 * row,
                           shifts + 2 * row, estimates + row * bounds->classes);
}

#endif
