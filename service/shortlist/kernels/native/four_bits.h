/* Products of weights of 4 bits and levels of a byte, for sixteen classes side by side.
 *
 * A line of a block holds eight columns of sixteen classes: the low halves of its bytes the first four columns, the high
 * halves the next four. Up to FOUR_BIT_ROWS contexts share the work of taking the halves apart. Sums are exact.
 */
#ifndef SHORTLIST_FOUR_BITS_H
#define SHORTLIST_FOUR_BITS_H

#include "vectors.h"

enum {
    FOUR_BIT_ROWS = 4,
    FOUR_BIT_COLUMNS = 8,  /* of a line */
    FOUR_BIT_MAX = 15,     /* a stored weight u is 2 u - 15 halves of a step; also the mask of its bits */
    FOUR_BIT_LINES = 4,    /* whose sums fit into 16 bits: each adds at most 4 * 15 * 127 */
    FOUR_BIT_PREFETCH_BYTES = 2048, /* how far ahead: the processor by itself does not look beyond a page */
};

#if defined(__AVX512VNNI__)

INLINE void multiply_four_bit_rows(const uint8_t *block, const int8_t *const *levels, int rows, int64_t lines,
                                   int32_t (*sums)[LANES]) {
    __m512i low_totals[FOUR_BIT_ROWS] = {0}, high_totals[FOUR_BIT_ROWS] = {0}, mask = _mm512_set1_epi8(FOUR_BIT_MAX);
    for (int64_t i = 0; i < lines; i++) {
        __m512i line = _mm512_loadu_si512(block + LINE_BYTES * i), low = _mm512_and_si512(line, mask);
        __builtin_prefetch(block + LINE_BYTES * i + FOUR_BIT_PREFETCH_BYTES, 0, 3);
        __m512i high = _mm512_and_si512(_mm512_srli_epi16(line, 4), mask);
        for (int row = 0; row < rows; row++) {
            const int8_t *context = levels[row] + FOUR_BIT_COLUMNS * i;
            low_totals[row] = _mm512_dpbusd_epi32(low_totals[row], low, repeat_levels(context));
            high_totals[row] = _mm512_dpbusd_epi32(high_totals[row], high, repeat_levels(context + LANE_BYTES));
        }
    }
    for (int row = 0; row < rows; row++)
        _mm512_storeu_si512(sums[row], _mm512_add_epi32(low_totals[row], high_totals[row]));
}

#elif defined(__AVX2__)

/* Adds the products of a line, of eight classes in each half, to sums in 16 bits. */
INLINE void add_four_bit_line(const uint8_t *line, const int8_t *const *levels, int64_t place, int rows,
                              __m256i (*totals)[HALVES]) {
    __m256i mask = _mm256_set1_epi8(FOUR_BIT_MAX), low[HALVES], high[HALVES];
    __builtin_prefetch(line + FOUR_BIT_PREFETCH_BYTES, 0, 3);
    for (int half = 0; half < HALVES; half++) {
        __m256i weights = load_half(line + VECTOR_BYTES * half);
        low[half] = _mm256_and_si256(weights, mask), high[half] = _mm256_and_si256(_mm256_srli_epi16(weights, 4), mask);
    }
    for (int row = 0; row < rows; row++) {
        __m256i first = repeat_levels(levels[row] + place), last = repeat_levels(levels[row] + place + LANE_BYTES);
        for (int half = 0; half < HALVES; half++) {
            totals[row][half] = _mm256_add_epi16(totals[row][half], _mm256_maddubs_epi16(low[half], first));
            totals[row][half] = _mm256_add_epi16(totals[row][half], _mm256_maddubs_epi16(high[half], last));
        }
    }
}

INLINE void widen_sums(__m256i (*totals)[HALVES], __m256i (*some)[HALVES], int rows) {
    for (int row = 0; row < rows; row++)
        for (int half = 0; half < HALVES; half++) {
            __m256i wide = _mm256_madd_epi16(some[row][half], _mm256_set1_epi16(1));
            totals[row][half] = _mm256_add_epi32(totals[row][half], wide);
        }
}

