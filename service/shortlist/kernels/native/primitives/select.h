/* Selects the n largest of many scores: thresholds are found by bisection, which vectorises where sorting does not. */
#ifndef SHORTLIST_SELECT_H
#define SHORTLIST_SELECT_H

#include "primitives/vectors.h"

enum {
    STRIP_SCORES = 8,     /* of which only the best is compared at first */
    SURPLUS_DIVISOR = 32, /* where a later stage looks closer, a 32nd more than asked for may be selected */
    FEW_SCORES = 256,     /* between two thresholds: these alone are compared from then on */
};

#ifndef HAS_KEEP_BLOCK
/* Writes those of LANES numbers of four bytes whose scores reach the threshold to `kept`; returns how many. Up to LANES
 * places of `kept` are overwritten, those of `numbers` among them where it lies behind. */
INLINE int64_t keep_block(const float *scores, float threshold, const void *numbers, void *kept) {
    int32_t some[LANES], *places = kept;
    int64_t count = 0;
    memcpy(some, numbers, sizeof some);
    for (int32_t i = 0; i < LANES; i++) {
        memcpy(places + count, some + i, sizeof *some);
        count += scores[i] >= threshold;
    }
    return count;
}
#endif

/* The sum of `sizes` [n], or of n ones where that is NULL, over the scores [n] of `threshold` or more. */
INLINE int64_t count_reaching(const float *scores, const int32_t *sizes, int64_t n, float threshold) {
    ints totals[PARTS] = {0};
    int32_t lanes[LANES], count = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int part = 0; part < PARTS; part++) {
            ints mask = load_floats(scores + i + WIDTH * part) >= repeat_float(threshold), size;
            if (sizes) memcpy(&size, sizes + i + WIDTH * part, sizeof size);
            totals[part] += sizes ? mask & size : -mask;
        }
    memcpy(lanes, totals, sizeof lanes);
    for (int lane = 0; lane < LANES; lane++) count += lanes[lane];
    for (; i < n; i++) count += scores[i] >= threshold ? (sizes ? sizes[i] : 1) : 0;
    return count;
}

/* The largest of the scores [n], and the smallest above -inf, which is inf where there is none. */
INLINE void find_range(const float *scores, int64_t n, float *low, float *high) {
    floats lows[PARTS], highs[PARTS];
    float low_lanes[LANES], high_lanes[LANES];
    int64_t i = 0;
    for (int part = 0; part < PARTS; part++) lows[part] = repeat_float(INFINITY), highs[part] = repeat_float(-INFINITY);
    for (; i + LANES <= n; i += LANES)
        for (int part = 0; part < PARTS; part++) {
            floats some = load_floats(scores + i + WIDTH * part);
            ints is_finite = some > repeat_float(-INFINITY);
            highs[part] = max_floats(some, highs[part]);
            lows[part] = min_floats(choose_floats(is_finite, some, repeat_float(INFINITY)), lows[part]);
        }
    memcpy(low_lanes, lows, sizeof lows);
    memcpy(high_lanes, highs, sizeof highs);
    *low = INFINITY, *high = -INFINITY;
    for (int lane = 0; lane < LANES; lane++) {
        *low = low_lanes[lane] < *low ? low_lanes[lane] : *low;
        *high = high_lanes[lane] > *high ? high_lanes[lane] : *high;
    }
    for (; i < n; i++) {
        *low = scores[i] > -INFINITY && scores[i] < *low ? scores[i] : *low;
        *high = scores[i] > *high ? scores[i] : *high;
    }
}

/* Writes the scores [n] from `low` on and under `high` to `few`, for which it has room and for LANES more; returns how
 * many. */
static int64_t keep_between(const float *scores, int64_t n, float low, float high, float *few) {
    int64_t count = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        float some[LANES];
        for (int64_t lane = 0; lane < LANES; lane += WIDTH) {
            floats part = load_floats(scores + i + lane);
            store_floats(some + lane, choose_floats(part < repeat_float(high), part, repeat_float(-INFINITY)));
        }
        count += keep_block(some, low, some, few + count);
    }
    for (; i < n; i++)
        if (scores[i] >= low && scores[i] < high) few[count++] = scores[i];
    return count;
}

