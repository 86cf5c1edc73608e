/* Answers of single rows by the whole layer, whose weights are read where they are mapped. */
#ifndef SHORTLIST_DENSE_LAYER_H
#define SHORTLIST_DENSE_LAYER_H

#include "exact/dense_rows.h"
#include "exact/exact_rows.h"

enum { RUN_CLASSES = 1024 }; /* that one thread scores before the next ones, a whole number of LANES */

struct layer_work {
    const struct exact_rows *layer;
    const float *context;
    float *logits;
};

#ifndef HAS_SUMS_OF_ROWS
INLINE void add_lanes_of_rows(const floats sums[LANES][PARTS], float *products) {
    for (int row = 0; row < LANES; row++) products[row] = add_lanes(sums[row]);
}
#endif

/* Products of sixteen rows with one vector [size, LANES or more], each as `dot` gives it. last: the last LANES numbers
 * of the vector, zeros in the place of those that whole LANES before them hold. */
INLINE void multiply_sixteen_rows(const float *rows, const float *vector, const float *last, int64_t size,
                                  float *products) {
    floats sums[LANES][PARTS] = {0};
    int64_t whole = size - size % LANES;
#pragma GCC unroll 16
    for (int row = 0; row < LANES; row++, rows += size) {
        for (int64_t i = 0; i < whole; i += LANES) add_products(sums[row], rows + i, vector + i);
        if (whole < size) add_products(sums[row], rows + size - LANES, last);
    }
    add_lanes_of_rows(sums, products);
}

/* Applies bias, logit scale and padding to the logits of n classes from `first` on. */
static void finish_run(const struct exact_rows *layer, int64_t first, int64_t n, float *logits) {
    for (int64_t i = 0; i < n && layer->bias; i++) logits[i] += layer->bias[first + i];
    for (int64_t i = 0; i < n && layer->logit_scale != 1; i++) logits[i] *= layer->logit_scale;
    for (int64_t i = 0; i < n && layer->padding; i++) logits[i] += layer->padding[first + i];
}

static int score_run(void *shared, int64_t run) {
    const struct layer_work *work = shared;
    const struct exact_rows *layer = work->layer;
    int64_t first = run * RUN_CLASSES, left = layer->classes - first, n = left < RUN_CLASSES ? left : RUN_CLASSES, i;
    int64_t dim = layer->dim;
    const float *rows = layer->weight + first * dim;
    float *logits = work->logits + first, last[LANES];
    for (i = 0; i < LANES; i++) last[i] = i < LANES - dim % LANES ? 0 : work->context[dim - LANES + i];
    for (i = 0; i + LANES <= n && dim >= LANES; i += LANES)
        multiply_sixteen_rows(rows + i * dim, work->context, last, dim, logits + i);
    for (; i < n; i++) logits[i] = dot(rows + i * dim, work->context, dim);
    finish_run(layer, first, n, logits);
    return 1;
}

static void score_layer(const struct exact_rows *layer, const float *context, float *logits, int64_t threads) {
    struct layer_work work = {layer, context, logits};
    int64_t runs = (layer->classes + RUN_CLASSES - 1) / RUN_CLASSES;
    run_parts(&(struct shared_work){score_run, &work, runs}, threads);
}

static int64_t answer_row_of_layer(const struct request *request, const float *context, int64_t *ids) {
    const struct exact_rows *layer = request->head;
    float *logits = malloc(layer->classes * sizeof *logits);
    int64_t is_answered = 0;
    if (logits) {
        score_layer(layer, context, logits, request->threads);
        is_answered = answer_rows_of_logits(request, context, layer->dim, logits, layer->classes, ids);
    }
    free(logits);
    return is_answered;
}

#endif
