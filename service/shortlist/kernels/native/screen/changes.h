/* Answers of a layer merged with what became of it since: classes that are hidden, and items that were added. */
#ifndef SHORTLIST_CHANGES_H
#define SHORTLIST_CHANGES_H

#include "screen/second_stage.h"

enum {
    MOST_PREVIEWED_EXACTLY = 256, /* rows of a set, the heaviest by their previews, whose logits are exact */
    MOST_ALIKE = 1024             /* previews, equal ones among them; beside more, none is exact */
};

#define DOUBTFUL_ESTIMATE 1e-4 /* of a normaliser that is left: less is rounding, and summed anew by items/search.py */
#define PREVIEW_SLACK 1.001f   /* float32 sums are off by far less than that of what they bound */

/* What was scored of a set. logits: exact ones [count] of the rows at `places`, of the first rows where that is NULL.
 * bound: no other row has a logit over it. log_sum: over all rows. */
struct set_scores {
    const float *logits;
    const int32_t *places;
    int64_t count;
    float bound, log_sum;
};

/* How many lines a block of previews of whole rows has. */
static int64_t count_row_lines(int64_t dim) { return (dim + LANE_BYTES - 1) / LANE_BYTES; }

/* For sets of up to so many rows, whether they have previews or not. */
static int allocate_for_rows(int64_t count, int64_t dim, struct preview_scratch *scratch) {
    struct second_stage stage = {.lines = count_row_lines(dim)};
    struct sets sets = {.stage = &stage, .largest = count};
    return allocate_previews(&sets, scratch);
}

/* Rows that count no more get -inf. */
static void drop_ended_rows(const struct row_set *set, float *logits) {
    for (int64_t i = 0; set->ends && i < set->count; i++)
        if (set->ends[i] <= set->moment) logits[i] = -INFINITY;
}

/* Previews of all rows; returns by how much each may be off, by the inequality of Cauchy and Schwarz: a preview is the
 * product of a rounded row and a rounded context, each of whose numbers is off by at most half of a level. */
static float preview_rows(const struct row_set *set, const float *context, const struct preview_scratch *scratch) {
    int64_t dim = set->rows->dim, offsets[2] = {0, set->count}, block = 0, columns;
    struct second_stage stage = {.blocks = &block, .previews = set->previews, .scale = set->scale, .bias = set->shift,
                                 .lines = count_row_lines(dim)};
    struct sets sets = {.offsets = offsets, .stage = &stage, .logit_scale = set->rows->logit_scale,
                        .soft_cap = set->rows->soft_cap};
    columns = count_preview_columns(&stage);
    memset(scratch->projected, 0, columns * sizeof(float));
    memcpy(scratch->projected, context, dim * sizeof(float));
    float level = quantize(scratch->projected, columns, scratch->levels), length = sqrtf(dot(context, context, dim));
    int32_t shift = WEIGHT_ZERO_POINT * sum_levels(scratch->levels, columns);
    preview_cluster(&sets, 0, level, shift, scratch, scratch->logits);
    drop_ended_rows(set, scratch->logits);
    float error = length * set->largest_rounding + level * 0.5f * sqrtf((float)dim) * set->largest_norm;
    return error * PREVIEW_SLACK * fabsf(set->rows->logit_scale);
}

/* Exact logits of the heaviest rows, in the place of their previews, too; of none where too many are alike. */
static struct set_scores score_heaviest(const struct row_set *set, const float *context, float error,
                                        const struct preview_scratch *scratch) {
    float *logits = scratch->logits, least = INFINITY;
    int64_t count = select_best(logits, set->count, MOST_PREVIEWED_EXACTLY, scratch->places, scratch->spare);
    if (count > MOST_ALIKE) return (struct set_scores){scratch->exact, scratch->places, 0, INFINITY, 0};
    for (int64_t i = 0; i < count; i++) {
        float preview = logits[scratch->places[i]];
        least = preview < least ? preview : least;
        scratch->ids[i] = set->places[scratch->places[i]];
    }
    score_row_exactly(set->rows, context, scratch->ids, scratch->exact, count);
    for (int64_t i = 0; i < count; i++) logits[scratch->places[i]] = scratch->exact[i];
    float bound = count < MOST_PREVIEWED_EXACTLY ? -INFINITY : least + error; /* fewer are all that there are */
    return (struct set_scores){scratch->exact, scratch->places, count, bound, 0};
}

/* The log of the sum of exp(logits) [n]; -inf where all are. */
static float sum_all(const float *logits, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!(logits[i] == -INFINITY)) return log_sum_exp(logits, n);
    return -INFINITY;
}

static struct set_scores score_row_set(const struct row_set *set, const float *context,
                                       const struct preview_scratch *scratch) {
    struct set_scores scores = {scratch->logits, NULL, set->count, -INFINITY, 0};
    if (set->previews) {
        float error = preview_rows(set, context, scratch);
        scores = score_heaviest(set, context, error, scratch);
    } else {
        score_row_exactly(set->rows, context, set->places, scratch->logits, set->count);
        drop_ended_rows(set, scratch->logits);
    }
    scores.log_sum = sum_all(scratch->logits, set->count);
    return scores;
}