/* The highest threshold that scores [n] with sizes of `target` or more in sum reach, by bisection.
 *
 * sizes: NULL for ones. surplus: a lower threshold will do if the sum stays within `target` + `surplus`, which spares
 * half of the steps. Scores of -inf are never counted, so that the sum may fall short of `target`. */
static float find_threshold(const float *scores, const int32_t *sizes, int64_t n, int64_t target, int64_t surplus) {
    float low, high;
    find_range(scores, n, &low, &high);
    if (!(high > -INFINITY)) return INFINITY;
    if (count_reaching(scores, sizes, n, high) >= target) return high;
    int64_t count = count_reaching(scores, sizes, n, low), above = 0;
    while (count > target + surplus) {
        if (!sizes && above && n > 2 * FEW_SCORES && count - above <= FEW_SCORES) {
            float few[FEW_SCORES + LANES];
            int64_t some = keep_between(scores, n, low, high, few);
            return find_threshold(few, NULL, some, target - above, surplus);
        }
        float middle = low + (high - low) * 0.5f;
        if (!(low < middle && middle < high)) break;
        int64_t middle_count = count_reaching(scores, sizes, n, middle);
        if (middle_count >= target)
            low = middle, count = middle_count;
        else
            high = middle, above = middle_count;
    }
    return low;
}

/* Writes the positions of scores [n] of `threshold` or more, ascending, to `positions` [n]; returns how many. */
static int64_t select_reaching(const float *scores, int64_t n, float threshold, int32_t *positions) {
    int64_t count = 0, i = 0;
    for (; i + LANES <= n; i += LANES) count += select_block(scores + i, threshold, (int32_t)i, positions + count);
    for (; i < n; i++)
        if (scores[i] >= threshold) positions[count++] = (int32_t)i;
    return count;
}

/* Writes those of `numbers` [n] of four bytes whose scores [n] reach the threshold to `kept` [n], which may be
 * `numbers`; returns how many. */
static int64_t keep_reaching(const float *scores, int64_t n, float threshold, const void *numbers, void *kept) {
    const int32_t *from = numbers;
    int32_t *to = kept;
    int64_t count = 0, i = 0;
    for (; i + LANES <= n; i += LANES) count += keep_block(scores + i, threshold, from + i, to + count);
    for (; i < n; i++)
        if (scores[i] >= threshold) memmove(to + count++, from + i, sizeof *to);
    return count;
}

/* A threshold that about `target` of n scores reach, and no fewer where so many are above -inf. Of many, the best of
 * every STRIP_SCORES scores are compared: at least as many scores as such peaks reach a threshold, and not many more.
 * spare: [n], overwritten. */
static float find_low_threshold(const float *scores, int64_t n, int64_t target, float *spare) {
    int64_t length = (n + STRIP_SCORES - 1) / STRIP_SCORES;
    if (length < 2 * target) return find_threshold(scores, NULL, n, target, 0);
    memcpy(spare, scores, length * sizeof *spare);
    for (int64_t start = length; start < n; start += length) {
        int64_t size = n - start < length ? n - start : length;
        for (int64_t i = 0; i < size; i++) spare[i] = scores[start + i] > spare[i] ? scores[start + i] : spare[i];
    }
    float threshold = find_threshold(spare, NULL, length, target, target / SURPLUS_DIVISOR);
    if (count_reaching(spare, NULL, length, threshold) >= target) return threshold;
    return find_threshold(scores, NULL, n, target, 0);
}

/* Writes the positions of the `target` best of n scores, ascending, to `positions` [n]; returns how many.
 *
 * They are more than `target` where scores are equal. Only those that reach a low threshold are compared exactly.
 * spare: [n], overwritten. */
static int64_t select_best(const float *scores, int64_t n, int64_t target, int32_t *positions, float *spare) {
    if (!n) return 0;
    float threshold = find_low_threshold(scores, n, target, spare);
    int64_t near = select_reaching(scores, n, threshold, positions);
    if (near <= target) return near;
    keep_reaching(scores, n, threshold, scores, spare);
    threshold = find_threshold(spare, NULL, near, target, 0);
    return keep_reaching(spare, near, threshold, positions, positions);
}

#endif
