/* Products of float32 blocks, [columns, LANES] of sixteen rows each, with one to four vectors at once.
 *
 * A row has a lane of its own, so that its sum runs in one order on every target, however many blocks and vectors are
 * multiplied together: sums over SUM_COLUMNS columns, each from the first column on, are added one after the other.
 */
#ifndef SHORTLIST_FLOAT_BLOCKS_H
#define SHORTLIST_FLOAT_BLOCKS_H

#include "primitives/vectors.h"

enum {
    SUM_COLUMNS = 32,                           /* added in one run: shorter runs round less */
    VECTORS_TOGETHER = 4,                       /* at most, for each of which a block need not be read again */
    BLOCKS_TOGETHER = 4,                        /* at most */
    SUMS_TOGETHER = VECTOR_BYTES > 32 ? 16 : 8, /* vectors of sums that fit the registers beside what is multiplied */
};

/* Products [blocks][count][LANES] of `blocks` blocks and `count` vectors; stride: from vector to vector. */
INLINE void multiply_tile(const float *block, int blocks, int64_t columns, const float *vectors, int64_t stride,
                          int count, float *products) {
    floats totals[BLOCKS_TOGETHER][VECTORS_TOGETHER][PARTS] = {0};
    for (int64_t first = 0; first < columns; first += SUM_COLUMNS) {
        int64_t last = first + SUM_COLUMNS < columns ? first + SUM_COLUMNS : columns;
        floats sums[BLOCKS_TOGETHER][VECTORS_TOGETHER][PARTS] = {0};
        for (int64_t i = first; i < last; i++)
            for (int b = 0; b < blocks; b++)
                for (int part = 0; part < (int)PARTS; part++) {
                    floats weights = load_floats(block + LANES * (b * columns + i) + WIDTH * part);
                    for (int v = 0; v < count; v++) sums[b][v][part] += weights * vectors[stride * v + i];
                }
        for (int b = 0; b < blocks; b++)
            for (int v = 0; v < count; v++)
                for (int part = 0; part < (int)PARTS; part++) totals[b][v][part] += sums[b][v][part];
    }
    for (int b = 0; b < blocks; b++)
        for (int v = 0; v < count; v++)
            for (int part = 0; part < (int)PARTS; part++)
                store_floats(products + LANES * (count * b + v) + WIDTH * part, totals[b][v][part]);
}

/* How many blocks are multiplied together with `count` vectors. */
INLINE int count_blocks_together(int count) {
    int blocks = SUMS_TOGETHER / (PARTS * count);
    return blocks < 1 ? 1 : blocks < BLOCKS_TOGETHER ? blocks : BLOCKS_TOGETHER;
}

INLINE void multiply_some_blocks(const float *weights, int64_t blocks, int64_t columns, const float *vectors,
                                 int64_t stride, int count, int64_t step, float *products) {
    const int together = count_blocks_together(count);
    int64_t b = 0;
    float tile[BLOCKS_TOGETHER * VECTORS_TOGETHER * LANES];
    for (; b + together <= blocks; b += together) {
        multiply_tile(weights + LANES * columns * b, together, columns, vectors, stride, count, tile);
        for (int i = 0; i < together; i++)
            memcpy(products + step * (b + i), tile + LANES * count * i, LANES * count * sizeof *tile);
    }
    for (; b < blocks; b++)
        multiply_tile(weights + LANES * columns * b, 1, columns, vectors, stride, count, products + step * b);
}

/* Writes the products [blocks, count, LANES] of weights [blocks, columns, LANES] with `count` vectors [columns], which
 * begin `stride` numbers from one another. */
static void multiply_float_blocks(const float *weights, int64_t blocks, int64_t columns, const float *vectors,
                                  int64_t stride, int64_t count, float *products) {
    const int64_t step = LANES * count;
    for (int64_t v = 0; v < count; v += VECTORS_TOGETHER) {
        const float *some = vectors + stride * v;
        float *place = products + LANES * v;
        switch (count - v) { /* constants, so that sums stay in registers */
        case 1: multiply_some_blocks(weights, blocks, columns, some, stride, 1, step, place); break;
        case 2: multiply_some_blocks(weights, blocks, columns, some, stride, 2, step, place); break;
        case 3: multiply_some_blocks(weights, blocks, columns, some, stride, 3, step, place); break;
        default: multiply_some_blocks(weights, blocks, columns, some, stride, 4, step, place); break;
        }
    }
}

#endif
