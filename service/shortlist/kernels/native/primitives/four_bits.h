/* Products of weights of 4 bits and levels of a byte, for sixteen classes side by side.
 *
 * A line of a block holds eight columns of sixteen classes: the low halves of its bytes the first four columns, the
 * high halves the next four. Up to FOUR_BIT_ROWS contexts share the work of taking the halves apart, as many as there
 * are registers for their sums. Their levels are spread before, [2 lines, rows, SPREAD_BYTES]: four of a row, for one
 * half of a line, as often as an instruction wants them, so that it reads them where they lie. Sums are exact.
 */
#ifndef SHORTLIST_FOUR_BITS_H
#define SHORTLIST_FOUR_BITS_H

#include "primitives/vectors.h"

enum {
#if VECTOR_BYTES == 64
    FOUR_BIT_ROWS = 16,
#else
    FOUR_BIT_ROWS = 4,
#endif
    FOUR_BIT_COLUMNS = 8,  /* of a line */
    FOUR_BIT_MAX = 15,     /* a stored weight u is 2 u - 15 halves of a step; also the mask of its bits */
    FOUR_BIT_LINES = 4,    /* whose sums fit into 16 bits: each adds at most 4 * 15 * 127 */
    FOUR_BIT_PREFETCH_BYTES = 2048, /* how far ahead: the processor by itself does not look beyond a page */
#if VECTOR_BYTES == 32
    SPREAD_BYTES = VECTOR_BYTES,
#else
    SPREAD_BYTES = LANE_BYTES, /* repeated by the instruction that loads them */
#endif
};

/* How many bytes the spread levels of `rows` contexts take. */
INLINE int64_t measure_spread(int64_t rows, int64_t lines) { return 2 * lines * rows * SPREAD_BYTES; }

/* Spreads the levels [8 lines] of one of `rows` contexts. spread: of all of them. */
INLINE void spread_levels(const int8_t *levels, int64_t row, int64_t rows, int64_t lines, int8_t *spread) {
    for (int64_t i = 0; i < 2 * lines; i++)
        for (int64_t start = 0; start < SPREAD_BYTES; start += LANE_BYTES)
            memcpy(spread + (i * rows + row) * SPREAD_BYTES + start, levels + LANE_BYTES * i, LANE_BYTES);
}

#if VECTOR_BYTES == 64

/* Sums of the first `count` of `rows` contexts; count: a constant, so that the sums are in registers. */
INLINE void multiply_some_rows(const uint8_t *block, const int8_t *spread, int count, int64_t rows, int64_t lines,
                               int32_t (*sums)[LANES]) {
    __m512i totals[FOUR_BIT_ROWS], mask = _mm512_set1_epi8(FOUR_BIT_MAX);
#pragma GCC unroll 16
    for (int row = 0; row < count; row++) totals[row] = _mm512_setzero_si512();
    for (int64_t i = 0; i < lines; i++) {
        __m512i line = _mm512_loadu_si512(block + LINE_BYTES * i), low = _mm512_and_si512(line, mask);
        __m512i high = _mm512_and_si512(_mm512_srli_epi16(line, 4), mask);
        const int8_t *first = spread + SPREAD_BYTES * 2 * rows * i, *last = first + SPREAD_BYTES * rows;
        __builtin_prefetch(block + LINE_BYTES * i + FOUR_BIT_PREFETCH_BYTES, 0, 3);
#pragma GCC unroll 16
        for (int row = 0; row < count; row++)
            totals[row] = _mm512_dpbusd_epi32(totals[row], low, repeat_levels(first + SPREAD_BYTES * row));
#pragma GCC unroll 16
        for (int row = 0; row < count; row++)
            totals[row] = _mm512_dpbusd_epi32(totals[row], high, repeat_levels(last + SPREAD_BYTES * row));
    }
#pragma GCC unroll 16
    for (int row = 0; row < count; row++) _mm512_storeu_si512(sums[row], totals[row]);
}

#elif VECTOR_BYTES == 32

/* Hides from the compiler what a value comes from: it may neither reorder a chain of sums, of which it would keep all
 * terms on the stack, nor keep levels for the other half of a line. */
#define HIDE(value, kind) __asm__("" : "+" kind(value))

/* Adds the products of half a line, of eight classes, to sums in 16 bits; begins: these are the first. */
INLINE void add_half_line(const uint8_t *half_line, const int8_t *spread, int rows, int begins, __m256i *some) {
    __m256i mask = _mm256_set1_epi8(FOUR_BIT_MAX), weights = load_half(half_line);
    __m256i low = _mm256_and_si256(weights, mask), high = _mm256_and_si256(_mm256_srli_epi16(weights, 4), mask);
    for (int row = 0; row < rows; row++) {
        __m256i first = _mm256_maddubs_epi16(low, load_half(spread + SPREAD_BYTES * row));
        __m256i last = _mm256_maddubs_epi16(high, load_half(spread + SPREAD_BYTES * (rows + row)));
        some[row] = _mm256_add_epi16(begins ? first : _mm256_add_epi16(some[row], first), last);
        HIDE(some[row], "x");
    }
}

