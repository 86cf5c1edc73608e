/* A context in the basis of a certificate, in whole numbers: in levels for rows of 4 bits, in two digits for int8 rows,
 * and what bounds the errors of both.
 *
 * Float operations are those that the exporter's `certificate` accounts for, in blocks of the same size; none is
 * contracted.
 */
#ifndef SHORTLIST_TURNED_CONTEXT_H
#define SHORTLIST_TURNED_CONTEXT_H

#include "kernels.h"
#include "primitives/digits.h"
#include "primitives/four_bits.h"
#include "primitives/sums.h"

enum {
    DOUBLES = 8,        /* partial sums in float64 */
    TURNED_ROWS = 4,    /* contexts that share a change of basis */
    TURNED_VECTORS = 8, /* sums of one step of it */
};

/* levels: [8 four_bit_lines], each `level` large; shift: FOUR_BIT_MAX times their sum. digits: [2, 64 row_lines],
 * coarse ones first, with their steps and what the zero point adds to their sums. reach, fine_reach: by how many times
 * a class's scale its estimate may be off, by 4 bits and by int8. offset: what all rows have in common. deviation: of
 * 4 bits, the root of the sum over all classes of the squared errors, each in its class's scale. */
struct turned_context {
    int8_t *levels, *digits;
    float level, steps[2], reach, fine_reach, offset;
    int32_t shift, shifts[2];
    double deviation;
};

INLINE double add_doubles(const double sums[DOUBLES]) {
    double total = 0;
    for (int lane = 0; lane < DOUBLES; lane++) total += sums[lane];
    return total;
}

/* The sum of products of numbers [n], in float64. */
INLINE double dot_exactly(const float *left, const float *right, int64_t n) {
    double sums[DOUBLES] = {0};
    int64_t i = 0;
    for (; i + DOUBLES <= n; i += DOUBLES)
        for (int lane = 0; lane < DOUBLES; lane++) sums[lane] += (double)left[i + lane] * (double)right[i + lane];
    for (; i < n; i++) sums[i % DOUBLES] += (double)left[i] * (double)right[i];
    return add_doubles(sums);
}

/* A bound on the root of the sum over all classes of their squared products with numbers [dim]: weight times their
 * square, and the squared products with some directions [count, dim]. */
static double bound_products(const float *directions, int64_t count, double weight, const float *numbers, int64_t dim) {
    double total = weight * dot_exactly(numbers, numbers, dim);
    for (int64_t i = 0; i < count; i++) {
        double product = dot(directions + i * dim, numbers, dim);
        total += product * product;
    }
    return sqrt(total);
}

typedef uint16_t half_words __attribute__((vector_size(VECTOR_BYTES / 2)));

/* Numbers of which the upper halves are stored. */
INLINE floats load_halves(const uint16_t *halves) {
    half_words upper;
    memcpy(&upper, halves, sizeof upper);
    return (floats)(__builtin_convertvector(upper, words) << 16);
}

/* Adds numbers [count, dim] times some rows of P, first to last - 1, to `parts` vectors of columns of `turned`
 * [count, dim]; count * parts: at most TURNED_VECTORS. The rows after them are asked for. */
INLINE void turn_columns(const struct certificate *certificate, const float *numbers, int count, int parts,
                         int64_t first, int64_t last, int64_t column, float *turned) {
    int64_t dim = certificate->dim, end = 2 * last - first < dim ? 2 * last - first : dim;
    floats sums[TURNED_VECTORS] = {0};
    for (int64_t i = last; i < end; i++)
        prefetch_bytes(certificate->change + i * dim + column, parts * VECTOR_BYTES / 2);
    for (int64_t i = first; i < last; i++)
        for (int part = 0; part < parts; part++) {
            floats weights = load_halves(certificate->change + i * dim + column + WIDTH * part);
            for (int row = 0; row < count; row++) sums[row * parts + part] += weights * numbers[row * dim + i];
        }
    for (int row = 0; row < count; row++)
        for (int part = 0; part < parts; part++) {
            float *place = turned + row * dim + column + WIDTH * part;
            store_floats(place, load_floats(place) + sums[row * parts + part]);
        }
}

/* The same of one column. */
INLINE void turn_column(const struct certificate *certificate, const float *numbers, int count, int64_t first,
                        int64_t last, int64_t column, float *turned) {
    int64_t dim = certificate->dim;
    for (int row = 0; row < count; row++) {
        float sum = 0;
        for (int64_t i = first; i < last; i++) {
            uint32_t bits = (uint32_t)certificate->change[i * dim + column] << 16;
            float weight;
            memcpy(&weight, &bits, sizeof weight);
            sum += weight * numbers[row * dim + i];
        }
        turned[row * dim + column] += sum;
    }
}

/* Writes numbers [count, dim] times P to `turned` [count, dim], summed in blocks; count: 1 to TURNED_ROWS. */
INLINE void change_basis(const struct certificate *certificate, const float *numbers, int count, float *turned) {
    int64_t dim = certificate->dim, rows = certificate->block_rows;
    memset(turned, 0, count * dim * sizeof *turned);
    for (int64_t first = 0; first < dim; first += rows) {
        int64_t last = first + rows < dim ? first + rows : dim, column = 0, width = TURNED_VECTORS / count * WIDTH;
        for (; column + width <= dim; column += width)
            turn_columns(certificate, numbers, count, TURNED_VECTORS / count, first, last, column, turned);
        for (; column < dim; column++) turn_column(certificate, numbers, count, first, last, column, turned);
    }
}

/* Levels of `turned` [dim], and the bounds on what they and 4 bits lose. rest: [dim], overwritten. */
static void take_levels(const struct certificate *certificate, const float *turned, double centred_norm, float *rest,
                        struct turned_context *context) {
    int64_t dim = certificate->dim;
    const float *factors = certificate->four_bit_factors;
    double norm = sqrt(dot_exactly(turned, turned, dim));
    context->level = quantize(turned, dim, context->levels);
    context->shift = FOUR_BIT_MAX * sum_levels(context->levels, dim);
    for (int64_t i = 0; i < dim; i++) rest[i] = turned[i] - (float)context->levels[i] * context->level;
    double rest_norm = sqrt(dot_exactly(rest, rest, dim));
    context->reach = (float)(factors[0] * norm + factors[1] * rest_norm + factors[2] * centred_norm);
    context->deviation =
        bound_products(certificate->error_directions, certificate->error_count, factors[3], turned, dim) +
        bound_products(certificate->level_directions, certificate->level_count, factors[4], rest, dim) +
        factors[5] * norm + factors[6] * centred_norm;
}

/* Digits of `turned` [dim], which is overwritten, and the bound on what they and int8 lose. */
static void take_digits(const struct certificate *certificate, float *turned, double centred_norm,
                        struct turned_context *context) {
    int64_t dim = certificate->dim, width = certificate->row_lines * LINE_BYTES;
    const float *factors = certificate->factors;
    double sum = factors[0] * sqrt(dot_exactly(turned, turned, dim)) + factors[2] * centred_norm;
    context->steps[0] = find_peak(turned, dim) / COARSE_LEVELS;
    context->steps[1] = context->steps[0] / FINE_LEVELS;
    context->shifts[0] = extract_digit(turned, dim, context->steps[0], context->digits);
    context->shifts[1] = extract_digit(turned, dim, context->steps[1], context->digits + width);
    context->fine_reach = (float)(sum + factors[1] * sqrt(dot_exactly(turned, turned, dim)));
}

#endif
