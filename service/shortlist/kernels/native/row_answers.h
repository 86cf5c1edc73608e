/* Whole answers of the rows of one call: where they are written, and how threads share them. */
#ifndef SHORTLIST_ROW_ANSWERS_H
#define SHORTLIST_ROW_ANSWERS_H

#include "primitives/vectors.h"
#include "system/pool.h"

#include <math.h>
#include <stdlib.h>

enum { PARTS_PER_THREAD = 4 }; /* so that a thread that wakes late runs fewer of them */

/* ids, logprobs: [count, k], logits at first. normalizers, scored, risks: [count]; risks are not read where the
 * function that is asked states none. Each part has part_rows rows, the last one fewer. */
struct row_answers {
    const float *contexts;
    int64_t *ids;
    float *logprobs, *normalizers, *risks;
    int32_t *scored;
    int64_t count, k, parts, part_rows;
};

/* Lays the answers out behind `ids` and the rows in parts; returns 0 where there is no memory. The caller frees the
 * normalizers. */
static int open_answers(struct row_answers *rows, const struct request *request, const float *contexts, int64_t k,
                        int64_t *ids) {
    int64_t count = request->rows, threads = request->threads;
    float *logprobs = (float *)(ids + count * k), *normalizers = malloc(count * sizeof *normalizers);
    int32_t *scored = (int32_t *)(logprobs + count * k);
    int64_t most = threads > 1 ? PARTS_PER_THREAD * threads : 1, part_rows = (count + most - 1) / most;
    int64_t parts = (count + part_rows - 1) / part_rows;
    *rows = (struct row_answers){contexts, ids, logprobs, normalizers, (float *)(scored + count), scored,
                                 count, k, parts, part_rows};
    return normalizers != NULL;
}

/* The row behind a part. */
INLINE int64_t end_part(const struct row_answers *rows, int64_t part) {
    int64_t end = (part + 1) * rows->part_rows;
    return end < rows->count ? end : rows->count;
}

/* Makes log-probabilities of one row's logits; returns 0 where the row has no answer. */
static int finish_answer(const struct row_answers *rows, int64_t row) {
    float *logprobs = rows->logprobs + row * rows->k, normalizer = rows->normalizers[row];
    for (int64_t i = 0; i < rows->k; i++) logprobs[i] -= normalizer;
    return rows->scored[row] > 0 && isfinite(normalizer);
}

#endif