static int64_t sum_row_set(const struct row_set *set, const float *contexts, int64_t count, float *sums) {
    struct preview_scratch scratch;
    if (!allocate_for_rows(set->count, set->rows->dim, &scratch)) return 0;
    for (int64_t row = 0; row < count; row++)
        sums[row] = score_row_set(set, contexts + row * set->rows->dim, &scratch).log_sum;
    give_memory(scratch.ids);
    return 1;
}

/* Where one row's answer is written. */
struct merged_row {
    int64_t *ids, k;
    float *logits;
};

/* The first k classes that are not hidden; fewer are returned where too few are left. -1 says that there is no
 * more. */
static int64_t keep_unhidden(const struct changes *changes, const int64_t *ids, const float *logits, int64_t count,
                             const struct merged_row *merged) {
    int64_t kept = 0;
    for (int64_t i = 0; i < count && kept < merged->k; i++) {
        if (ids[i] >= 0 && changes->hidden_since[ids[i]] <= changes->moment) continue;
        merged->ids[kept] = ids[i], merged->logits[kept++] = logits[i];
    }
    return kept;
}

static int is_banned(const struct lists *lists, int64_t row, int64_t id) {
    if (!lists || !lists->ban) return 0;
    const int64_t *ban = lists->ban + row * lists->ban_step;
    for (int64_t i = 0; i < lists->ban_size; i++)
        if (ban[i] == id) return 1;
    return 0;
}

/* Puts items that are better into the k best. */
static void take_items(const struct changes *changes, const struct lists *lists, int64_t row,
                       const struct set_scores *scores, const struct merged_row *merged) {
    int64_t last = merged->k - 1;
    for (int64_t i = 0; i < scores->count; i++) {
        int64_t id = changes->item_ids[scores->places ? scores->places[i] : i];
        if (precedes(scores->logits[i], id, merged->logits[last], merged->ids[last]) && !is_banned(lists, row, id))
            take_best(scores->logits + i, &id, 1, merged->logits, merged->ids, merged->k);
    }
}

/* The log-normalizer without what is `hidden` and with what was added, all logs of sums; NAN where hardly anything of
 * it is left. */
static float correct_normalizer(float normalizer, float hidden, float added) {
    double peak = normalizer > added ? normalizer : added, whole = exp(normalizer - peak);
    double rest = whole - exp(hidden - peak);
    return rest >= DOUBTFUL_ESTIMATE * whole ? (float)(peak + log(rest + exp(added - peak))) : NAN;
}

/* Whether a row could be decided. */
static int merge_row(const struct changes *changes, const struct lists *lists, int64_t row, const float *context,
                     float *normalizer, const struct preview_scratch *scratch, const struct merged_row *merged) {
    float hidden = -INFINITY, added = -INFINITY;
    if (changes->items->count) {
        struct set_scores scores = score_row_set(changes->items, context, scratch);
        take_items(changes, lists, row, &scores, merged);
        added = scores.log_sum;
        if (scores.bound != -INFINITY && !(merged->logits[merged->k - 1] > scores.bound)) return 0;
    }
    if (changes->hidden->count) hidden = score_row_set(changes->hidden, context, scratch).log_sum;
    *normalizer = correct_normalizer(*normalizer, hidden, added);
    if (merged->logits[0] > -INFINITY) { /* classes are distinct */
        float least = log_sum_exp(merged->logits, merged->k);
        *normalizer = *normalizer < least ? least : *normalizer;
    }
    return isfinite(*normalizer);
}

static int64_t merge_changes(const struct changes *changes, const struct lists *lists, const float *contexts,
                             int64_t count, int64_t depth, int64_t k, const int64_t *base_ids,
                             const float *base_logits, const float *base_normalizers, const int32_t *base_scored,
                             int64_t *ids, float *logits, float *normalizers, int32_t *scored) {
    struct preview_scratch scratch;
    const struct row_set *hidden = changes->hidden, *items = changes->items;
    int64_t most = hidden->count > items->count ? hidden->count : items->count, dim = items->rows->dim;
    if (!allocate_for_rows(most, dim, &scratch)) return 0;
    for (int64_t row = 0; row < count; row++) {
        struct merged_row merged = {ids + row * k, k, logits + row * k};
        const float *context = contexts + row * dim;
        int64_t all = changes->classes, place = row * depth;
        normalizers[row] = base_normalizers[row];
        int is_done = base_scored[row] != all &&
                      keep_unhidden(changes, base_ids + place, base_logits + place, depth, &merged) == k &&
                      merge_row(changes, lists, row, context, normalizers + row, &scratch, &merged);
        int64_t sum = base_scored[row] + items->count;
        scored[row] = (int32_t)(!is_done ? -1 : sum < all ? sum : all - 1);
    }
    give_memory(scratch.ids);
    return 1;
}

#endif
