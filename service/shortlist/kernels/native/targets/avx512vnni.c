/* AVX-512 with VNNI: x86-64 servers since 2019, some desktops. One instruction multiplies a line of 64 bytes. */
#define TARGET "avx512vnni"
#define KERNELS kernels_avx512vnni
#define KERNEL_PARTS kernel_parts_avx512vnni
#define VECTOR_BYTES 64
#include "primitives/vectors.h"

#include <immintrin.h>

enum { CHAINS = 4 }; /* independent sums: an instruction that adds to the sum of the last one has to wait for it */

INLINE __m512i load_line(const uint8_t *line) { return _mm512_loadu_si512(line); }

/* Four bytes of a context, for all lanes. */
INLINE __m512i repeat_levels(const int8_t *levels) {
    int32_t word;
    memcpy(&word, levels, sizeof word);
    return _mm512_set1_epi32(word);
}

INLINE __m512i add_chains(const __m512i *chains) {
    return _mm512_add_epi32(_mm512_add_epi32(chains[0], chains[1]), _mm512_add_epi32(chains[2], chains[3]));
}

INLINE void multiply_block(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums) {
    __m512i chains[CHAINS] = {0};
    int64_t i = 0;
    for (; i + CHAINS <= lines; i += CHAINS)
        for (int c = 0; c < CHAINS; c++)
            chains[c] = _mm512_dpbusd_epi32(chains[c], load_line(block + LINE_BYTES * (i + c)),
                                            repeat_levels(levels + LANE_BYTES * (i + c)));
    for (; i < lines; i++)
        chains[0] = _mm512_dpbusd_epi32(chains[0], load_line(block + LINE_BYTES * i),
                                        repeat_levels(levels + LANE_BYTES * i));
    _mm512_storeu_si512(sums, add_chains(chains));
}

INLINE void multiply_block_by_digits(const uint8_t *block, const int8_t *coarse, const int8_t *fine, int64_t lines,
                                     int32_t *coarse_sums, int32_t *fine_sums) {
    __m512i coarse_chains[CHAINS] = {0}, fine_chains[CHAINS] = {0};
    int64_t i = 0;
    for (; i + 2 <= lines; i += 2)
        for (int c = 0; c < 2; c++) {
            __m512i line = load_line(block + LINE_BYTES * (i + c));
            coarse_chains[c] =
                _mm512_dpbusd_epi32(coarse_chains[c], line, repeat_levels(coarse + LANE_BYTES * (i + c)));
            fine_chains[c] = _mm512_dpbusd_epi32(fine_chains[c], line, repeat_levels(fine + LANE_BYTES * (i + c)));
        }
    if (i < lines) {
        __m512i line = load_line(block + LINE_BYTES * i);
        coarse_chains[2] = _mm512_dpbusd_epi32(coarse_chains[2], line, repeat_levels(coarse + LANE_BYTES * i));
        fine_chains[2] = _mm512_dpbusd_epi32(fine_chains[2], line, repeat_levels(fine + LANE_BYTES * i));
    }
    _mm512_storeu_si512(coarse_sums, add_chains(coarse_chains));
    _mm512_storeu_si512(fine_sums, add_chains(fine_chains));
}

/* Adds a line of two blocks, `size` bytes from one another, to their sums with the coarse and the fine digits. */
INLINE void add_line_of_two(const uint8_t *line, int64_t size, const int8_t *coarse, const int8_t *fine,
                            __m512i *sums) {
    __m512i one = load_line(line), other = load_line(line + size);
    __m512i coarse_digits = repeat_levels(coarse), fine_digits = repeat_levels(fine);
    sums[0] = _mm512_dpbusd_epi32(sums[0], one, coarse_digits);
    sums[1] = _mm512_dpbusd_epi32(sums[1], one, fine_digits);
    sums[2] = _mm512_dpbusd_epi32(sums[2], other, coarse_digits);
    sums[3] = _mm512_dpbusd_epi32(sums[3], other, fine_digits);
}