/* Adds the products of 1 to FOUR_BIT_LINES lines to sums in 32 bits. */
INLINE void add_four_bit_lines(const uint8_t *first_line, int64_t count, const int8_t *spread, int rows,
                               __m256i (*totals)[HALVES]) {
    for (int half = 0; half < HALVES; half++) {
        __m256i some[FOUR_BIT_ROWS];
        HIDE(spread, "r");
        for (int64_t i = 0; i < count; i++)
            add_half_line(first_line + LINE_BYTES * i + VECTOR_BYTES * half, spread + measure_spread(rows, i), rows, !i,
                          some);
        for (int row = 0; row < rows; row++) {
            __m256i wide = _mm256_madd_epi16(some[row], _mm256_set1_epi16(1));
            totals[row][half] = _mm256_add_epi32(totals[row][half], wide);
        }
    }
    prefetch_bytes(first_line + FOUR_BIT_PREFETCH_BYTES, LINE_BYTES * count);
}

INLINE void multiply_four_bit_rows(const uint8_t *block, const int8_t *spread, int rows, int64_t lines,
                                   int32_t (*sums)[LANES]) {
    __m256i totals[FOUR_BIT_ROWS][HALVES] = {0};
    int64_t i = 0;
    for (; i + FOUR_BIT_LINES <= lines; i += FOUR_BIT_LINES)
        add_four_bit_lines(block + LINE_BYTES * i, FOUR_BIT_LINES, spread + measure_spread(rows, i), rows, totals);
    if (i < lines)
        add_four_bit_lines(block + LINE_BYTES * i, lines - i, spread + measure_spread(rows, i), rows, totals);
    for (int row = 0; row < rows; row++)
        for (int half = 0; half < HALVES; half++)
            _mm256_storeu_si256((__m256i *)sums[row] + half, totals[row][half]);
}

#elif defined(HAS_DOT_PRODUCTS)

/* Sums of one context, whose levels are `step` bytes apart from another. */
INLINE void multiply_four_bit_row(const uint8_t *block, const int8_t *levels, int64_t step, int64_t lines,
                                  int32_t *sums) {
    int32x4_t totals[PARTS];
    for (int part = 0; part < PARTS; part++) totals[part] = vdupq_n_s32(0);
    for (int64_t i = 0; i < lines; i++) {
        int8x16_t low = repeat_levels(levels + 2 * i * step), high = repeat_levels(levels + (2 * i + 1) * step);
        for (int part = 0; part < PARTS; part++) {
            uint8x16_t weights = vld1q_u8(block + LINE_BYTES * i + VECTOR_BYTES * part);
            uint8x16_t low_weights = vandq_u8(weights, vdupq_n_u8(FOUR_BIT_MAX)), high_weights = vshrq_n_u8(weights, 4);
            totals[part] = vdotq_s32(totals[part], vreinterpretq_s8_u8(low_weights), low);
            totals[part] = vdotq_s32(totals[part], vreinterpretq_s8_u8(high_weights), high);
        }
    }
    for (int part = 0; part < PARTS; part++) vst1q_s32(sums + WIDTH * part, totals[part]);
}

#else

#include "primitives/products_of_pairs.h"

/* Sums of one context, whose levels are `step` bytes apart from another. */
INLINE void multiply_four_bit_row(const uint8_t *block, const int8_t *levels, int64_t step, int64_t lines,
                                  int32_t *sums) {
    ints totals[PARTS] = {0};
    for (int64_t first = 0; first < lines; first += FOUR_BIT_LINES) {
        shorts some[PARTS] = {0};
        int64_t last = first + FOUR_BIT_LINES < lines ? first + FOUR_BIT_LINES : lines;
        for (int64_t i = first; i < last; i++) {
            add_part(block + LINE_BYTES * i, levels + 2 * i * step, 0, FOUR_BIT_MAX, some);
            add_part(block + LINE_BYTES * i, levels + (2 * i + 1) * step, 4, FOUR_BIT_MAX, some);
        }
        for (int part = 0; part < PARTS; part++) totals[part] += add_neighbours(some[part]);
    }
    memcpy(sums, totals, sizeof totals);
}

#endif

#if VECTOR_BYTES == 16
INLINE void multiply_four_bit_rows(const uint8_t *block, const int8_t *spread, int rows, int64_t lines,
                                   int32_t (*sums)[LANES]) {
    for (int row = 0; row < rows; row++)
        multiply_four_bit_row(block, spread + SPREAD_BYTES * row, SPREAD_BYTES * rows, lines, sums[row]);
}
#endif

/* Sums [rows, LANES] of one block over spread levels; rows: 1 to FOUR_BIT_ROWS. */
INLINE void multiply_four_bit_block(const uint8_t *block, const int8_t *spread, int rows, int64_t lines,
                                    int32_t (*sums)[LANES]) {
#if VECTOR_BYTES == 64
    int row = 0;
    if (rows == FOUR_BIT_ROWS) {
        multiply_some_rows(block, spread, FOUR_BIT_ROWS, rows, lines, sums);
        return;
    }
    for (; row + 4 <= rows; row += 4)
        multiply_some_rows(block, spread + SPREAD_BYTES * row, 4, rows, lines, sums + row);
    spread += SPREAD_BYTES * row, sums += row;
    switch (rows - row) {
        case 1: multiply_some_rows(block, spread, 1, rows, lines, sums); break;
        case 2: multiply_some_rows(block, spread, 2, rows, lines, sums); break;
        case 3: multiply_some_rows(block, spread, 3, rows, lines, sums); break;
    }
#else
    switch (rows) { /* each with its sums in registers */
        case 1: multiply_four_bit_rows(block, spread, 1, lines, sums); break;
        case 2: multiply_four_bit_rows(block, spread, 2, lines, sums); break;
        case 3: multiply_four_bit_rows(block, spread, 3, lines, sums); break;
        default: multiply_four_bit_rows(block, spread, FOUR_BIT_ROWS, lines, sums);
    }
#endif
}

#endif
