/* The k best of many scores, equal ones by lower id, in one pass over them and little more. */
#ifndef SHORTLIST_RANKING_H
#define SHORTLIST_RANKING_H

#include "primitives/vectors.h"

#include <stdlib.h>

enum {
    STRAND_SCORES = 64,                     /* a strand: every sixteenth score of so many times sixteen */
    GROUP_SCORES = STRAND_SCORES * LANES,  /* of the sixteen strands side by side */
    RADIX_BITS = 8,
    RADIX_SIZE = 1 << RADIX_BITS,
    PLACE_BITS = 64,
    FEW_PLACES = 16,       /* up to here one pass that keeps the smallest is faster than eight */
    INSERTION_PLACES = 32, /* up to here insertion sorts as fast as anything */
    COUNTED_PLACES = 256,  /* up to here it is faster to count, by vectors, how many come before each */
};

/* A score and its position as one whole number, the better the smaller; of equal scores the first one is. */
INLINE uint64_t make_place(float score, int64_t position) {
    float positive_zero = score + 0.0f; /* 0 and -0 are equal */
    uint32_t bits;
    memcpy(&bits, &positive_zero, sizeof bits);
    return (uint64_t)(bits & 0x80000000u ? bits : ~bits & 0x7fffffffu) << 32 | (uint64_t)position;
}

INLINE int64_t get_position(uint64_t place) { return (int64_t)(place & 0xffffffffu); }

INLINE float get_score(uint64_t place) {
    uint32_t bits = (uint32_t)(place >> 32);
    bits = bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
    float score;
    memcpy(&score, &bits, sizeof score);
    return score;
}

/* How many strands there are of `n` scores. */
INLINE int64_t count_strands(int64_t n) { return (n + GROUP_SCORES - 1) / GROUP_SCORES * LANES; }

/* Writes the largest score of every strand to `peaks`: strand 16 g + lane holds 1024 g + 16 i + lane for i under 64. */
static void find_strand_peaks(const float *scores, int64_t n, float *peaks) {
    for (int64_t start = 0; start < n; start += GROUP_SCORES, peaks += LANES) {
        int64_t end = start + GROUP_SCORES < n ? start + GROUP_SCORES : n, i = start;
        floats highs[PARTS];
        for (int part = 0; part < PARTS; part++) highs[part] = repeat_float(-INFINITY);
        for (; i + LANES <= end; i += LANES)
            for (int part = 0; part < PARTS; part++)
                highs[part] = max_floats(load_floats(scores + i + WIDTH * part), highs[part]);
        memcpy(peaks, highs, sizeof highs);
        for (int lane = 0; i + lane < end; lane++)
            peaks[lane] = scores[i + lane] > peaks[lane] ? scores[i + lane] : peaks[lane];
    }
}

/* The nth smallest of different places [count], 1 <= nth <= FEW_PLACES, which are kept in order. */
static uint64_t find_one_of_few(const uint64_t *places, int64_t count, int64_t nth) {
    uint64_t smallest[FEW_PLACES];
    memset(smallest, 0xff, sizeof smallest);
    for (int64_t i = 0; i < count; i++) {
        if (places[i] >= smallest[nth - 1]) continue;
        int64_t rank = nth - 1;
        for (; rank && smallest[rank - 1] > places[i]; rank--) smallest[rank] = smallest[rank - 1];
        smallest[rank] = places[i];
    }
    return smallest[nth - 1];
}

/* The nth smallest of different places [count], 1 <= nth <= count, eight bits at a time. */
static uint64_t find_nth_place(const uint64_t *places, int64_t count, int64_t nth) {
    uint64_t prefix = 0, known = 0;
    if (nth <= FEW_PLACES) return find_one_of_few(places, count, nth);
    for (int shift = PLACE_BITS - RADIX_BITS; shift >= 0; shift -= RADIX_BITS) {
        int64_t counts[RADIX_SIZE] = {0}, digit = 0;
        for (int64_t i = 0; i < count; i++)
            if ((places[i] & known) == prefix) counts[places[i] >> shift & (RADIX_SIZE - 1)]++;
        while (nth > counts[digit]) nth -= counts[digit++];
        prefix |= (uint64_t)digit << shift;
        known |= (uint64_t)(RADIX_SIZE - 1) << shift;
    }
    return prefix;
}

static int compare_places(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Sorts different places, at most COUNTED_PLACES. */
static void sort_by_counts(uint64_t *places, int64_t count) {
    uint64_t copy[COUNTED_PLACES];
    memcpy(copy, places, count * sizeof *places);
    for (int64_t i = 0; i < count; i++) {
        int64_t before = 0;
        for (int64_t j = 0; j < count; j++) before += copy[j] < copy[i];
        places[before] = copy[i];
    }
}

/* Sorts different places. */
static void sort_places(uint64_t *places, int64_t count) {
    if (count > INSERTION_PLACES && count <= COUNTED_PLACES) {
        sort_by_counts(places, count);
        return;
    }
    if (count > COUNTED_PLACES) {
        qsort(places, count, sizeof *places, compare_places);
        return;
    }
    for (int64_t i = 1; i < count; i++) {
        uint64_t place = places[i];
        int64_t j = i;
        for (; j && places[j - 1] > place; j--) places[j] = places[j - 1];
        places[j] = place;
    }
}

/* Writes the places of the scores of `level` or more, and over -inf; returns how many. Strands whose peaks are less are
 * not looked at. */
static int64_t collect_places(const float *scores, int64_t n, const float *peaks, float level, uint64_t *places) {
    int64_t count = 0, strands = count_strands(n);
    for (int64_t strand = 0; strand < strands; strand++) {
        int64_t group = strand / LANES * GROUP_SCORES, end = group + GROUP_SCORES < n ? group + GROUP_SCORES : n;
        if (peaks[strand] < level) continue;
        for (int64_t i = group + strand % LANES; i < end; i += LANES)
            if (scores[i] >= level && scores[i] > -INFINITY) places[count++] = make_place(scores[i], i);
    }
    return count;
}

/* Writes the places of the k best of scores [n] to the front of `places` [n], best first; returns how many there are:
 * fewer than k where fewer are numbers over -inf. peaks: [strands], of these scores. places: at least [strands]. */
static int64_t rank_scores(const float *scores, int64_t n, int64_t k, const float *peaks, uint64_t *places) {
    int64_t strands = count_strands(n), kept = 0;
    float level = -INFINITY;
    if (k <= strands / 2) { /* at least k scores reach the kth peak */
        for (int64_t strand = 0; strand < strands; strand++) places[strand] = make_place(peaks[strand], strand);
        level = get_score(find_nth_place(places, strands, k));
    }
    int64_t count = collect_places(scores, n, peaks, level, places);
    if (count > k) {
        uint64_t last = find_nth_place(places, count, k);
        for (int64_t i = 0; i < count; i++)
            if (places[i] <= last) places[kept++] = places[i];
        count = k;
    }
    sort_places(places, count);
    return count;
}

#endif
