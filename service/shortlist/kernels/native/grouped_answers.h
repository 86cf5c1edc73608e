/* A single row of plan `grouped`, from a context of which nothing is known to its answer. */
#ifndef SHORTLIST_GROUPED_ANSWERS_H
#define SHORTLIST_GROUPED_ANSWERS_H

#include "grouped.h"

static int64_t answer_row_of_groups(const struct grouped *head, const struct grouped_search *search,
                                    const float *context, int64_t *ids) {
    float *logprobs = (float *)(ids + search->k), normalizer = NAN, odds;
    int32_t scored = 0;
    if (!are_finite(context, head->dim) ||
        !search_rows(head, search, NULL, context, ids, logprobs, &normalizer, &scored, &odds, NULL, 0, 1) ||
        !isfinite(normalizer))
        return 0;
    for (int64_t i = 0; i < search->k; i++) logprobs[i] -= normalizer;
    memcpy(logprobs + search->k, &scored, sizeof scored);
    return 1;
}

#endif
