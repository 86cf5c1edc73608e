/* Exact logits of some classes: rows are multiplied where they are mapped, not copied together. */
#ifndef SHORTLIST_EXACT_ROWS_H
#define SHORTLIST_EXACT_ROWS_H

#include "kernels.h"
#include "primitives/sums.h"

enum { ROW_PREFETCH_BYTES = 512 }; /* of each of the next rows; the processor guesses what follows */

INLINE int are_classes(const int64_t *ids, int64_t count, int64_t classes) {
    int64_t invalid = 0;
    for (int64_t i = 0; i < count; i++) invalid |= ids[i] < 0 || ids[i] >= classes;
    return !invalid;
}

INLINE float finish_exact_logit(const struct exact_rows *rows, int64_t class_id, float logit) {
    if (rows->bias) logit += rows->bias[class_id];
    logit *= rows->logit_scale;
    if (rows->soft_cap > 0) logit = rows->soft_cap * tanhf(logit / rows->soft_cap);
    return rows->padding ? logit + rows->padding[class_id] : logit;
}

INLINE void prefetch_rows(const struct exact_rows *rows, const int64_t *ids, int64_t count) {
    int64_t size = rows->dim * (int64_t)sizeof(float);
    for (int64_t i = 0; i < count; i++)
        prefetch_bytes(rows->weight + ids[i] * rows->dim, size < ROW_PREFETCH_BYTES ? size : ROW_PREFETCH_BYTES);
}

/* Logits of `count` classes for one context. */
static void score_row_exactly(const struct exact_rows *rows, const float *context, const int64_t *ids, float *logits,
                              int64_t count) {
    int64_t i = 0;
    for (; i + ROWS_TOGETHER <= count; i += ROWS_TOGETHER) {
        const float *together[ROWS_TOGETHER];
        int64_t left = count - i - ROWS_TOGETHER;
        prefetch_rows(rows, ids + i + ROWS_TOGETHER, left < ROWS_TOGETHER ? left : ROWS_TOGETHER);
        for (int row = 0; row < ROWS_TOGETHER; row++) together[row] = rows->weight + ids[i + row] * rows->dim;
        multiply_rows_together(together, ROWS_TOGETHER, context, rows->dim, logits + i);
    }
    for (; i < count; i++) logits[i] = dot(rows->weight + ids[i] * rows->dim, context, rows->dim);
    for (i = 0; i < count; i++) logits[i] = finish_exact_logit(rows, ids[i], logits[i]);
}

static int64_t score_exactly(const struct exact_rows *rows, const float *contexts, const int64_t *ids, float *logits,
                             int64_t count, int64_t first, int64_t last) {
    if (!are_classes(ids + first, last - first, rows->classes)) return 0;
    while (first < last) {
        int64_t row = first / count, end = (row + 1) * count < last ? (row + 1) * count : last;
        score_row_exactly(rows, contexts + row * rows->dim, ids + first, logits + first, end - first);
        first = end;
    }
    return 1;
}

#endif
