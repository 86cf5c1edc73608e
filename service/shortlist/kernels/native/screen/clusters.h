/* What rows of plan `screen` share, with a second stage or without: products, the choice of clusters, the k best. */
#ifndef SHORTLIST_CLUSTERS_H
#define SHORTLIST_CLUSTERS_H

#include "kernels.h"
#include "primitives/exponentials.h"

#include <stdlib.h>

enum { TO_DENSE = -1, TO_GRAPHS = 0 }; /* as in unscored.py */

/* Adds factors [lines] times `columns` [lines, n] to `sums` [n], four lines at a time. */
static void add_columns(const float *restrict columns, const float *restrict factors, int64_t lines, int64_t n,
                        float *restrict sums) {
    int64_t i = 0;
    for (; i + 4 <= lines; i += 4) {
        const float *one = columns + i * n, *two = one + n, *three = two + n, *four = three + n;
        float a = factors[i], b = factors[i + 1], c = factors[i + 2], d = factors[i + 3];
        for (int64_t j = 0; j < n; j++) sums[j] += (a * one[j] + b * two[j]) + (c * three[j] + d * four[j]);
    }
    for (; i < lines; i++)
        for (int64_t j = 0; j < n; j++) sums[j] += factors[i] * columns[i * n + j];
}

/* Applies the logit scale and the soft-cap, 0 for none, to logits [n]. */
INLINE void finish_logits(float *logits, int64_t n, float logit_scale, float soft_cap) {
    if (logit_scale != 1)
        for (int64_t i = 0; i < n; i++) logits[i] *= logit_scale;
    if (soft_cap > 0)
        for (int64_t i = 0; i < n; i++) logits[i] = soft_cap * tanhf(logits[i] / soft_cap);
}

/* Whether the first class comes before the other: the larger logit, of equal ones the lower id. */
INLINE int precedes(float logit, int64_t id, float other, int64_t other_id) {
    return logit > other || (logit == other && id < other_id);
}

/* Inserts the best of logits [n] of classes `ids` [n] into `best` and `best_ids` [k], which are best first. */
static void take_best(const float *logits, const int64_t *ids, int64_t n, float *best, int64_t *best_ids, int64_t k) {
    for (int64_t i = 0; i < n; i++) {
        if (!precedes(logits[i], ids[i], best[k - 1], best_ids[k - 1])) continue;
        int64_t rank = k - 1;
        for (; rank && precedes(logits[i], ids[i], best[rank - 1], best_ids[rank - 1]); rank--)
            best[rank] = best[rank - 1], best_ids[rank] = best_ids[rank - 1];
        best[rank] = logits[i], best_ids[rank] = ids[i];
    }
}

INLINE int64_t count_words(int64_t bits) { return (bits + 63) / 64; }

/* Sets the logits of those ids [n] that are among `known` [m] to -inf; returns how many are not. bits: of all classes,
 * zeros, and zeros again afterwards. Which ids are known is no branch, since the processor could not guess it. */
static int64_t drop_known(const int64_t *known, int64_t m, const int64_t *ids, int64_t n, uint64_t *bits,
                          float *logits) {
    int64_t new = 0;
    for (int64_t i = 0; i < m; i++) bits[known[i] / 64] |= 1ull << known[i] % 64;
    for (int64_t i = 0; i < n; i++) {
        int64_t is_known = bits[ids[i] / 64] >> ids[i] % 64 & 1;
        logits[i] = is_known ? -INFINITY : logits[i];
        new += 1 - is_known;
    }
    for (int64_t i = 0; i < m; i++) bits[known[i] / 64] = 0;
    return new;
}

/* The largest of scores [n], and the largest of the others, which may be equal: in each of sixteen lanes at first. */
static void find_two_largest(const float *scores, int64_t n, float *largest, float *second) {
    floats firsts[PARTS], seconds[PARTS];
    float last[LANES], lanes[2][LANES];
    for (int part = 0; part < (int)PARTS; part++) firsts[part] = seconds[part] = repeat_float(-INFINITY);
    for (int64_t i = 0; i < n; i += LANES) {
        const float *some = scores + i;
        int is_last = n - i < LANES;
        for (int64_t lane = 0; is_last && lane < LANES; lane++) last[lane] = i + lane < n ? some[lane] : -INFINITY;
        for (int part = 0; part < (int)PARTS; part++) {
            floats values = load_floats((is_last ? last : some) + WIDTH * part);
            floats smaller = choose_floats(values > firsts[part], firsts[part], values);
            firsts[part] = max_floats(values, firsts[part]);
            seconds[part] = max_floats(smaller, seconds[part]);
        }
    }
    memcpy(lanes[0], firsts, sizeof lanes[0]);
    memcpy(lanes[1], seconds, sizeof lanes[1]);
    *largest = find_largest_lane(lanes[0]);
    for (int lane = 0; lane < LANES; lane++) {
        if (lanes[0][lane] != *largest) continue;
        lanes[0][lane] = lanes[1][lane]; /* the others of the lane that has the largest */
        break;
    }
    *second = find_largest_lane(lanes[0]);
}

/* The place of the first of scores [n] with this value but that at `other`; -1 where there is none. */
INLINE int64_t find_score(const float *scores, int64_t n, float value, int64_t other) {
    for (int64_t start = 0; start < n; start += LANES) {
        int64_t end = start + LANES < n ? start + LANES : n;
        if (end - start == LANES && !holds_number(scores + start, value)) continue;
        for (int64_t i = start; i < end; i++)
            if (scores[i] == value && i != other) return i;
    }
    return -1;
}

/* Places of the best and the second best of scores [n], of one score the same; the first of equal ones. */
static void find_two_best(const float *scores, int64_t n, int64_t *best, int64_t *other) {
    float largest, second;
    find_two_largest(scores, n, &largest, &second);
    int64_t first = find_score(scores, n, largest, -1), next = find_score(scores, n, second, first);
    *best = first < 0 ? 0 : first, *other = next < 0 ? *best : next;
}

/* Difference of the two scores over the size of the best; infinite for a single score. */
INLINE double compute_margin(const float *scores, int64_t best, int64_t other) {
    double size = fabs((double)scores[best]);
    return best == other ? INFINITY : ((double)scores[best] - (double)scores[other]) / (size > 0 ? size : 1.0);
}

/* How many clusters, 1 or 2, a row with these scores opens, and the best two; TO_DENSE or TO_GRAPHS for none. */
INLINE int64_t choose_clusters(const struct sets *sets, const struct screen_limits *limits, const float *scores,
                               int64_t *best, int64_t *other) {
    find_two_best(scores, sets->sets, best, other);
    double margin = compute_margin(scores, *best, *other);
    int64_t clusters = limits->probes + (margin < limits->probe_margin);
    if (clusters > sets->sets) clusters = sets->sets;
    if (margin < limits->dense_margin) return TO_DENSE;
    return clusters > 2 ? TO_GRAPHS : clusters;
}

/* Nats that the classes outside of a row's `count` classes add to its log-sum-exp, by its best cluster. */
INLINE float take_tail(const struct sets *sets, int64_t best, int64_t count) {
    return count < sets->classes ? sets->tail[best] : 0; /* two clusters may hold all classes between them */
}

/* Where results are written: ids and logits [B, k], the others [B]. */
struct set_results {
    int64_t *ids;
    float *logits, *normalizers;
    int32_t *scored;
    int64_t k;
};

INLINE void clear_row(const struct set_results *results, int64_t row) {
    for (int64_t i = row * results->k; i < (row + 1) * results->k; i++)
        results->ids[i] = -1, results->logits[i] = -INFINITY;
}

#endif
