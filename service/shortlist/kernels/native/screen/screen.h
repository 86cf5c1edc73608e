/* Rows of plan `screen`, over the clusters that a screen, or the expert that a gate picks for each.
 *
 * Weights are read where they are mapped: a graph would slice them out of all, which copies them.
 */
#ifndef SHORTLIST_SCREEN_H
#define SHORTLIST_SCREEN_H

#include "row_answers.h"
#include "screen/choices.h"
#include "screen/second_stage.h"

/* The rows in the order of their best sets: rows of one set then follow one another and find its weights in the cache.
 * best: [count], ends: [sets + 1], overwritten. */
static void sort_rows(const float *scores, int64_t count, int64_t n, int64_t *best, int64_t *ends, int32_t *order) {
    int64_t other;
    memset(ends, 0, (n + 1) * sizeof *ends);
    for (int64_t row = 0; row < count; row++) {
        find_two_best(scores + row * n, n, best + row, &other);
        ends[best[row] + 1]++;
    }
    for (int64_t i = 1; i <= n; i++) ends[i] += ends[i - 1];
    for (int64_t row = 0; row < count; row++) order[ends[best[row]]++] = (int32_t)row;
}

/* Scores [count, sets] of the sets, and the rows in the order of their best sets. */
static int64_t order_rows(const struct sets *sets, const float *contexts, int64_t count, float *scores,
                          int32_t *order) {
    int64_t n = sets->sets, *memory = malloc((count + n + 1) * sizeof *memory);
    struct choice_scratch scratch = {0};
    int64_t is_done = memory && allocate_choices(sets, &scratch);
    for (int64_t row = 0; is_done && row < count; row++)
        score_choices(sets, contexts + row * sets->dim, &scratch, scores + row * n);
    if (count == 1)
        order[0] = 0;
    else if (is_done)
        sort_rows(scores, count, n, memory, memory + count, order);
    free(scratch.previews);
    free(memory);
    return is_done;
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

/* One row over its best cluster, or its best two; products: a place for the logits of both. bits: as `drop_known`
 * wants them. */
static void score_clusters_of_row(const struct sets *sets, const struct screen_limits *limits, const float *context,
                                  const float *scores, float *products, uint64_t *bits,
                                  const struct set_results *results, int64_t row) {
    int64_t best, other, k = results->k, *ids = results->ids + row * k;
    int64_t clusters = choose_clusters(sets, limits, scores, &best, &other);
    float *logits = results->logits + row * k;
    clear_row(results, row);
    if (clusters <= 0) {
        results->scored[row] = (int32_t)clusters;
        return;
    }
    int64_t first = sets->offsets[best], size = sets->offsets[best + 1] - first, second = sets->offsets[other];
    int64_t more = clusters == 2 ? sets->offsets[other + 1] - second : 0, new = 0;
    const int64_t *best_ids = sets->ids + first, *other_ids = sets->ids + second;
    score_cluster(sets, context, first, size, products);
    take_best(products, best_ids, size, logits, ids, k);
    if (more) {
        score_cluster(sets, context, second, more, products + size);
        new = drop_known(best_ids, size, other_ids, more, bits, products + size);
        take_best(products + size, other_ids, more, logits, ids, k);
    }
    float tail = take_tail(sets, best, size + new);
    results->normalizers[row] = logits[0] + logf(sum_exp(products, size + more, logits[0])) + tail;
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

/* Places for a row's intermediate results: logits of two clusters, an expert's factors, or those of a second stage. */
struct set_scratch {
    float *products, *factors;
    uint64_t *bits; /* of all classes, of clusters alone; zeros but in `drop_known` */
    struct preview_scratch previews;
};

static int allocate_set_scratch(const struct sets *sets, struct set_scratch *scratch) {
    if (sets->stage) return allocate_previews(sets, &scratch->previews);
    int64_t words = sets->are_experts ? 0 : count_words(sets->classes);
    scratch->bits = malloc(words * sizeof(uint64_t) + (2 * sets->largest + sets->lines) * sizeof(float));
    if (!scratch->bits) return 0;
    memset(scratch->bits, 0, words * sizeof *scratch->bits);
    scratch->products = (float *)(scratch->bits + words), scratch->factors = scratch->products + 2 * sets->largest;
    return 1;
}

static void free_set_scratch(const struct sets *sets, struct set_scratch *scratch) {
    if (sets->stage)
        give_memory(scratch->previews.ids);
    else
        free(scratch->bits);
}

INLINE void score_row_of_sets(const struct sets *sets, const struct screen_limits *limits, const float *context,
                              const float *scores, const struct set_scratch *scratch, const struct set_results *results,
                              int64_t row) {
    if (sets->are_experts)
        score_expert_of_row(sets, context, scores, scratch->factors, scratch->products, results, row);
    else if (sets->stage)
        score_previews_of_row(sets, limits, context, scores, &scratch->previews, results, row);
    else
        score_clusters_of_row(sets, limits, context, scores, scratch->products, scratch->bits, results, row);
}

static int64_t score_sets(const struct sets *sets, const struct screen_limits *limits, const float *contexts,
                          const float *scores, const int32_t *order, int64_t *ids, float *logits, float *normalizers,
                          int32_t *scored, int64_t first, int64_t last) {
    struct set_results results = {ids, logits, normalizers, scored, limits->k};
    struct set_scratch scratch;
    if (!allocate_set_scratch(sets, &scratch)) return 0;
    for (int64_t i = first; i < last; i++) {
        int64_t row = order[i];
        score_row_of_sets(sets, limits, contexts + row * sets->dim, scores + row * sets->sets, &scratch, &results, row);
    }
    free_set_scratch(sets, &scratch);
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

struct set_answers {
    const struct sets *sets;
    const struct screen_limits *limits;
    const float *scores;
    const int32_t *order;
    struct row_answers rows;
};

/* A part: the next rows in their order. */
static int answer_part_of_sets(void *shared, int64_t part) {
    const struct set_answers *answers = shared;
    const struct row_answers *rows = &answers->rows;
    int64_t first = part * rows->part_rows, last = end_part(rows, part);
    int all = (int)score_sets(answers->sets, answers->limits, rows->contexts, answers->scores, answers->order,
                              rows->ids, rows->logprobs, rows->normalizers, rows->scored, first, last);
    for (int64_t i = first; all && i < last; i++) all = finish_answer(rows, answers->order[i]);
    return all;
}

static int64_t answer_rows_of_sets(const struct request *request, const float *contexts, int64_t *ids) {
    struct set_answers answers = {.sets = request->head, .limits = request->search};
    const struct sets *sets = answers.sets;
    int64_t count = request->rows;
    if (!are_finite(contexts, count * sets->dim) ||
        !open_answers(&answers.rows, request, contexts, answers.limits->k, ids))
        return 0;
    float *scores = malloc(count * (sets->sets * sizeof *scores + sizeof(int32_t)));
    int32_t *order = (int32_t *)(scores + count * sets->sets);
    answers.scores = scores, answers.order = order;
    struct shared_work work = {answer_part_of_sets, &answers, answers.rows.parts};
    int64_t done =
        scores && order_rows(sets, contexts, count, scores, order) && run_parts(&work, request->threads);
    free(scores);
    free(answers.rows.normalizers);
    return done;
}

#endif
