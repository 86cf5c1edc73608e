/* AVX2: nearly every x86-64 processor since 2013.
 *
 * VPMADDUBSW multiplies unsigned bytes by signed ones and adds neighbours in 16 bits, where it saturates. Digits are at
 * most 64 in size and 2-bit weights at most 3, so their sums fit; other levels are widened to 16 bits first.
 */
#define TARGET "avx2"
#define KERNELS kernels_avx2
#define KERNEL_PARTS kernel_parts_avx2
#include "targets/halves.h"

enum {
    TWO_BIT_LINES = 4, /* whose sums fit into 16 bits: each adds at most 2 * 2 * 12 * 127 to the upper ones */
};

/* Sums of four products for each of eight lanes, of weights and of any levels. */
INLINE __m256i multiply_wide(__m256i weights, __m256i levels) {
    __m256i low = _mm256_set1_epi16(0xff);
    __m256i even_levels = _mm256_srai_epi16(_mm256_slli_epi16(levels, 8), 8);
    __m256i even = _mm256_madd_epi16(_mm256_and_si256(weights, low), even_levels);
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(weights, 8), _mm256_srai_epi16(levels, 8));
    return _mm256_add_epi32(even, odd);
}

/* The same for levels of at most 64 in size. */
INLINE __m256i multiply_digits(__m256i weights, __m256i digits) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(weights, digits), _mm256_set1_epi16(1));
}

INLINE void multiply_block(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums) {
    __m256i totals[HALVES] = {0};
    for (int64_t i = 0; i < lines; i++) {
        __m256i context = repeat_levels(levels + LANE_BYTES * i);
        for (int half = 0; half < HALVES; half++) {
            __m256i weights = load_half(block + LINE_BYTES * i + VECTOR_BYTES * half);
            totals[half] = _mm256_add_epi32(totals[half], multiply_wide(weights, context));
        }
    }
    store_halves(sums, totals);
}

INLINE void multiply_block_by_digits(const uint8_t *block, const int8_t *coarse, const int8_t *fine, int64_t lines,
                                     int32_t *coarse_sums, int32_t *fine_sums) {
    __m256i coarse_totals[HALVES] = {0}, fine_totals[HALVES] = {0};
    for (int64_t i = 0; i < lines; i++) {
        __m256i coarse_digits = repeat_levels(coarse + LANE_BYTES * i);
        __m256i fine_digits = repeat_levels(fine + LANE_BYTES * i);
        for (int half = 0; half < HALVES; half++) {
            __m256i weights = load_half(block + LINE_BYTES * i + VECTOR_BYTES * half);
            coarse_totals[half] = _mm256_add_epi32(coarse_totals[half], multiply_digits(weights, coarse_digits));
            fine_totals[half] = _mm256_add_epi32(fine_totals[half], multiply_digits(weights, fine_digits));
        }
    }
    store_halves(coarse_sums, coarse_totals);
    store_halves(fine_sums, fine_totals);
}

/* Adds a line's products to sums in 16 bits, of each byte's upper weights of a pair to those of `upper`, four times as
 * large: so weights are shifted once for two parts. */
INLINE void add_two_bit_line(const uint8_t *line, const int8_t *levels, __m256i *lower, __m256i *upper) {
    __m256i mask = _mm256_set1_epi8(TWO_BIT_MAX), upper_mask = _mm256_set1_epi8(TWO_BIT_MAX << 2);
    for (int pair = 0; pair < WEIGHTS_PER_BYTE; pair += 2) {
        __m256i context = repeat_levels(levels + LANE_BYTES * pair);
        __m256i upper_context = repeat_levels(levels + LANE_BYTES * (pair + 1));
        for (int half = 0; half < HALVES; half++) {
            __m256i weights = _mm256_srli_epi16(load_half(line + VECTOR_BYTES * half), 2 * pair);
            __m256i products = _mm256_maddubs_epi16(_mm256_and_si256(weights, mask), context);
            __m256i upper_products = _mm256_maddubs_epi16(_mm256_and_si256(weights, upper_mask), upper_context);
            lower[half] = _mm256_add_epi16(lower[half], products);
            upper[half] = _mm256_add_epi16(upper[half], upper_products);
        }
    }
}

INLINE void multiply_two_bit_block(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums) {
    __m256i totals[HALVES] = {0};
    for (int64_t first = 0; first < lines; first += TWO_BIT_LINES) {
        __m256i lower[HALVES] = {0}, upper[HALVES] = {0};
        int64_t last = first + TWO_BIT_LINES < lines ? first + TWO_BIT_LINES : lines;
        for (int64_t i = first; i < last; i++)
            add_two_bit_line(block + LINE_BYTES * i, levels + LANE_BYTES * WEIGHTS_PER_BYTE * i, lower, upper);
        for (int half = 0; half < HALVES; half++) {
            __m256i some = _mm256_add_epi16(lower[half], _mm256_srai_epi16(upper[half], 2));
            totals[half] = _mm256_add_epi32(totals[half], _mm256_madd_epi16(some, _mm256_set1_epi16(1)));
        }
    }
    store_halves(sums, totals);
}

INLINE int32_t multiply_row(const uint8_t *row, const int8_t *levels, int64_t lines) {
    __m256i totals[HALVES] = {0};
    for (int64_t i = 0; i < HALVES * lines; i += HALVES)
        for (int half = 0; half < HALVES; half++) {
            __m256i weights = load_half(row + VECTOR_BYTES * (i + half));
            __m256i context = load_half(levels + VECTOR_BYTES * (i + half));
            totals[half] = _mm256_add_epi32(totals[half], multiply_wide(weights, context));
        }
    return add_lanes_of(_mm256_add_epi32(totals[0], totals[1]));
}

INLINE void multiply_row_by_digits(const uint8_t *row, const int8_t *coarse, const int8_t *fine, int64_t lines,
                                   int32_t *sums) {
    __m256i totals[2] = {0};
    for (int64_t i = 0; i < HALVES * lines; i++) {
        __m256i weights = load_half(row + VECTOR_BYTES * i);
        totals[0] = _mm256_add_epi32(totals[0], multiply_digits(weights, load_half(coarse + VECTOR_BYTES * i)));
        totals[1] = _mm256_add_epi32(totals[1], multiply_digits(weights, load_half(fine + VECTOR_BYTES * i)));
    }
    sums[0] = add_lanes_of(totals[0]);
    sums[1] = add_lanes_of(totals[1]);
}

#include "targets/loops.h"
