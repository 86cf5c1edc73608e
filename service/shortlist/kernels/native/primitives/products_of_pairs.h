/* Products of bytes where no instruction takes them, by 16-bit numbers in vectors of sixteen bytes.
 *
 * Bytes are split into even and odd ones, widened to 16 bits. The lower byte of a number comes first in memory, as on
 * every processor that this runs on.
 */
#ifndef SHORTLIST_PRODUCTS_OF_PAIRS_H
#define SHORTLIST_PRODUCTS_OF_PAIRS_H

#include "primitives/vectors.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    TWO_BIT_LINES = 8, /* whose sums fit into 16 bits: each adds at most 4 * 2 * 3 * 127 */
};

typedef int16_t shorts __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t halfwords __attribute__((vector_size(VECTOR_BYTES)));

INLINE halfwords load_bytes(const void *bytes) {
    halfwords vector;
    memcpy(&vector, bytes, sizeof vector);
    return vector;
}

INLINE halfwords repeat_levels(const int8_t *levels) {
    uint32_t word;
    memcpy(&word, levels, sizeof word);
    return (halfwords)((words){0} + word);
}

INLINE shorts widen_even(halfwords bytes) { return (shorts)(bytes << 8) >> 8; }

INLINE shorts widen_odd(halfwords bytes) { return (shorts)bytes >> 8; }

/* Sums of neighbouring numbers, in 32 bits. */
INLINE ints add_neighbours(shorts numbers) { return ((ints)numbers >> 16) + ((ints)((words)numbers << 16) >> 16); }

/* Sums of products of neighbouring numbers, in 32 bits; each product fits into 16. */
INLINE ints multiply_neighbours(shorts left, shorts right) {
#if defined(__SSE2__) /* the one instruction for this, which every x86-64 processor has */
    return (ints)_mm_madd_epi16((__m128i)left, (__m128i)right);
#else
    return add_neighbours(left * right);
#endif
}

/* Four products for each lane, of weights and of levels split into even and odd ones. */
INLINE ints multiply_bytes(halfwords weights, shorts even, shorts odd) {
    return multiply_neighbours((shorts)(weights & 0xff), even) + multiply_neighbours((shorts)(weights >> 8), odd);
}

INLINE void multiply_block(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums) {
    ints totals[PARTS] = {0};
    for (int64_t i = 0; i < lines; i++) {
        halfwords context = repeat_levels(levels + LANE_BYTES * i);
        shorts even = widen_even(context), odd = widen_odd(context);
        for (int part = 0; part < PARTS; part++)
            totals[part] += multiply_bytes(load_bytes(block + LINE_BYTES * i + VECTOR_BYTES * part), even, odd);
    }
    memcpy(sums, totals, sizeof totals);
}

/* Each weight is split once for both digits. */
INLINE void multiply_block_by_digits(const uint8_t *block, const int8_t *coarse, const int8_t *fine, int64_t lines,
                                     int32_t *coarse_sums, int32_t *fine_sums) {
    ints coarse_totals[PARTS] = {0}, fine_totals[PARTS] = {0};
    for (int64_t i = 0; i < lines; i++) {
        halfwords coarse_digits = repeat_levels(coarse + LANE_BYTES * i);
        halfwords fine_digits = repeat_levels(fine + LANE_BYTES * i);
        shorts coarse_even = widen_even(coarse_digits), coarse_odd = widen_odd(coarse_digits);
        shorts fine_even = widen_even(fine_digits), fine_odd = widen_odd(fine_digits);
        for (int part = 0; part < PARTS; part++) {
            halfwords weights = load_bytes(block + LINE_BYTES * i + VECTOR_BYTES * part);
            coarse_totals[part] += multiply_bytes(weights, coarse_even, coarse_odd);
            fine_totals[part] += multiply_bytes(weights, fine_even, fine_odd);
        }
    }
    memcpy(coarse_sums, coarse_totals, sizeof coarse_totals);
    memcpy(fine_sums, fine_totals, sizeof fine_totals);
}

/* Adds one part of a line, some bits of each byte from `place` on, to sums in 16 bits. mask: of so many bits. */
INLINE void add_part(const uint8_t *line, const int8_t *levels, int place, int16_t mask, shorts *totals) {
    halfwords context = repeat_levels(levels);
    shorts even = widen_even(context), odd = widen_odd(context);
    for (int part = 0; part < PARTS; part++) {
        halfwords weights = load_bytes(line + VECTOR_BYTES * part) >> place;
        totals[part] += (shorts)(weights & mask) * even + (shorts)(weights >> 8 & mask) * odd;
    }
}

INLINE void multiply_two_bit_block(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums) {
    ints totals[PARTS] = {0};
    for (int64_t first = 0; first < lines; first += TWO_BIT_LINES) {
        shorts some[PARTS] = {0};
        int64_t last = first + TWO_BIT_LINES < lines ? first + TWO_BIT_LINES : lines;
        for (int64_t i = WEIGHTS_PER_BYTE * first; i < WEIGHTS_PER_BYTE * last; i++)
            add_part(block + LINE_BYTES * (i / WEIGHTS_PER_BYTE), levels + LANE_BYTES * i, 2 * (i % WEIGHTS_PER_BYTE),
                     TWO_BIT_MAX, some);
        for (int part = 0; part < PARTS; part++) totals[part] += add_neighbours(some[part]);
    }
    memcpy(sums, totals, sizeof totals);
}

INLINE int32_t multiply_row(const uint8_t *row, const int8_t *levels, int64_t lines) {
    ints total = {0};
    int32_t lanes[WIDTH], sum = 0;
    for (int64_t i = 0; i < LINE_BYTES * lines; i += VECTOR_BYTES) {
        halfwords context = load_bytes(levels + i);
        total += multiply_bytes(load_bytes(row + i), widen_even(context), widen_odd(context));
    }
    memcpy(lanes, &total, sizeof lanes);
    for (int i = 0; i < (int)WIDTH; i++) sum += lanes[i];
    return sum;
}

INLINE void multiply_row_by_digits(const uint8_t *row, const int8_t *coarse, const int8_t *fine, int64_t lines,
                                   int32_t *sums) {
    sums[0] = multiply_row(row, coarse, lines);
    sums[1] = multiply_row(row, fine, lines);
}

/* Without a branch, since that would be guessed wrong too often. */
INLINE int64_t select_block(const float *scores, float threshold, int32_t start, int32_t *positions) {
    int64_t count = 0;
    for (int32_t i = 0; i < LANES; i++) {
        positions[count] = start + i;
        count += scores[i] >= threshold;
    }
    return count;
}

#endif
