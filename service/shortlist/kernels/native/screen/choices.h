/* Scores of the sets of plan `screen`, of which the largest pick those that a row opens.
 *
 * A screen's scores are previewed by int8 columns, and those exact that may be among the two largest: h w - p q =
 * h (w - q) + (h - p) q, so that by Cauchy and Schwarz a preview is off by |h| |w - q| + |h - p| |q| at most, for a
 * context h in digits p and a column w in int8 q. Roundings of float32 are within what `error` holds besides.
 */
#ifndef SHORTLIST_CHOICES_H
#define SHORTLIST_CHOICES_H

#include "primitives/digits.h"
#include "primitives/select.h"
#include "primitives/sums.h"
#include "screen/clusters.h"

#define SMALL_NORM 1e-15f /* of a context; squares of much smaller numbers are 0 */

/* Intermediate results of a row. previews, bounds, places: [blocks, 16] of the sets. coarse, fine, rest: [lines, 4]. */
struct choice_scratch {
    float *previews, *bounds, *rest;
    int32_t *places;
    int8_t *coarse, *fine;
};

/* 0 where there is no memory; `previews` is what has to be freed. Without previews nothing is needed. */
static int allocate_choices(const struct sets *sets, struct choice_scratch *scratch) {
    const struct choice_previews *previews = sets->previews;
    if (!previews) return 1;
    int64_t columns = previews->columns.blocks * LANES, digits = previews->columns.lines * LANE_BYTES;
    scratch->previews = malloc(3 * columns * sizeof(float) + digits * (sizeof(float) + 2));
    if (!scratch->previews) return 0;
    scratch->bounds = scratch->previews + columns, scratch->places = (int32_t *)(scratch->bounds + columns);
    scratch->rest = (float *)(scratch->places + columns), scratch->coarse = (int8_t *)(scratch->rest + digits);
    scratch->fine = scratch->coarse + digits;
    memset(scratch->coarse, 0, 2 * digits); /* beyond the context they stay 0 */
    return 1;
}

/* Previews of all scores of a context, and by how much each may be off. */
static void preview_choices(const struct choice_previews *previews, const float *context, int64_t dim,
                            const struct choice_scratch *scratch) {
    struct digit_steps steps = split_digits(context, dim, scratch->coarse, scratch->fine, scratch->rest);
    float root = sqrtf((float)dim), norm = sqrtf(dot(context, context, dim)), left = 0.5f * steps.fine * root;
    if (norm < SMALL_NORM) norm = COARSE_LEVELS * steps.coarse * root; /* no less than it is */
    multiply_columns(&previews->columns, scratch->coarse, scratch->fine, steps, scratch->previews);
    for (int64_t i = 0; i < previews->columns.blocks * LANES; i++)
        scratch->bounds[i] = norm * previews->error[i] + left * previews->size[i];
}

/* What a number may be at most, where it is one. */
INLINE float limit_number(float number) { return number == number ? number : INFINITY; }

/* Scores [sets] of a context: the two largest are exact, and the others less than these. */
static void score_previewed_choices(const struct sets *sets, const float *context, const struct choice_scratch *scratch,
                                    float *scores) {
    const struct choice_previews *previews = sets->previews;
    float largest, least;
    preview_choices(previews, context, sets->dim, scratch);
    for (int64_t i = 0; i < sets->sets; i++) scores[i] = scratch->previews[i] - scratch->bounds[i];
    find_two_largest(scores, sets->sets, &largest, &least);
    for (int64_t i = 0; i < sets->sets; i++) {
        scores[i] = scratch->previews[i];
        scratch->bounds[i] = limit_number(scratch->previews[i] + scratch->bounds[i]);
    }
    int64_t count = select_reaching(scratch->bounds, sets->sets, least, scratch->places);
    for (int64_t i = 0; i < count; i++)
        scores[scratch->places[i]] = dot(previews->rows + scratch->places[i] * sets->dim, context, sets->dim);
}

INLINE void score_choices(const struct sets *sets, const float *context, const struct choice_scratch *scratch,
                          float *scores) {
    if (sets->previews) {
        score_previewed_choices(sets, context, scratch, scores);
        return;
    }
    memset(scores, 0, sets->sets * sizeof *scores);
    add_columns(sets->chooser, context, sets->dim, sets->sets, scores);
}

#endif
