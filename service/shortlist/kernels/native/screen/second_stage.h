/* Rows of plan `screen` with a second stage: int8 previews of all classes of the clusters, exact logits of the best. */
#ifndef SHORTLIST_SECOND_STAGE_H
#define SHORTLIST_SECOND_STAGE_H

#include "exact/exact_rows.h"
#include "primitives/digits.h"
#include "primitives/select.h"
#include "screen/clusters.h"
#include "system/memory.h"

/* Intermediate results of a row, allocated once for all rows of a call; every place is for two clusters. */
struct preview_scratch {
    float *logits, *spare, *exact; /* previews of all classes; what choosing the best overwrites; exact logits */
    float *projected, *rest;       /* rest: of the context, what its digits leave */
    int8_t *levels, *coarse, *fine;
    int64_t *ids;                  /* of the classes that are scored exactly, and their places among all */
    int32_t *places;
    uint64_t *bits;                /* of all classes, zeros but in `drop_known` */
};

static int64_t count_preview_columns(const struct second_stage *stage) { return stage->lines * LANE_BYTES; }

/* 0 where there is no memory; `ids` is what has to be given back. */
static int allocate_previews(const struct sets *sets, struct preview_scratch *scratch) {
    const struct int8_columns *projection = &sets->stage->projection;
    int64_t classes = 2 * sets->largest + LANES, columns = count_preview_columns(sets->stage);
    int64_t digits = projection->lines * LANE_BYTES;
    if (columns < projection->blocks * LANES) columns = projection->blocks * LANES;
    int64_t class_bytes = sizeof(int64_t) + 3 * sizeof(float) + sizeof(int32_t);
    int64_t words = count_words(sets->classes);
    char *memory = take_memory(classes * class_bytes + columns * (sizeof(float) + 1) + digits * (sizeof(float) + 2) +
                               words * sizeof(uint64_t));
    if (!memory) return 0;
    scratch->ids = (int64_t *)memory, scratch->bits = (uint64_t *)(scratch->ids + classes);
    memset(scratch->bits, 0, words * sizeof *scratch->bits);
    scratch->logits = (float *)(scratch->bits + words), scratch->spare = scratch->logits + classes;
    scratch->exact = scratch->spare + classes, scratch->projected = scratch->exact + classes;
    scratch->rest = scratch->projected + columns, scratch->places = (int32_t *)(scratch->rest + digits);
    scratch->levels = (int8_t *)(scratch->places + classes), scratch->coarse = scratch->levels + columns;
    scratch->fine = scratch->coarse + digits;
    memset(scratch->coarse, 0, 2 * digits); /* beyond the context they stay 0 */
    return 1;
}

/* What a level of 1 of the projected context stands for. */
static float project_context_of_row(const struct sets *sets, const float *context,
                                    const struct preview_scratch *scratch) {
    struct digit_steps steps = split_digits(context, sets->dim, scratch->coarse, scratch->fine, scratch->rest);
    multiply_columns(&sets->stage->projection, scratch->coarse, scratch->fine, steps, scratch->projected);
    return quantize(scratch->projected, count_preview_columns(sets->stage), scratch->levels);
}

/* Previews of all classes of one cluster, from class `first` of all sets on. */
static void preview_cluster(const struct sets *sets, int64_t cluster, float row_scale, int32_t shift,
                            const struct preview_scratch *scratch, float *logits) {
    const struct second_stage *stage = sets->stage;
    int64_t n = sets->offsets[cluster + 1] - sets->offsets[cluster], block = stage->blocks[cluster];
    for (int64_t i = 0; i < n; i += LANES, block++) {
        int32_t sums[LANES];
        multiply_block(stage->previews + block * stage->lines * LINE_BYTES, scratch->levels, stage->lines, sums);
        for (int64_t lane = 0, at = block * LANES; lane < LANES; lane += WIDTH, at += WIDTH) {
            floats product = convert_ints(load_ints(sums + lane) - shift) * load_floats(stage->scale + at) * row_scale;
            store_floats(logits + i + lane, stage->bias ? product + load_floats(stage->bias + at) : product);
        }
    }
    finish_logits(logits, n, sets->logit_scale, sets->soft_cap);
}

/* One row over its best cluster, or its best two. */
static void score_previews_of_row(const struct sets *sets, const struct screen_limits *limits, const float *context,
                                  const float *scores, const struct preview_scratch *scratch,
                                  const struct set_results *results, int64_t row) {
    int64_t best, other, k = results->k, clusters = choose_clusters(sets, limits, scores, &best, &other);
    clear_row(results, row);
    if (clusters <= 0) {
        results->scored[row] = (int32_t)clusters;
        return;
    }
    int64_t first = sets->offsets[best], size = sets->offsets[best + 1] - first, second = sets->offsets[other];
    int64_t more = clusters == 2 ? sets->offsets[other + 1] - second : 0, new = 0;
    float row_scale = project_context_of_row(sets, context, scratch), *logits = scratch->logits;
    int32_t shift = WEIGHT_ZERO_POINT * sum_levels(scratch->levels, count_preview_columns(sets->stage));
    preview_cluster(sets, best, row_scale, shift, scratch, logits);
    if (more) {
        preview_cluster(sets, other, row_scale, shift, scratch, logits + size);
        new = drop_known(sets->ids + first, size, sets->ids + second, more, scratch->bits, logits + size);
    }
    int64_t wanted = limits->full_view < size + new ? limits->full_view : size + new;
    int64_t count = select_best(logits, size + more, wanted, scratch->places, scratch->spare);
    for (int64_t i = 0; i < count; i++) {
        int64_t place = scratch->places[i];
        scratch->ids[i] = place < size ? sets->ids[first + place] : sets->ids[second + place - size];
    }
    score_row_exactly(sets->stage->rows, context, scratch->ids, scratch->exact, count);
    for (int64_t i = 0; i < count; i++) logits[scratch->places[i]] = scratch->exact[i];
    take_best(scratch->exact, scratch->ids, count, results->logits + row * k, results->ids + row * k, k);
    results->normalizers[row] = log_sum_exp(logits, size + more) + take_tail(sets, best, size + new);
    results->scored[row] = (int32_t)count;
}

#endif