INLINE void multiply_four_bit_rows(const uint8_t *block, const int8_t *const *levels, int rows, int64_t lines,
                                   int32_t (*sums)[LANES]) {
    __m256i totals[FOUR_BIT_ROWS][HALVES] = {0};
    int64_t i = 0;
    for (; i + FOUR_BIT_LINES <= lines; i += FOUR_BIT_LINES) {
        __m256i some[FOUR_BIT_ROWS][HALVES] = {0};
        for (int64_t j = i; j < i + FOUR_BIT_LINES; j++) add_four_bit_line(block + LINE_BYTES * j, levels, FOUR_BIT_COLUMNS * j, rows, some);
        widen_sums(totals, some, rows);
    }
    if (i < lines) {
        __m256i some[FOUR_BIT_ROWS][HALVES] = {0};
        for (; i < lines; i++) add_four_bit_line(block + LINE_BYTES * i, levels, FOUR_BIT_COLUMNS * i, rows, some);
        widen_sums(totals, some, rows);
    }
    for (int row = 0; row < rows; row++)
        for (int half = 0; half < HALVES; half++)
            _mm256_storeu_si256((__m256i *)sums[row] + half, totals[row][half]);
}

#elif defined(__ARM_FEATURE_DOTPROD)

INLINE void multiply_four_bit_row(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums) {
    int32x4_t totals[PARTS];
    for (int part = 0; part < PARTS; part++) totals[part] = vdupq_n_s32(0);
    for (int64_t i = 0; i < lines; i++) {
        int8x16_t low = repeat_levels(levels + FOUR_BIT_COLUMNS * i);
        int8x16_t high = repeat_levels(levels + FOUR_BIT_COLUMNS * i + LANE_BYTES);
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

/* Adds the products of one half of each byte of a line to sums in 16 bits. */
INLINE void add_four_bit_part(const uint8_t *line, const int8_t *levels, int place, shorts *totals) {
    halfwords context = repeat_levels(levels);
    shorts even = widen_even(context), odd = widen_odd(context);
    for (int part = 0; part < PARTS; part++) {
        halfwords weights = load_bytes(line + VECTOR_BYTES * part) >> place;
        totals[part] += (shorts)(weights & FOUR_BIT_MAX) * even + (shorts)(weights >> 8 & FOUR_BIT_MAX) * odd;
    }
}

INLINE void multiply_four_bit_row(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums) {
    ints totals[PARTS] = {0};
    for (int64_t first = 0; first < lines; first += FOUR_BIT_LINES) {
        shorts some[PARTS] = {0};
        int64_t last = first + FOUR_BIT_LINES < lines ? first + FOUR_BIT_LINES : lines;
        for (int64_t i = first; i < last; i++) {
            add_four_bit_part(block + LINE_BYTES * i, levels + FOUR_BIT_COLUMNS * i, 0, some);
            add_four_bit_part(block + LINE_BYTES * i, levels + FOUR_BIT_COLUMNS * i + LANE_BYTES, 4, some);
        }
        for (int part = 0; part < PARTS; part++) totals[part] += add_neighbours(some[part]);
    }
    memcpy(sums, totals, sizeof totals);
}

#endif

#if !defined(__AVX512VNNI__) && !defined(__AVX2__)
INLINE void multiply_four_bit_rows(const uint8_t *block, const int8_t *const *levels, int rows, int64_t lines,
                                   int32_t (*sums)[LANES]) {
    for (int row = 0; row < rows; row++) multiply_four_bit_row(block, levels[row], lines, sums[row]);
}
#endif

/* Sums [rows, LANES] of one block over levels [rows, 8 lines]; rows: 1 to FOUR_BIT_ROWS. */
INLINE void multiply_four_bit_block(const uint8_t *block, const int8_t *const *levels, int rows, int64_t lines,
                                    int32_t (*sums)[LANES]) {
    switch (rows) { /* each with its sums in registers */
        case 1: multiply_four_bit_rows(block, levels, 1, lines, sums); break;
        case 2: multiply_four_bit_rows(block, levels, 2, lines, sums); break;
        case 3: multiply_four_bit_rows(block, levels, 3, lines, sums); break;
        default: multiply_four_bit_rows(block, levels, FOUR_BIT_ROWS, lines, sums);
    }
}

#endif
