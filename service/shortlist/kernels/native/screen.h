/* Rows of plan `screen`, over the clusters that a screen, or the expert that a gate picks for each.
 *
 * Weights are read where they are mapped: a graph would slice them out of all, which copies them.
 */
#ifndef SHORTLIST_SCREEN_H
#define SHORTLIST_SCREEN_H

#include "exponentials.h"
#include "kernels.h"

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

/* Sets the logits of those ascending ids [n] that are among the ascending `known` [m] to -inf; returns how many are
 * not. */
static int64_t drop_known(const int64_t *known, int64_t m, const int64_t *ids, int64_t n, float *logits) {
    int64_t at = 0, new = 0;
    for (int64_t i = 0; i < n; i++) {
        while (at < m && known[at] < ids[i]) at++;
        if (at < m && known[at] == ids[i])
            logits[i] = -INFINITY;
        else
            new++;
    }
    return new;
}

/* Places of the best and the second best of scores [n], of one score the same; the first of equal ones. */
static void find_two_best(const float *scores, int64_t n, int64_t *best, int64_t *other) {
    int64_t first = 0, second = -1;
    for (int64_t i = 1; i < n; i++) {
        if (scores[i] > scores[first])
            second = first, first = i;
        else if (second < 0 || scores[i] > scores[second])
            second = i;
    }
    *best = first, *other = second < 0 ? 0 : second;
}

/* Scores [count, sets] of the sets, and the rows in the order of their best sets: rows of one set then follow one
 * another and find its weights in the cache. */
static int64_t order_rows(const struct sets *sets, const float *contexts, int64_t count, float *scores,
                          int32_t *order) {
    int64_t n = sets->sets, other;
    int64_t *memory = malloc((count + n + 1) * sizeof *memory), *best = memory, *ends = memory + count;
    if (!memory) return 0;
    memset(scores, 0, count * n * sizeof *scores);
    memset(ends, 0, (n + 1) * sizeof *ends);
    for (int64_t row = 0; row < count; row++) {
        add_columns(sets->chooser, contexts + row * sets->dim, sets->dim, n, scores + row * n);
        find_two_best(scores + row * n, n, best + row, &other);
        ends[best[row] + 1]++;
    }
    for (int64_t i = 1; i <= n; i++) ends[i] += ends[i - 1];
    for (int64_t row = 0; row < count; row++) order[ends[best[row]]++] = (int32_t)row;
    free(memory);
    return 1;
}

/* Difference of the two scores over the size of the best; infinite for a single score. */
INLINE double compute_margin(const float *scores, int64_t best, int64_t other) {
    double size = fabs((double)scores[best]);
    return best == other ? INFINITY : ((double)scores[best] - (double)scores[other]) / (size > 0 ? size : 1.0);
}

