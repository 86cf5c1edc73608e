/* Dot products of float32, in the order that vectors.h states. */
#ifndef SHORTLIST_SUMS_H
#define SHORTLIST_SUMS_H

#include "vectors.h"

enum { ROWS_TOGETHER = VECTOR_BYTES > 16 ? 4 : 2 }; /* with one, the processor waits for memory half of the time */

/* The sixteen partial sums, halved four times: sum j takes sum j + 8, then j + 4, j + 2, j + 1. */
INLINE float add_lanes(const floats sums[PARTS]) {
    float lanes[LANES];
    memcpy(lanes, sums, sizeof lanes);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

INLINE void add_products(floats sums[PARTS], const float *left, const float *right) {
    for (int part = 0; part < PARTS; part++)
        sums[part] += load_floats(left + WIDTH * part) * load_floats(right + WIDTH * part);
}

/* The same for fewer than LANES numbers. */
INLINE void add_last_products(floats sums[PARTS], const float *left, const float *right, int64_t count) {
    float lefts[LANES] = {0}, rights[LANES] = {0};
    memcpy(lefts, left, count * sizeof *left);
    memcpy(rights, right, count * sizeof *right);
    add_products(sums, lefts, rights);
}

/* Products of `count` rows [size] with one vector [size]. */
INLINE void multiply_rows_together(const float *const *rows, int count, const float *vector, int64_t size,
                                   float *products) {
    floats sums[ROWS_TOGETHER][PARTS] = {0};
    int64_t whole = size - size % LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int row = 0; row < count; row++) add_products(sums[row], rows[row] + i, vector + i);
    for (int row = 0; row < count; row++) {
        if (whole < size) add_last_products(sums[row], rows[row] + whole, vector + whole, size - whole);
        products[row] = add_lanes(sums[row]);
    }
}

INLINE float dot(const float *left, const float *right, int64_t size) {
    float product;
    multiply_rows_together(&left, 1, right, size, &product);
    return product;
}

#endif
