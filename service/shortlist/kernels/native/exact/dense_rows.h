/* What follows the product of the dense layer: the k best of all logits, and the normaliser. */
#ifndef SHORTLIST_DENSE_ROWS_H
#define SHORTLIST_DENSE_ROWS_H

#include "lists.h"
#include "primitives/exponentials.h"
#include "primitives/ranking.h"
#include "system/pool.h"

enum { SUM_SCORES = 1024 }; /* added in float32; more in float64 */

struct dense_work {
    const struct lists *lists;
    float *logits, *best, *normalizers;
    int64_t *ids, classes, k;
};

/* The log of the sum of exp(scores) [n], whose largest is `peak`: infinite or no number where that or a score is. */
static float sum_logits(const float *scores, int64_t n, float peak) {
    double total = 0;
    if (peak == -INFINITY) return peak;
    for (int64_t i = 0; i < n; i += SUM_SCORES)
        total += sum_exp(scores + i, n - i < SUM_SCORES ? n - i : SUM_SCORES, peak);
    return (float)(peak + log(total));
}

/* Gives classes that may not be returned a logit of -inf. peaks: of the logits, kept so. permitted: overwritten. */
static void restrict_logits(const struct lists *lists, int64_t row, float *logits, int64_t classes, float *peaks,
                            unsigned char *permitted) {
    mark_permitted(lists, row, classes, permitted);
    for (int64_t i = 0; i < classes; i++) logits[i] = permitted[i] ? logits[i] : -INFINITY;
    find_strand_peaks(logits, classes, peaks);
}

static void write_places(const uint64_t *places, const float *scores, int64_t count, int64_t k, int64_t *ids,
                         float *best) {
    for (int64_t rank = 0; rank < k; rank++) {
        ids[rank] = rank < count ? get_position(places[rank]) : -1;
        best[rank] = rank < count ? scores[ids[rank]] : -INFINITY;
    }
}

static int rank_dense_row(void *shared, int64_t row) {
    const struct dense_work *work = shared;
    int64_t n = work->classes, k = work->k, strands = count_strands(n), room = strands > n ? strands : n;
    float *logits = work->logits + row * n, *peaks;
    uint64_t *places = malloc(room * sizeof *places + strands * sizeof *peaks + n);
    if (!places) return 0;
    peaks = (float *)(places + room);
    find_strand_peaks(logits, n, peaks);
    work->normalizers[row] = sum_logits(logits, n, find_largest(peaks, strands));
    if (work->lists) restrict_logits(work->lists, row, logits, n, peaks, (unsigned char *)(peaks + strands));
    if (k) {
        int64_t found = rank_scores(logits, n, k, peaks, places);
        write_places(places, logits, found, k, work->ids + row * k, work->best + row * k);
    }
    free(places);
    return 1;
}

static int64_t rank_logits(float *logits, int64_t count, int64_t classes, const struct lists *lists, int64_t k,
                           int64_t *ids, float *best, float *normalizers, int64_t threads) {
    struct dense_work work = {lists, logits, best, normalizers, ids, classes, k};
    return run_parts(&(struct shared_work){rank_dense_row, &work, count}, threads);
}

static int64_t answer_rows_of_logits(const struct request *request, const float *contexts, int64_t dim, float *logits,
                                     int64_t classes, int64_t *ids) {
    int64_t k = request->k, rows = request->rows;
    float *logprobs = (float *)(ids + rows * k), *normalizers = malloc(rows * sizeof *normalizers);
    int32_t *scored = (int32_t *)(logprobs + rows * k);
    int64_t is_answered = normalizers && are_finite(contexts, rows * dim) &&
                          are_lists(request->lists, rows, classes) &&
                          rank_logits(logits, rows, classes, request->lists, k, ids, logprobs, normalizers,
                                      request->threads) &&
                          are_finite(normalizers, rows);
    for (int64_t row = 0; is_answered && row < rows; row++) {
        for (int64_t i = row * k; i < (row + 1) * k; i++) logprobs[i] -= normalizers[row];
        scored[row] = (int32_t)classes;
    }
    free(normalizers);
    return is_answered;
}

#endif
