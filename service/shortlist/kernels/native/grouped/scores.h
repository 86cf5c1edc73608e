/* Logits of candidates in plan `grouped`: of all by int8 rows, of the best exactly. */
#ifndef SHORTLIST_GROUPED_SCORES_H
#define SHORTLIST_GROUPED_SCORES_H

#include "grouped/scratch.h"
#include "primitives/digits.h"
#include "primitives/select.h"

enum {
    CODE_ERRORS = 4, /* standard deviations by which int8 logits may be off: their rows are rounded to code_scale */
};

/* A logit from the product with its bias. */
INLINE float scale_logit(const struct grouped *head, float sum) {
    float logit = sum * head->logit_scale;
    return head->soft_cap > 0 ? head->soft_cap * tanhf(logit / head->soft_cap) : logit;
}

INLINE float finish_logit(const struct grouped *head, float product, int64_t position) {
    return scale_logit(head, product + (head->code_bias ? head->code_bias[position] : 0));
}

/* Logits, by int8 rows, of `count` candidates. common: what these rows lack of every class's product. */
static void score_candidates(const struct grouped *head, struct digit_steps steps, float common,
                             const struct scratch *scratch, int64_t count) {
    int64_t size = head->code_lines * LINE_BYTES;
    for (int64_t i = 0; i < count; i++) {
        int64_t position = scratch->positions[i];
        int32_t sums[2];
        if (i + CODE_PREFETCH_ROWS < count) {
            int64_t next = scratch->positions[i + CODE_PREFETCH_ROWS];
            prefetch_bytes(head->codes + next * size, size);
            __builtin_prefetch(head->code_scale + next);
        }
        multiply_row_by_digits(head->codes + position * size, scratch->coarse, scratch->fine, head->code_lines, sums);
        float product = combine_sums(sums[0], sums[1], head->code_scale[position], steps);
        scratch->values[i] = finish_logit(head, product + common, position);
    }
}

/* Replaces the values with the first `count` indices in `exact` by exact logits. */
static void rescore_exactly(const struct grouped *head, const float *context, const struct scratch *scratch,
                            int64_t count) {
    const int32_t *positions = scratch->positions, *exact = scratch->exact;
    for (int64_t i = 0; i < count; i++) /* first every row's first line: each needs a look-up in the page tables */
        __builtin_prefetch(head->rows + head->order[positions[exact[i]]] * head->dim, 0, 3);
    for (int64_t i = 0; i < count; i++)
        prefetch_bytes(head->rows + head->order[positions[exact[i]]] * head->dim, head->dim * sizeof(float));
    for (int64_t i = 0; i < count; i += ROWS_TOGETHER) {
        const float *rows[ROWS_TOGETHER];
        float products[ROWS_TOGETHER];
        for (int64_t row = 0; row < ROWS_TOGETHER; row++) { /* beyond the last that one again */
            int32_t index = exact[i + row < count ? i + row : count - 1];
            rows[row] = head->rows + head->order[positions[index]] * head->dim;
        }
        multiply_rows_together(rows, ROWS_TOGETHER, context, head->dim, products);
        for (int64_t row = 0; row < ROWS_TOGETHER && i + row < count; row++)
            scratch->values[exact[i + row]] = finish_logit(head, products[row], positions[exact[i + row]]);
    }
}

/* Scores the best `full_view` of `count` candidates exactly, which have values by int8 rows; returns how many. */
static int64_t rescore_best(const struct grouped *head, const float *context, const struct scratch *scratch,
                            int64_t count, int64_t full_view) {
    float threshold = find_threshold(scratch->values, NULL, count, full_view, 0);
    int64_t exact_count = select_reaching(scratch->values, count, threshold, scratch->exact);
    rescore_exactly(head, context, scratch, exact_count);
    return exact_count;
}

/* Scores further ones of `count` candidates exactly: those whose int8 logits, which `spare` holds and which are then
 * overwritten, may be off by so much that they reach the k-th exact logit. Returns how many are scored exactly. */
static int64_t rescore_doubtful(const struct grouped *head, const float *context, const struct scratch *scratch,
                                int64_t count, int64_t exact_count, int64_t k) {
    if (exact_count < k || exact_count == count) return exact_count;
    for (int64_t i = 0; i < exact_count; i++) scratch->exact_values[i] = scratch->values[scratch->exact[i]];
    float level = find_threshold(scratch->exact_values, NULL, exact_count, k, 0);
    float error = CODE_ERRORS * head->logit_scale * sqrtf(dot(context, context, head->dim) / 12);
    for (int64_t i = 0; i < count; i++) scratch->spare[i] += error * head->code_scale[scratch->positions[i]];
    for (int64_t i = 0; i < exact_count; i++) scratch->spare[scratch->exact[i]] = INFINITY; /* they stay */
    if (count_reaching(scratch->spare, NULL, count, level) <= exact_count) return exact_count;
    exact_count = select_reaching(scratch->spare, count, level, scratch->exact);
    rescore_exactly(head, context, scratch, exact_count);
    return exact_count;
}

#endif