/* Logits [n] of the classes of one cluster, from class `first` of all sets on. */
static void score_cluster(const struct sets *sets, const float *context, int64_t first, int64_t n, float *logits) {
    const float *columns = sets->weights + first * sets->lines;
    if (sets->lines > sets->dim) /* the last line holds the biases */
        memcpy(logits, columns + sets->dim * n, n * sizeof *logits);
    else
        memset(logits, 0, n * sizeof *logits);
    add_columns(columns, context, sets->dim, n, logits);
    finish_logits(logits, n, sets->logit_scale, sets->soft_cap);
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

/* One row over its best cluster, or its best two; products: a place for the logits of both. */
static void score_clusters_of_row(const struct sets *sets, const struct screen_limits *limits, const float *context,
                                  const float *scores, float *products, const struct set_results *results,
                                  int64_t row) {
    int64_t best, other, k = results->k, *ids = results->ids + row * k;
    float *logits = results->logits + row * k;
    clear_row(results, row);
    find_two_best(scores, sets->sets, &best, &other);
    double margin = compute_margin(scores, best, other);
    int64_t clusters = limits->probes + (margin < limits->probe_margin);
    if (clusters > sets->sets) clusters = sets->sets;
    if (margin < limits->dense_margin || clusters > 2) {
        results->scored[row] = margin < limits->dense_margin ? TO_DENSE : TO_GRAPHS;
        return;
    }
    int64_t first = sets->offsets[best], size = sets->offsets[best + 1] - first, second = sets->offsets[other];
    int64_t more = clusters == 2 ? sets->offsets[other + 1] - second : 0, new = 0;
    const int64_t *best_ids = sets->ids + first, *other_ids = sets->ids + second;
    score_cluster(sets, context, first, size, products);
    take_best(products, best_ids, size, logits, ids, k);
    if (more) {
        score_cluster(sets, context, second, more, products + size);
        new = drop_known(best_ids, size, other_ids, more, products + size);
        take_best(products + size, other_ids, more, logits, ids, k);
    }
    results->normalizers[row] = logits[0] + logf(sum_exp(products, size + more, logits[0])) + sets->tail[best];
    results->scored[row] = (int32_t)(size + new);
}

/* One row over its best expert, whose rows end in their biases; factors: [lines]. */
static void score_expert_of_row(const struct sets *sets, const float *context, const float *scores, float *factors,
                                float *products, const struct set_results *results, int64_t row) {
    int64_t expert, other, k = results->k, width = sets->lines;
    float *logits = results->logits + row * k;
    clear_row(results, row);
    find_two_best(scores, sets->sets, &expert, &other);
    float scale = 1 / sum_exp(scores, sets->sets, scores[expert]);
    for (int64_t i = 0; i < width - 1; i++) factors[i] = context[i] * scale;
    factors[width - 1] = scale;
    int64_t first = sets->offsets[expert], size = sets->offsets[expert + 1] - first;
    for (int64_t i = 0; i < size; i++) /* one after the other: the processor guesses what follows */
        products[i] = dot(sets->weights + (first + i) * width, factors, width);
    take_best(products, sets->ids + first, size, logits, results->ids + row * k, k);
    results->normalizers[row] = logits[0] + logf(sum_exp(products, size, logits[0]));
    results->scored[row] = (int32_t)size;
}

static int64_t score_sets(const struct sets *sets, const struct screen_limits *limits, const float *contexts,
                          const float *scores, const int32_t *order, int64_t *ids, float *logits, float *normalizers,
                          int32_t *scored, int64_t first, int64_t last) {
    struct set_results results = {ids, logits, normalizers, scored, limits->k};
    float *memory = malloc((2 * sets->largest + sets->lines) * sizeof *memory), *factors = memory + 2 * sets->largest;
    if (!memory) return 0;
    for (int64_t i = first; i < last; i++) {
        int64_t row = order[i];
        const float *context = contexts + row * sets->dim, *row_scores = scores + row * sets->sets;
        if (sets->are_experts)
            score_expert_of_row(sets, context, row_scores, factors, memory, &results, row);
        else
            score_clusters_of_row(sets, limits, context, row_scores, memory, &results, row);
    }
    free(memory);
    return 1;
}

/* All rows of a call by one thread. */
static int64_t score_all_sets(const struct sets *sets, const struct screen_limits *limits, const float *contexts,
                              int64_t *ids, float *logits, float *normalizers, int32_t *scored, int64_t count) {
    float *scores = malloc(count * (sets->sets * sizeof *scores + sizeof(int32_t)));
    if (!scores) return 0;
    int32_t *order = (int32_t *)(scores + count * sets->sets);
    int64_t done = order_rows(sets, contexts, count, scores, order) &&
                   score_sets(sets, limits, contexts, scores, order, ids, logits, normalizers, scored, 0, count);
    free(scores);
    return done;
}

/* Whether no number is NaN or infinite: their exponents have a bit that is 0. */
INLINE int are_finite(const float *numbers, int64_t n) {
    const uint32_t exponent = 0x7f800000;
    uint32_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, numbers + i, sizeof bits);
        found |= -((bits & exponent) == exponent);
    }
    return !found;
}

static int64_t answer_row_of_sets(const struct sets *sets, const struct screen_limits *limits, const float *context,
                                  int64_t *ids) {
    float *logprobs = (float *)(ids + limits->k), normalizer = NAN;
    int32_t *scored = (int32_t *)(logprobs + limits->k);
    struct set_results results = {ids, logprobs, &normalizer, scored, limits->k};
    if (!are_finite(context, sets->dim)) return 0;
    float *scores = malloc((sets->sets + 2 * sets->largest + sets->lines) * sizeof *scores);
    if (!scores) return 0;
    memset(scores, 0, sets->sets * sizeof *scores);
    float *products = scores + sets->sets, *factors = products + 2 * sets->largest;
    add_columns(sets->chooser, context, sets->dim, sets->sets, scores);
    if (sets->are_experts)
        score_expert_of_row(sets, context, scores, factors, products, &results, 0);
    else
        score_clusters_of_row(sets, limits, context, scores, products, &results, 0);
    free(scores);
    if (*scored <= 0 || !isfinite(normalizer)) return 0;
    for (int64_t i = 0; i < limits->k; i++) logprobs[i] -= normalizer;
    return 1;
}

#endif
