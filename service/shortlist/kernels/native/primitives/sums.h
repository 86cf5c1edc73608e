/* Dot products of float32, in the order that vectors.h states. */
#ifndef SHORTLIST_SUMS_H
#define SHORTLIST_SUMS_H

#include "primitives/vectors.h"

enum { ROWS_TOGETHER = VECTOR_BYTES > 16 ? 4 : 2 }; /* with one, the processor waits for memory half of the time */

typedef float quarter __attribute__((vector_size(16)));

/* The sixteen partial sums, halved four times: sum j takes sum j + 8, then j + 4, j + 2, j + 1. */
INLINE float add_lanes(const floats sums[PARTS]) {
    quarter quarters[4];
    memcpy(quarters, sums, sizeof quarters);
    quarter four = (quarters[0] + quarters[2]) + (quarters[1] + quarters[3]);
    return (four[0] + four[2]) + (four[1] + four[3]);
}

INLINE void add_products(floats sums[PARTS], const float *left, const float *right) {
    for (int part = 0; part < PARTS; part++)
        sums[part] += load_floats(left + WIDTH * part) * load_floats(right + WIDTH * part);
}

/* Adds the last `left` products of vectors [size]: the last LANES numbers are taken, and those not left made zeros, so
 * that product i goes to sum i - size + LANES. */
INLINE void add_last_products(floats sums[PARTS], const float *one, const float *other, int64_t size, int64_t left) {
    float ones[LANES] = {0}, others[LANES] = {0};
    const float *one_end = one + size - LANES, *other_end = other + size - LANES;
    if (size < LANES) {
        for (int64_t i = 0; i < size; i++) ones[LANES - size + i] = one[i], others[LANES - size + i] = other[i];
        one_end = ones, other_end = others;
    }
    for (int part = 0; part < PARTS; part++) {
        ints lanes = count_lanes(WIDTH * part);
        floats products = load_floats(one_end + WIDTH * part) * load_floats(other_end + WIDTH * part);
        sums[part] += (floats)((ints)products & (lanes >= repeat_int(LANES - (int32_t)left)));
    }
}

/* Products of `count` rows [size] with one vector [size]. */
INLINE void multiply_rows_together(const float *const *rows, int count, const float *vector, int64_t size,
                                   float *products) {
    floats sums[ROWS_TOGETHER][PARTS] = {0};
    int64_t whole = size - size % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int row = 0; row < count; row++) add_products(sums[row], rows[row] + i, vector + i);
    for (int row = 0; row < count; row++) {
        if (whole < size) add_last_products(sums[row], rows[row], vector, size, size - whole);
        products[row] = add_lanes(sums[row]);
    }
}

INLINE float dot(const float *left, const float *right, int64_t size) {
    float product;
    multiply_rows_together(&left, 1, right, size, &product);
    return product;
}

#endif
