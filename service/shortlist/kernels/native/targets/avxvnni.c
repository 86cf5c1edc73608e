/* AVX-VNNI: Intel's desktop and laptop processors since 2021, its servers since 2023, AMD's since 2024.
 *
 * VPDPBUSD as of AVX-512 VNNI, on vectors of 32 bytes: four products a lane are added to 32 bits and never saturate.
 */
#define TARGET "avxvnni"
#define KERNELS kernels_avxvnni
#define KERNEL_PARTS kernel_parts_avxvnni
#include "targets/halves.h"

enum { CHAINS = 2 }; /* independent sums of each half: an instruction that adds to the last one's sum waits for it */

/* Adds four products of weights and levels to each of eight sums. */
INLINE __m256i add_bytes(__m256i sums, __m256i weights, __m256i levels) {
    return _mm256_dpbusd_avx_epi32(sums, weights, levels);
}

INLINE void add_line(const uint8_t *line, __m256i levels, __m256i *totals) {
    for (int half = 0; half < HALVES; half++)
        totals[half] = add_bytes(totals[half], load_half(line + VECTOR_BYTES * half), levels);
}

/* The same for a line of one row, whose levels differ from lane to lane. */
INLINE void add_row_line(const uint8_t *line, const int8_t *levels, __m256i *totals) {
    for (int half = 0; half < HALVES; half++) {
        const int at = VECTOR_BYTES * half;
        totals[half] = add_bytes(totals[half], load_half(line + at), load_half(levels + at));
    }
}

INLINE void add_totals(__m256i *totals, const __m256i *others) {
    for (int half = 0; half < HALVES; half++) totals[half] = _mm256_add_epi32(totals[half], others[half]);
}

INLINE void multiply_block(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums) {
    __m256i chains[CHAINS][HALVES] = {{{0}}};
    int64_t i = 0;
    for (; i + CHAINS <= lines; i += CHAINS)
        for (int c = 0; c < CHAINS; c++)
            add_line(block + LINE_BYTES * (i + c), repeat_levels(levels + LANE_BYTES * (i + c)), chains[c]);
    if (i < lines) add_line(block + LINE_BYTES * i, repeat_levels(levels + LANE_BYTES * i), chains[0]);
    add_totals(chains[0], chains[1]);
    store_halves(sums, chains[0]);
}

INLINE void multiply_block_by_digits(const uint8_t *block, const int8_t *coarse, const int8_t *fine, int64_t lines,
                                     int32_t *coarse_sums, int32_t *fine_sums) {
    __m256i coarse_totals[HALVES] = {0}, fine_totals[HALVES] = {0};
    for (int64_t i = 0; i < lines; i++) {
        add_line(block + LINE_BYTES * i, repeat_levels(coarse + LANE_BYTES * i), coarse_totals);
        add_line(block + LINE_BYTES * i, repeat_levels(fine + LANE_BYTES * i), fine_totals);
    }
    store_halves(coarse_sums, coarse_totals);
    store_halves(fine_sums, fine_totals);
}

/* Adds a line's products, those of each two bits to sums of their own. */
INLINE void add_two_bit_line(const uint8_t *line, const int8_t *levels, __m256i parts[][HALVES]) {
    for (int part = 0; part < WEIGHTS_PER_BYTE; part++) {
        __m256i mask = _mm256_set1_epi8((char)(TWO_BIT_MAX << 2 * part));
        __m256i context = repeat_levels(levels + LANE_BYTES * part);
        for (int half = 0; half < HALVES; half++) {
            __m256i weights = _mm256_and_si256(load_half(line + VECTOR_BYTES * half), mask);
            parts[part][half] = add_bytes(parts[part][half], weights, context);
        }
    }
}

INLINE void multiply_two_bit_block(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums) {
    __m256i parts[WEIGHTS_PER_BYTE][HALVES] = {{{0}}};
    for (int64_t i = 0; i < lines; i++)
        add_two_bit_line(block + LINE_BYTES * i, levels + LANE_BYTES * WEIGHTS_PER_BYTE * i, parts);
    for (int half = 0; half < HALVES; half++) { /* sums are shifted once, weights never */
        parts[1][half] = _mm256_srai_epi32(parts[1][half], 2);
        parts[2][half] = _mm256_srai_epi32(parts[2][half], 4);
        parts[3][half] = _mm256_srai_epi32(parts[3][half], 6);
    }
    for (int part = 1; part < WEIGHTS_PER_BYTE; part++) add_totals(parts[0], parts[part]);
    store_halves(sums, parts[0]);
}

INLINE int32_t multiply_row(const uint8_t *row, const int8_t *levels, int64_t lines) {
    __m256i chains[CHAINS][HALVES] = {{{0}}};
    int64_t i = 0;
    for (; i + CHAINS <= lines; i += CHAINS)
        for (int c = 0; c < CHAINS; c++)
            add_row_line(row + LINE_BYTES * (i + c), levels + LINE_BYTES * (i + c), chains[c]);
    if (i < lines) add_row_line(row + LINE_BYTES * i, levels + LINE_BYTES * i, chains[0]);
    add_totals(chains[0], chains[1]);
    return add_lanes_of(_mm256_add_epi32(chains[0][0], chains[0][1]));
}

INLINE void multiply_row_by_digits(const uint8_t *row, const int8_t *coarse, const int8_t *fine, int64_t lines,
                                   int32_t *sums) {
    __m256i coarse_totals[HALVES] = {0}, fine_totals[HALVES] = {0};
    for (int64_t i = 0; i < lines; i++) {
        add_row_line(row + LINE_BYTES * i, coarse + LINE_BYTES * i, coarse_totals);
        add_row_line(row + LINE_BYTES * i, fine + LINE_BYTES * i, fine_totals);
    }
    sums[0] = add_lanes_of(_mm256_add_epi32(coarse_totals[0], coarse_totals[1]));
    sums[1] = add_lanes_of(_mm256_add_epi32(fine_totals[0], fine_totals[1]));
}

#include "targets/loops.h"
