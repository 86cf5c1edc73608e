/* The classes among which the k best of one context must be, with exact logits, and their order. */
#ifndef SHORTLIST_FINALISTS_H
#define SHORTLIST_FINALISTS_H

#include "exact/candidates.h"

/* One class. score: what it is ranked by, its logit in float32 or in float64. */
struct finalist {
    double score;
    int64_t id;
    float logit, slack;
};

static const struct finalist NO_FINALIST = {-INFINITY, -1, -INFINITY, 0};

struct finalists {
    struct finalist *items;
    int64_t count, scored; /* scored: how many classes have an exact logit, the anchors among them */
};

/* Better ones first, equal ones by id. */
static int compare_finalists(const void *left, const void *right) {
    const struct finalist *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* Adds one class unless it is padding; returns 0 where its logit overflowed. */
INLINE int add_finalist(struct finalists *finalists, int64_t class_id, float logit, float slack) {
    if (!(logit < INFINITY)) return 0;
    struct finalist finalist = {logit, class_id, logit, slack};
    if (logit > -INFINITY) finalists->items[finalists->count++] = finalist;
    return 1;
}

/* How many classes of the row's allow list are permitted, each counted once. Their ids are written to `chosen_ids` as
 * long as there is room. */
static int64_t list_allowed(struct candidates *candidates, int64_t row, int64_t room) {
    const struct lists *lists = candidates->work->lists;
    const int64_t *allow = find_allow_list(lists, row);
    int64_t count = 0;
    for (int64_t i = 0; i < lists->allow_size && count <= room; i++) {
        if (allow[i] < 0 || candidates->permitted[allow[i]] != 1) continue;
        candidates->permitted[allow[i]] = 2; /* permitted, and counted */
        if (count < room) candidates->chosen_ids[count] = allow[i];
        count++;
    }
    return count;
}

/* All permitted classes of an allow list, exactly; returns 0 where a logit overflowed. */
static int take_allowed(struct candidates *candidates, int64_t count, struct finalists *finalists) {
    int all = 1;
    score_row_exactly(get_certificate(candidates)->exact, candidates->query->context, candidates->chosen_ids,
                      candidates->chosen_logits, count);
    for (int64_t i = 0; i < count; i++) {
        int64_t id = candidates->chosen_ids[i];
        all &= add_finalist(finalists, id, candidates->chosen_logits[i], measure_slack(candidates, id));
    }
    finalists->scored = candidates->exact_count + count;
    return all;
}

/* Writes one number for each candidate that is permitted to `spare`; returns how many. lower: lower bounds of those
 * that are exact; else upper bounds of all. */
static int64_t list_bounds(const struct candidates *candidates, int lower) {
    int64_t count = 0;
    for (int64_t i = 0; i < candidates->count; i++) {
        if (!is_permitted(candidates, candidates->ids[i]) || (lower && !candidates->exact[i])) continue;
        float estimate = candidates->exact[i] ? candidates->logits[i] : candidates->estimates[i];
        float reach = candidates->exact[i] ? candidates->slack[i] : candidates->reach[i];
        candidates->spare[count++] = lower ? estimate - reach : estimate + reach;
    }
    return count;
}

/* The nth largest of bounds [count], or less; the least number where there are fewer. */
INLINE float find_nth(const float *bounds, int64_t count, int64_t nth) {
    return count < nth ? -FLT_MAX : fmaxf(-FLT_MAX, find_threshold(bounds, NULL, count, nth, 0));
}

/* At least how many classes have to be looked at for `first` permitted ones to be among them, about. */
static int64_t guess_needed(const struct candidates *candidates, int64_t first) {
    const struct lists *lists = candidates->work->lists;
    int64_t classes = get_certificate(candidates)->classes, permitted = 0;
    if (!lists || !lists->allow) return first + (lists && lists->ban ? lists->ban_size : 0);
    for (int64_t i = 0; i < classes; i++) permitted += candidates->permitted[i] != 0;
    return 2 * first * (classes / (permitted + 1) + 1);
}

/* Exact logits of the `first` permitted classes of the largest upper bounds; returns 0 where they are too many. */
static int score_first(struct candidates *candidates, int64_t first) {
    if (!candidates->permitted && candidates->exact_count >= first) return 1;
    int64_t known = list_bounds(candidates, 0);
    if (known < first) {
        if (!add_candidates(candidates, find_least(candidates, guess_needed(candidates, first)), 1)) return 0;
        known = list_bounds(candidates, 0);
    }
    if (known < first) { /* then of all */
        if (!add_candidates(candidates, -FLT_MAX, 1)) return 0;
        known = list_bounds(candidates, 0);
    }
    return score_reaching(candidates, find_nth(candidates->spare, known, first), 1);
}

/* Exact logits of all classes that bounds leave; returns 0 where they are too many. What k of the first ones reach for
 * certain tells which others there are. */
static int score_contenders(struct candidates *candidates, int64_t first) {
    if (!score_first(candidates, first)) return 0;
    float bar = find_nth(candidates->spare, list_bounds(candidates, 1), candidates->work->limits->k);
    if (bar < candidates->cut && !add_candidates(candidates, bar, 1)) return 0;
    return score_reaching(candidates, bar, 1);
}

/* Every permitted class that could be among the k best; returns 0 where bounds leave too many. */
static int take_contenders(struct candidates *candidates, struct finalists *finalists) {
    const struct proof_limits *limits = candidates->work->limits;
    int64_t first = 2 * limits->k > limits->anchors ? 2 * limits->k : limits->anchors;
    int all = score_contenders(candidates, first);
    for (int64_t i = 0; all && i < candidates->count; i++)
        if (candidates->exact[i] && is_permitted(candidates, candidates->ids[i]))
            all &= add_finalist(finalists, candidates->ids[i], candidates->logits[i], candidates->slack[i]);
    finalists->scored = candidates->exact_count;
    return all;
}

/* The logit of one class in float64; equal rows give equal bits. */
static double score_in_doubles(const struct exact_rows *rows, const float *context, int64_t class_id) {
    double logit = dot_exactly(rows->weight + class_id * rows->dim, context, rows->dim);
    if (rows->bias) logit += rows->bias[class_id];
    logit *= rows->logit_scale;
    if (rows->soft_cap > 0) logit = rows->soft_cap * tanh(logit / rows->soft_cap);
    return logit; /* padding is no finalist */
}

INLINE float find_slack(const struct finalists *finalists) {
    float slack = 0;
    for (int64_t i = 0; i < finalists->count; i++)
        slack = finalists->items[i].slack > slack ? finalists->items[i].slack : slack;
    return slack;
}

/* Keeps those that may be among the k best by their float32 logits, in the order of these. */
static void keep_contenders(struct finalists *finalists, int64_t k, float *spare) {
    int64_t count = 0;
    for (int64_t i = 0; i < finalists->count; i++) spare[i] = finalists->items[i].logit - finalists->items[i].slack;
    float bar = find_nth(spare, finalists->count, k);
    for (int64_t i = 0; i < finalists->count; i++)
        if (finalists->items[i].logit + finalists->items[i].slack >= bar)
            finalists->items[count++] = finalists->items[i];
    finalists->count = count;
    qsort(finalists->items, count, sizeof *finalists->items, compare_finalists);
}

/* Whether float32 tells the order of all finalists, and that no other class is among the k best. */
static int is_ordered(const struct finalists *finalists, int64_t k) {
    float slack = find_slack(finalists);
    for (int64_t i = 1; i < finalists->count; i++)
        if (!(finalists->items[i - 1].logit - finalists->items[i].logit > 2 * slack)) return 0;
    return finalists->count <= k;
}

/* Writes the k best, in the order of their logits in float64, which are computed where float32 cannot tell. */
static void rank_finalists(const struct candidates *candidates, struct finalists *finalists, int64_t *ids,
                           float *logits) {
    int64_t k = candidates->work->limits->k;
    keep_contenders(finalists, k, candidates->spare);
    if (!is_ordered(finalists, k)) {
        for (int64_t i = 0; i < finalists->count; i++)
            finalists->items[i].score = score_in_doubles(get_certificate(candidates)->exact, candidates->query->context,
                                                         finalists->items[i].id);
        qsort(finalists->items, finalists->count, sizeof *finalists->items, compare_finalists);
    }
    float lowest = INFINITY; /* so far: logits descend, in float32 too */
    for (int64_t rank = 0; rank < k; rank++) {
        struct finalist finalist = rank < finalists->count ? finalists->items[rank] : NO_FINALIST;
        lowest = finalist.logit < lowest ? finalist.logit : lowest;
        ids[rank] = finalist.id, logits[rank] = lowest;
    }
}

#endif
