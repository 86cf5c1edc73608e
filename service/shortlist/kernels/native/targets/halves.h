/* What targets of 32-byte vectors share: a line of 64 bytes is two of them. A target includes this in place of
 * vectors.h.
 */
#ifndef SHORTLIST_HALVES_H
#define SHORTLIST_HALVES_H

#define VECTOR_BYTES 32
#include "primitives/vectors.h"

#include <immintrin.h>

enum { HALVES = 2 }; /* vectors of a line */

INLINE __m256i load_half(const void *address) { return _mm256_loadu_si256(address); }

/* Four bytes of a context, for all lanes. */
INLINE __m256i repeat_levels(const int8_t *levels) {
    int32_t word;
    memcpy(&word, levels, sizeof word);
    return _mm256_set1_epi32(word);
}

INLINE int32_t add_lanes_of(__m256i sums) {
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

INLINE void store_halves(int32_t *sums, const __m256i *halves) {
    for (int half = 0; half < HALVES; half++) _mm256_storeu_si256((__m256i *)sums + half, halves[half]);
}

/* Few scores reach a threshold: a step for each of them, none for the others. */
INLINE int64_t select_block(const float *scores, float threshold, int32_t start, int32_t *positions) {
    __m256 bound = _mm256_set1_ps(threshold);
    unsigned mask = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(scores), bound, _CMP_GE_OQ));
    mask |= (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(scores + 8), bound, _CMP_GE_OQ)) << 8;
    int64_t count = 0;
    for (; mask; mask &= mask - 1) positions[count++] = start + __builtin_ctz(mask);
    return count;
}

#endif
