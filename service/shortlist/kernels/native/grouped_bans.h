/* Bans of a row's own best classes in plan `grouped`: how many of these are banned, and whether looks can pass them. */
#ifndef SHORTLIST_GROUPED_BANS_H
#define SHORTLIST_GROUPED_BANS_H

#include "grouped_previews.h"
#include "grouped_row.h"

enum {
    CANDIDATES_OF_FIRST_LOOK = 16, /* for each class that is better than the k-th permitted one, or the row goes on */
    DEEP_BANS = 150,               /* of more banned classes in front of a row's best, looks miss more than promised */
    PROBED_BANS = 8,               /* of a list, whose scores tell whether they can be the row's best classes */
    OPENED_PER_BEST = 8,           /* classes that are previewed for each of the best that are looked for */
    PREVIEWED_PER_BEST = 4,        /* the same by all columns */
    PERMITTED_DIVISOR = 4,         /* of the best by previews, at most so many are permitted where bans are deep */
};

/* How many of the first look's candidates that the lists forbid are over the least which was scored exactly. */
static int64_t count_over(const struct scratch *scratch, int64_t exact_count, int64_t forbidden) {
    float least = INFINITY;
    int64_t over = 0;
    for (int64_t i = 0; i < exact_count; i++) {
        float value = scratch->values[scratch->exact[i]];
        least = value < least ? value : least;
    }
    for (int64_t i = 0; i < forbidden; i++) over += scratch->forbidden_values[i] > least;
    return over;
}

/* About how many of `banned` classes are better than the k-th permitted one: the first look found `over`, beside
 * `permitted` candidates. Where most of what it found is banned, all may be. */
INLINE int64_t guess_bans_ahead(int64_t banned, int64_t over, int64_t permitted) {
    int64_t others = banned - over;
    return over > permitted ? banned : over + (others < over / 2 ? others : over / 2);
}

/* Whether bans leave a look too few candidates for what it tells of the row to hold. share: that marks permit, or 1. */
INLINE int needs_more(int64_t depth, int64_t k, float share, const struct grouped_limits *limits) {
    return depth > k && CANDIDATES_OF_FIRST_LOOK * depth > share * limits->candidates;
}

/* Whether bans leave so little of a row's best classes that it is better proved what the others are. */
INLINE int is_deep(int64_t depth, int64_t k) {
    return depth > k + DEEP_BANS;
}

/* Whether most of a few bans, spread over the list, score over the centres of all groups but those of as many classes
 * as are banned. It is so of a row's best classes, of which each is better than the mean of its group. */
static int may_be_ahead(const struct row_search *row) {
    const struct grouped *head = row->head;
    const struct scratch *scratch = row->scratch;
    const int64_t *ids = row->lists->ban + row->number * row->lists->ban_step;
    int64_t step = row->lists->ban_size / PROBED_BANS + 1, probed = 0;
    float products[PROBED_BANS];
    for (int64_t i = 0; i < row->lists->ban_size; i += step)
        if (ids[i] >= 0) prefetch_bytes(head->rows + ids[i] * head->dim, LINE_BYTES);
    for (int64_t i = 0; i < row->lists->ban_size; i += step) {
        int64_t place = find_place(head, ids[i]);
        if (place < 0) continue;
        float product = dot(head->rows + ids[i] * head->dim, row->context, head->dim);
        products[probed++] = product + (head->bias ? head->bias[place] : 0);
    }
    if (!probed) return 0;
    float level = find_threshold(products, NULL, probed, probed / 2 + 1, 0); /* which most of them reach */
    for (int64_t i = 0; i < head->groups; i++)
        scratch->spare[i] = scratch->groups[i] - head->raises[i] * row->row_scale;
    return count_reaching(scratch->spare, head->sizes, head->groups, level) < row->banned;
}

/* How many of the best `wanted` classes, by previews of the best groups, the lists permit. */
static int64_t count_permitted_among(struct row_search *row, int64_t wanted) {
    struct grouped_limits limits = row->search->limits[0];
    limits.opened = OPENED_PER_BEST * wanted, limits.previewed = PREVIEWED_PER_BEST * wanted;
    limits.candidates = wanted, limits.raise_share = 0;
    enum reader reader = row->is_marked ? BY_LANES : BY_BANS;
    int64_t permitted = 0;
    int64_t count = choose_candidates(row->head, &limits, row->row_scale, NULL, row->classes, row->scratch,
                                      &row->look.bar);
    for (int64_t i = 0; i < count; i++) {
        int32_t position = row->scratch->positions[i];
        if (is_forbidden(row->head, row->scratch, position, reader)) continue;
        permitted += !(is_chance(row) && is_forbidden(row->head, row->scratch, position, BY_MARKS));
    }
    return permitted;
}

/* Whether so many of a row's best classes are banned that no look can pass them, as previews of its best groups have
 * it. The groups' scores are there, and the row's bans in their slots. */
static int are_bans_ahead(struct row_search *row) {
    int64_t best = row->search->k + DEEP_BANS, wanted = (int64_t)(best / find_share(row));
    if (!row->lists->ban || row->banned <= DEEP_BANS) return 0;
    if (OPENED_PER_BEST * wanted > row->search->limits[0].opened) return 0;
    return may_be_ahead(row) && count_permitted_among(row, wanted) <= best / PERMITTED_DIVISOR;
}

#endif