#define HAS_TWO_BLOCKS
INLINE void multiply_two_blocks_by_digits(const uint8_t *blocks, const int8_t *coarse, const int8_t *fine,
                                          int64_t lines, int32_t *sums) {
    __m512i even[4] = {0}, odd[4] = {0};
    int64_t i = 0, size = lines * LINE_BYTES;
    for (; i + 2 <= lines; i += 2) {
        add_line_of_two(blocks + LINE_BYTES * i, size, coarse + LANE_BYTES * i, fine + LANE_BYTES * i, even);
        add_line_of_two(blocks + LINE_BYTES * (i + 1), size, coarse + LANE_BYTES * (i + 1),
                        fine + LANE_BYTES * (i + 1), odd);
    }
    if (i < lines)
        add_line_of_two(blocks + LINE_BYTES * i, size, coarse + LANE_BYTES * i, fine + LANE_BYTES * i, even);
    for (int c = 0; c < 4; c++) _mm512_storeu_si512(sums + LANES * c, _mm512_add_epi32(even[c], odd[c]));
}

/* The sums [4, LANES] of a block with four vectors of digits, which begin `columns` bytes from one another. */
#define HAS_FOUR_PRODUCTS
INLINE void multiply_block_by_four(const uint8_t *block, const int8_t *digits, int64_t columns, int64_t lines,
                                   int32_t *sums) {
    __m512i chains[2][CHAINS] = {0};
    for (int64_t i = 0; i < lines; i += 2)
        for (int odd = 0; odd < (i + 1 < lines ? 2 : 1); odd++) {
            __m512i line = load_line(block + LINE_BYTES * (i + odd));
            for (int c = 0; c < CHAINS; c++)
                chains[odd][c] = _mm512_dpbusd_epi32(
                    chains[odd][c], line, repeat_levels(digits + columns * c + LANE_BYTES * (i + odd)));
        }
    for (int c = 0; c < CHAINS; c++)
        _mm512_storeu_si512(sums + LANES * c, _mm512_add_epi32(chains[0][c], chains[1][c]));
}

INLINE void multiply_two_bit_block(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums) {
    __m512i parts[WEIGHTS_PER_BYTE] = {0};
#pragma GCC unroll 2
    for (int64_t i = 0; i < lines; i++) {
        __m512i line = load_line(block + LINE_BYTES * i);
        for (int part = 0; part < WEIGHTS_PER_BYTE; part++) {
            __m512i weights = _mm512_and_si512(line, _mm512_set1_epi8((char)(TWO_BIT_MAX << 2 * part)));
            __m512i signs = repeat_levels(levels + LANE_BYTES * (WEIGHTS_PER_BYTE * i + part));
            parts[part] = _mm512_dpbusd_epi32(parts[part], weights, signs);
        }
    }
    parts[1] = _mm512_srai_epi32(parts[1], 2); /* sums are shifted once, weights never */
    parts[2] = _mm512_srai_epi32(parts[2], 4);
    parts[3] = _mm512_srai_epi32(parts[3], 6);
    _mm512_storeu_si512(sums, add_chains(parts));
}

INLINE int32_t multiply_row(const uint8_t *row, const int8_t *levels, int64_t lines) {
    __m512i chains[CHAINS] = {0};
    int64_t i = 0;
    for (; i + CHAINS <= lines; i += CHAINS)
        for (int c = 0; c < CHAINS; c++)
            chains[c] = _mm512_dpbusd_epi32(chains[c], load_line(row + LINE_BYTES * (i + c)),
                                            _mm512_loadu_si512(levels + LINE_BYTES * (i + c)));
    for (; i < lines; i++)
        chains[0] = _mm512_dpbusd_epi32(chains[0], load_line(row + LINE_BYTES * i),
                                        _mm512_loadu_si512(levels + LINE_BYTES * i));
    return _mm512_reduce_add_epi32(add_chains(chains));
}

