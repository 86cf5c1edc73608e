/* The search of plan `grouped`: a row's whole search, from the context to its k best classes.
 *
 * Groups are opened by their centres, blocks in them chosen by theirs, classes in these by previews; the candidates are
 * scored by int8 rows, and the best of them exactly. Each step equals the operators of the plan's graphs but for
 * rounding, and for up to a 32nd more groups and blocks.
 */
#ifndef SHORTLIST_GROUPED_H
#define SHORTLIST_GROUPED_H

#include "digits.h"
#include "exponentials.h"
#include "kernels.h"
#include "select.h"

#include <stdlib.h>

enum {
    PREFETCH_BLOCKS = 4,      /* how many ahead of the current one */
    PREFETCH_BLOCK_ROWS = 12,
};

/* Intermediate results of a search, allocated once for all rows of a call. */
struct scratch {
    void *memory;
    int8_t *coarse, *fine;               /* the context in two digits */
    int8_t *levels;                      /* the projected context in whole numbers */
    float *rest, *projected;             /* what digits leave of the context; the projected context */
    float *groups, *block_scores;        /* scores of all groups, and of the blocks chosen so far */
    float *scores, *values, *spare;      /* previews; logits of the candidates; what choosing the best overwrites */
    int32_t *block_ids, *block_sizes;    /* the blocks chosen so far */
    int32_t *positions, *exact;          /* of the candidates in `order`; indices of those that are scored exactly */
};

INLINE int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

/* `count` items of `size` bytes from the next line on; the place after them is remembered. */
INLINE void *take(uintptr_t *place, int64_t count, int64_t size) {
    uintptr_t start = *place;
    *place += (count * size + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    return (void *)start;
}

/* Lays the scratch out from `place` on; returns how many bytes it takes. */
static int64_t lay_out_scratch(const struct grouped *head, struct scratch *scratch, uintptr_t place) {
    uintptr_t start = place;
    int64_t columns = (head->preview_lines + WEIGHTS_PER_BYTE * head->two_bit_lines) * LANE_BYTES;
    int64_t levels = max_of(max_of(columns, head->centre_lines * LANE_BYTES),
                            max_of(head->block_row_lines * LINE_BYTES, head->projection_blocks * LANES));
    int64_t digits = max_of(head->projection_lines * LANE_BYTES, head->code_lines * LINE_BYTES);
    int64_t classes = head->blocks * LANES;
    scratch->coarse = take(&place, digits, 1);
    scratch->fine = take(&place, digits, 1);
    scratch->levels = take(&place, levels, 1);
    scratch->rest = take(&place, head->dim, sizeof(float));
    scratch->projected = take(&place, head->projection_blocks * LANES, sizeof(float));
    scratch->groups = take(&place, head->centre_blocks * LANES, sizeof(float));
    scratch->block_scores = take(&place, head->blocks, sizeof(float));
    scratch->block_ids = take(&place, head->blocks, sizeof(int32_t));
    scratch->block_sizes = take(&place, head->blocks, sizeof(int32_t));
    scratch->positions = take(&place, classes, sizeof(int32_t));
    scratch->scores = take(&place, classes, sizeof(float));
    scratch->values = take(&place, classes, sizeof(float));
    scratch->spare = take(&place, classes, sizeof(float));
    scratch->exact = take(&place, classes, sizeof(int32_t));
    return (int64_t)(place - start);
}

/* Digits and levels beyond those of the context stay zeros. */
static int allocate_scratch(const struct grouped *head, struct scratch *scratch) {
    int64_t size = lay_out_scratch(head, scratch, 0);
    if (!(scratch->memory = malloc(size + LINE_BYTES))) return 0;
    lay_out_scratch(head, scratch, ((uintptr_t)scratch->memory + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES);
    memset(scratch->coarse, 0, (char *)scratch->rest - (char *)scratch->coarse);
    return 1;
}

/* The products of the projection's columns and a context. The digits are finer than the levels that `projected` is
 * rounded to later, unless one number of the context is hundreds of times the others. */
static void project_context(const struct grouped *head, struct digit_steps steps, const struct scratch *scratch) {
    for (int64_t block = 0; block < head->projection_blocks; block++) {
        int32_t coarse_sums[LANES], fine_sums[LANES];
        const uint8_t *weights = head->projection + block * head->projection_lines * LINE_BYTES;
        multiply_block_by_digits(weights, scratch->coarse, scratch->fine, head->projection_lines, coarse_sums, fine_sums);
        for (int64_t lane = 0, i = LANES * block; lane < LANES; lane++, i++)
            scratch->projected[i] = combine_sums(coarse_sums[lane], fine_sums[lane], head->projection_scale[i], steps);
    }
}

/* (weights @ levels - shift) * scale of one block. */
INLINE void score_block(const uint8_t *weights, const int8_t *levels, int64_t lines, int32_t shift, const float *scale,
                        float *scores) {
    int32_t sums[LANES];
    multiply_block(weights, levels, lines, sums);
    for (int lane = 0; lane < LANES; lane++) scores[lane] = (float)(sums[lane] - shift) * scale[lane];
}

/* The same for 2-bit weights u that stand for 2 u - 3, added to `scores`. */
INLINE void add_two_bit_scores(const uint8_t *weights, const int8_t *levels, int64_t lines, int32_t shift,
                               const float *scale, float *scores) {
    int32_t sums[LANES];
    multiply_two_bit_block(weights, levels, lines, sums);
    for (int lane = 0; lane < LANES; lane++) scores[lane] += (float)(2 * sums[lane] - shift) * scale[lane];
}

static void score_groups(const struct grouped *head, float row_scale, const struct scratch *scratch) {
    int64_t lines = head->centre_lines;
    int32_t shift = WEIGHT_ZERO_POINT * sum_levels(scratch->levels, lines * LANE_BYTES);
    for (int64_t i = 0; i < head->centre_blocks; i++)
        score_block(head->centres + i * lines * LINE_BYTES, scratch->levels, lines, shift,
                    head->centre_scale + LANES * i, scratch->groups + LANES * i);
    for (int64_t i = 0; i < head->groups; i++) scratch->groups[i] = scratch->groups[i] * row_scale + head->reach[i];
}

/* Writes the blocks of the best groups to block_ids; returns how many. */
static int64_t open_groups(const struct grouped *head, int64_t opened, float row_scale, const struct scratch *scratch) {
    int64_t count = 0;
    score_groups(head, row_scale, scratch);
    float threshold = find_threshold(scratch->groups, head->sizes, head->groups, opened, opened / SURPLUS_DIVISOR);
    int64_t reaching = select_reaching(scratch->groups, head->groups, threshold, scratch->positions);
    for (int64_t i = 0; i < reaching; i++) {
        int32_t group = scratch->positions[i];
        for (int64_t block = head->group_blocks[group]; block < head->group_blocks[group + 1]; block++)
            scratch->block_ids[count++] = (int32_t)block;
    }
    return count;
}

static void score_block_rows(const struct grouped *head, int64_t count, float row_scale, const struct scratch *scratch) {
    int64_t lines = head->block_row_lines, size = lines * LINE_BYTES;
    int32_t shift = WEIGHT_ZERO_POINT * sum_levels(scratch->levels, size);
    for (int64_t i = 0; i < count; i++) {
        int64_t block = scratch->block_ids[i];
        if (i + PREFETCH_BLOCK_ROWS < count)
            prefetch_bytes(head->block_rows + scratch->block_ids[i + PREFETCH_BLOCK_ROWS] * size, size);
        int32_t product = multiply_row(head->block_rows + block * size, scratch->levels, lines) - shift;
        float score = (float)product * head->block_scale[block];
        scratch->block_scores[i] = score * row_scale + head->block_reach[block];
        scratch->block_sizes[i] = head->filled[block];
    }
}

/* Keeps the best of the first `count` blocks of block_ids there; returns how many. */
static int64_t choose_blocks(const struct grouped *head, int64_t previewed, float row_scale,
                             const struct scratch *scratch, int64_t count) {
    score_block_rows(head, count, row_scale, scratch);
    float threshold = find_threshold(scratch->block_scores, scratch->block_sizes, count, previewed,
                                     previewed / SURPLUS_DIVISOR);
    int64_t chosen = select_reaching(scratch->block_scores, count, threshold, scratch->positions);
    for (int64_t i = 0; i < chosen; i++) scratch->block_ids[i] = scratch->block_ids[scratch->positions[i]];
    return chosen;
}

/* Adds biases in units of `row_scale`; lanes of a block that hold no classes get -inf. */
INLINE void finish_block(const struct grouped *head, int64_t block, float row_scale, float *scores) {
    if (head->bias)
        for (int lane = 0; lane < LANES; lane++) scores[lane] += head->bias[LANES * block + lane] / row_scale;
    for (int lane = head->filled[block]; lane < LANES; lane++) scores[lane] = -INFINITY;
}

/* Previews of the classes of the first `count` blocks of block_ids. */
static void score_previews(const struct grouped *head, int64_t count, float row_scale, const struct scratch *scratch) {
    int64_t lines = head->preview_lines, fine_lines = head->two_bit_lines;
    int64_t size = (2 + lines + fine_lines) * LINE_BYTES;
    const int8_t *levels = scratch->levels, *fine_levels = levels + lines * LANE_BYTES;
    int32_t shift = WEIGHT_ZERO_POINT * sum_levels(levels, lines * LANE_BYTES);
    int32_t fine_shift = TWO_BIT_MAX * sum_levels(fine_levels, fine_lines * WEIGHTS_PER_BYTE * LANE_BYTES);
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *record = head->previews + scratch->block_ids[i] * size, *weights = record + 2 * LINE_BYTES;
        const float *scale = (const float *)record;
        float *scores = scratch->scores + LANES * i;
        if (i + PREFETCH_BLOCKS < count)
            prefetch_bytes(head->previews + scratch->block_ids[i + PREFETCH_BLOCKS] * size, size);
        score_block(weights, levels, lines, shift, scale, scores);
        if (fine_lines)
            add_two_bit_scores(weights + lines * LINE_BYTES, fine_levels, fine_lines, fine_shift, scale + LANES, scores);
        finish_block(head, scratch->block_ids[i], row_scale, scores);
    }
}

/* Writes the positions of a row's candidates, ascending, to `positions`; returns how many. */
static int64_t choose_candidates(const struct grouped *head, const struct grouped_limits *limits,
                                 struct digit_steps steps, const struct scratch *scratch) {
    project_context(head, steps, scratch);
    float row_scale = quantize(scratch->projected, head->projection_blocks * LANES, scratch->levels);
    int64_t blocks = open_groups(head, limits->opened, row_scale, scratch);
    blocks = choose_blocks(head, limits->previewed, row_scale, scratch, blocks);
    score_previews(head, blocks, row_scale, scratch);
    int32_t *positions = scratch->positions;
    int64_t count = select_best(scratch->scores, LANES * blocks, limits->candidates, positions, scratch->spare);
    for (int64_t i = 0; i < count; i++)
        positions[i] = head->firsts[scratch->block_ids[positions[i] / LANES]] + positions[i] % LANES;
    return count;
}

INLINE float finish_logit(const struct grouped *head, float product, int64_t position) {
    float bias = head->code_bias ? head->code_bias[position] : 0, logit = (product + bias) * head->logit_scale;
    return head->soft_cap > 0 ? head->soft_cap * tanhf(logit / head->soft_cap) : logit;
}

/* Logits, by int8 rows, of `count` candidates. */
static void score_candidates(const struct grouped *head, struct digit_steps steps, const struct scratch *scratch,
                             int64_t count) {
    int64_t size = head->code_lines * LINE_BYTES;
    for (int64_t i = 0; i < count; i++) {
        int64_t position = scratch->positions[i];
        int32_t sums[2];
        if (i + CODE_PREFETCH_ROWS < count)
            prefetch_bytes(head->codes + scratch->positions[i + CODE_PREFETCH_ROWS] * size, size);
        multiply_row_by_digits(head->codes + position * size, scratch->coarse, scratch->fine, head->code_lines, sums);
        float product = combine_sums(sums[0], sums[1], head->code_scale[position], steps);
        scratch->values[i] = finish_logit(head, product, position);
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

/* Writes the k best of those with the first `count` indices in `exact`; equal ones by id. */
static void write_best(const struct grouped *head, const struct scratch *scratch, int64_t count, int64_t k,
                       int64_t *ids, float *logits) {
    int32_t *exact = scratch->exact;
    for (int64_t rank = 0; rank < k; rank++) {
        int64_t top = rank;
        for (int64_t i = rank + 1; i < count; i++) {
            float value = scratch->values[exact[i]], best = scratch->values[exact[top]];
            int64_t id = head->order[scratch->positions[exact[i]]], best_id = head->order[scratch->positions[exact[top]]];
            if (value > best || (value == best && id < best_id)) top = i;
        }
        int32_t index = exact[top];
        exact[top] = exact[rank], exact[rank] = index;
        ids[rank] = head->order[scratch->positions[index]], logits[rank] = scratch->values[index];
    }
}

/* How many classes the head has: positions count them block by block. */
static int64_t count_classes(const struct grouped *head) {
    int64_t last = head->blocks - 1;
    return (int64_t)head->firsts[last] + head->filled[last];
}

/* The log-sum of the candidates' logits and of an estimate of the rest, which a product with the context gives. Where
 * all classes are candidates, nothing is left to estimate. */
static float estimate_normalizer(const struct grouped *head, const float *context, const float *values, int64_t count) {
    float inside = log_sum_exp(values, count);
    if (count == count_classes(head)) return inside;
    float tail = dot(head->tail, context, head->dim) + head->tail_offset, limit = inside + head->tail_limit;
    return log_add_exp(inside, limit < tail ? limit : tail);
}

static void search_row(const struct grouped *head, const struct grouped_limits *limits, const float *context,
                       const struct scratch *scratch, int64_t *ids, float *logits, float *normalizer, int32_t *scored) {
    int64_t k = limits->k;
    struct digit_steps steps = split_digits(context, head->dim, scratch->coarse, scratch->fine, scratch->rest);
    int64_t count = choose_candidates(head, limits, steps, scratch);
    score_candidates(head, steps, scratch, count);
    float threshold = find_threshold(scratch->values, NULL, count, limits->full_view, 0);
    int64_t exact_count = select_reaching(scratch->values, count, threshold, scratch->exact);
    *normalizer = NAN, *scored = (int32_t)count;
    if (exact_count < k) {
        for (int64_t i = 0; i < k; i++) ids[i] = -1, logits[i] = -INFINITY;
        return;
    }
    rescore_exactly(head, context, scratch, exact_count);
    *normalizer = estimate_normalizer(head, context, scratch->values, count);
    write_best(head, scratch, exact_count, k, ids, logits);
}

static int64_t search_rows(const struct grouped *head, const struct grouped_limits *limits, const float *contexts,
                           int64_t *ids, float *logits, float *normalizer, int32_t *scored, int64_t first,
                           int64_t last) {
    struct scratch scratch;
    if (!allocate_scratch(head, &scratch)) return 0;
    for (int64_t row = first; row < last; row++)
        search_row(head, limits, contexts + row * head->dim, &scratch, ids + row * limits->k, logits + row * limits->k,
                   normalizer + row, scored + row);
    free(scratch.memory);
    return 1;
}

#endif