INLINE void multiply_row_by_digits(const uint8_t *row, const int8_t *coarse, const int8_t *fine, int64_t lines,
                                   int32_t *sums) {
    __m512i coarse_chains[CHAINS] = {0}, fine_chains[CHAINS] = {0};
    int64_t i = 0;
    for (; i + 2 <= lines; i += 2)
        for (int c = 0; c < 2; c++) {
            __m512i line = load_line(row + LINE_BYTES * (i + c));
            const int64_t at = LINE_BYTES * (i + c);
            coarse_chains[c] = _mm512_dpbusd_epi32(coarse_chains[c], line, _mm512_loadu_si512(coarse + at));
            fine_chains[c] = _mm512_dpbusd_epi32(fine_chains[c], line, _mm512_loadu_si512(fine + at));
        }
    if (i < lines) {
        __m512i line = load_line(row + LINE_BYTES * i);
        coarse_chains[2] = _mm512_dpbusd_epi32(coarse_chains[2], line, _mm512_loadu_si512(coarse + LINE_BYTES * i));
        fine_chains[2] = _mm512_dpbusd_epi32(fine_chains[2], line, _mm512_loadu_si512(fine + LINE_BYTES * i));
    }
    sums[0] = _mm512_reduce_add_epi32(add_chains(coarse_chains));
    sums[1] = _mm512_reduce_add_epi32(add_chains(fine_chains));
}

/* A whole vector is written for each sixteen scores: its last places are overwritten or lie within `positions`. */
INLINE int64_t select_block(const float *scores, float threshold, int32_t start, int32_t *positions) {
    __mmask16 mask = _mm512_cmp_ps_mask(_mm512_loadu_ps(scores), _mm512_set1_ps(threshold), _CMP_GE_OQ);
    __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i places = _mm512_add_epi32(lanes, _mm512_set1_epi32(start));
    _mm512_storeu_si512(positions, _mm512_maskz_compress_epi32(mask, places));
    return __builtin_popcount(mask);
}

#define HAS_KEEP_BLOCK
INLINE int64_t keep_block(const float *scores, float threshold, const void *numbers, void *kept) {
    __mmask16 mask = _mm512_cmp_ps_mask(_mm512_loadu_ps(scores), _mm512_set1_ps(threshold), _CMP_GE_OQ);
    _mm512_storeu_si512(kept, _mm512_maskz_compress_epi32(mask, _mm512_loadu_si512(numbers)));
    return __builtin_popcount(mask);
}

/* The sums of sixteen rows, halved four times as `add_lanes` halves them: rows share each step. */
#define HAS_SUMS_OF_ROWS
INLINE void add_lanes_of_rows(const floats sums[LANES][PARTS], float *products) {
    static const int places[LANES] = {0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15};
    __m512 rows[LANES];
#pragma GCC unroll 16
    for (int row = 0; row < LANES; row++) rows[places[row]] = (__m512)sums[row][0];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        rows[i] = _mm512_add_ps(_mm512_shuffle_f32x4(rows[i], rows[i + 8], 0x44),
                                _mm512_shuffle_f32x4(rows[i], rows[i + 8], 0xee));
    for (int i = 0; i < 4; i++)
        rows[i] = _mm512_add_ps(_mm512_shuffle_f32x4(rows[i], rows[i + 4], 0x88),
                                _mm512_shuffle_f32x4(rows[i], rows[i + 4], 0xdd));
    for (int i = 0; i < 2; i++) {
        __m512d one = _mm512_castps_pd(rows[i]), other = _mm512_castps_pd(rows[i + 2]);
        rows[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(one, other)),
                                _mm512_castpd_ps(_mm512_unpackhi_pd(one, other)));
    }
    _mm512_storeu_ps(products, _mm512_add_ps(_mm512_shuffle_ps(rows[0], rows[1], 0x88),
                                             _mm512_shuffle_ps(rows[0], rows[1], 0xdd)));
}

#include "targets/loops.h"
