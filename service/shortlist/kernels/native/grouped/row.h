/* One row's search of plan `grouped`, and what its lists permit. */
#ifndef SHORTLIST_GROUPED_ROW_H
#define SHORTLIST_GROUPED_ROW_H

#include "grouped/effort.h"
#include "grouped/lists.h"

enum {
    KEPT_PER_WANTED = 2, /* candidates, where marks permit all: so many suffice but for odd rows */
};
#define DEPTH_SPREADS 2.5f /* standard deviations of how many classes there are in front of the k-th permitted one */

/* What one row's search hands back. odds: log-odds that some of the k best classes were missed, of which `search_rows`
 * makes a probability in their place; NAN where the search was not calibrated. features: [EFFORT_FEATURES] of the last
 * look, or NULL. */
struct answer {
    int64_t *ids;
    float *logits, *normalizer, *odds, *features;
    int32_t *scored;
};

/* One row's search, and what its looks have come to. lists: NULL where there are none, of which the row has number
 * `number`. is_marked: whether `permitted` of the scratch says what they permit; else `marks` and `banned` do.
 * is_listed: whether they forbid many and permit so few that all of these are scored. steps: of the context's digits.
 * row_scale: what a level of 1 stands for. classes, permitted: how many the head has, and the lists permit.
 * first_count: how many classes the first look scored exactly. forbidden: how many of its candidates the lists forbid;
 * of these `banned_candidates`, the first, are banned. exact_count: how many classes the last look scored exactly.
 * banned: how many classes the lists forbid beside marks, 0 where they are many. depth: k, and about how many banned
 * classes are better than the k-th permitted one. are_many: whether the lists forbid so many classes that the first
 * look's candidates tell little of the others. is_unsure: whether the first look may have missed the best class of all,
 * whose logit the normaliser needs. */
struct row_search {
    const struct grouped *head;
    const struct grouped_search *search;
    const struct lists *lists;
    const float *context;
    const struct scratch *scratch;
    struct answer answer;
    struct digit_steps steps;
    struct look look;
    struct grouped_limits limits; /* of the present look */
    float row_scale;
    int64_t number, classes, permitted, first_count, forbidden, banned_candidates, exact_count, banned, depth;
    int is_marked, is_listed, are_many, is_unsure;
};

/* Marks what the row's lists permit, if that was not done. */
static void mark_row(struct row_search *row) {
    if (row->is_marked) return;
    row->permitted = permit_classes(row->head, row->lists, row->number, row->scratch);
    row->is_marked = 1;
}

/* Whether the row has a short allow list alone, which forbids many classes and need not be marked. */
INLINE int is_plain_list(const struct row_search *row, int64_t many) {
    const int64_t *allow = find_allow_list(row->lists, row->number);
    int64_t size = row->lists->allow_size;
    return allow && !row->lists->ban && size <= row->search->most_listed && row->classes - size > many &&
           are_ascending(allow, size);
}

/* How many classes the row's ban list names. Padding does not count: a row's search is the same beside longer lists. */
static int64_t count_bans(const struct row_search *row) {
    const int64_t *ids = row->lists->ban ? row->lists->ban + row->number * row->lists->ban_step : NULL;
    int64_t count = 0;
    for (int64_t i = 0; ids && i < row->lists->ban_size; i++) count += ids[i] >= 0;
    return count;
}

/* How many classes the row's lists permit and forbid, whether they say so by an allow list or a ban list. Of a ban list
 * that leaves most of them its ids alone are marked: the first look asks for no more. Beside marks too: what a look has
 * found tells whether it is enough. */
static void read_lists(struct row_search *row) {
    int64_t many = row->classes / FORBIDDEN_DIVISOR;
    row->is_listed = is_plain_list(row, many);
    if (row->is_listed) return;
    int64_t bans = count_bans(row);
    if (row->lists->marks && bans <= row->lists->allow_size / FORBIDDEN_DIVISOR) {
        row->banned = mark_bans(row->head, row->lists, row->number, row->scratch);
        row->permitted = row->lists->allow_size - row->banned;
        return;
    }
    if (row->lists->marks || find_allow_list(row->lists, row->number) || bans > many)
        mark_row(row);
    else
        row->permitted -= mark_bans(row->head, row->lists, row->number, row->scratch);
    int64_t forbidden = row->classes - row->permitted;
    row->are_many = forbidden > many;
    row->banned = row->are_many ? 0 : forbidden;
    row->is_listed = row->are_many && row->permitted <= row->search->most_listed;
    if (!forbidden) row->lists = NULL;
}

/* How many of the best classes hold k permitted ones, almost surely, where marks permit a `share` of all classes,
 * whatever their scores are. */
INLINE float limit_depth(int64_t k, float share) {
    return (k + DEPTH_SPREADS * sqrtf(k * (1 - share)) + 2) / share;
}

/* Whether marks alone say what is permitted, which chance explains as far as looks could tell. */
INLINE int is_chance(const struct row_search *row) { return row->scratch->marks && !row->is_marked; }

/* The share of all classes that are permitted where chance explains which, else 1. */
INLINE float find_share(const struct row_search *row) {
    return is_chance(row) ? (float)row->permitted / row->classes : 1;
}

/* Drops the candidates that the lists forbid; returns how many are left. */
static int64_t drop_candidates(struct row_search *row, int64_t count) {
    const struct scratch *scratch = row->scratch;
    row->forbidden = 0;
    if (row->is_marked) count = drop_forbidden(row->head, scratch, count, BY_LANES, &row->forbidden);
    if (!row->is_marked && scratch->banned_slots)
        count = drop_forbidden(row->head, scratch, count, BY_BANS, &row->forbidden);
    row->banned_candidates = row->forbidden;
    if (is_chance(row)) count = drop_forbidden(row->head, scratch, count, BY_MARKS, &row->forbidden);
    return count;
}

/* Leaves the best of `count` candidates alone, where marks permit as many of them as later steps read; returns how
 * many are left. What follows equals what all of them give, but is faster: their marks are in no cache. */
static int64_t keep_best(const struct row_search *row, int64_t count) {
    const struct scratch *scratch = row->scratch;
    int64_t wanted = max_of(row->search->k + RANKS_BEYOND, row->limits.full_view), permitted = 0;
    int64_t some = KEPT_PER_WANTED * wanted * row->classes / max_of(row->permitted, 1);
    if (some >= count || row->banned) return count;
    float threshold = find_threshold(scratch->values, NULL, count, some, some / SURPLUS_DIVISOR);
    int64_t kept = select_reaching(scratch->values, count, threshold, scratch->exact);
    for (int64_t i = 0; i < kept; i++)
        permitted += !is_forbidden(row->head, scratch, scratch->positions[scratch->exact[i]], BY_MARKS);
    if (permitted < wanted) return count;
    for (int64_t i = 0; i < kept; i++) {
        scratch->positions[i] = scratch->positions[scratch->exact[i]];
        scratch->lanes[i] = scratch->lanes[scratch->exact[i]];
        scratch->values[i] = scratch->values[scratch->exact[i]];
    }
    return kept;
}

/* Whether marks forbid more of a row's best classes than chance would have it, by the first look's `count` permitted
 * candidates: what it missed may be permitted. Bans ask for as many more. */
static int are_best_forbidden(const struct row_search *row, int64_t count) {
    const struct scratch *scratch = row->scratch;
    int64_t k = row->search->k;
    if (count < k) return 1;
    float level = find_threshold(scratch->values, NULL, count, k, 0);
    int64_t wanted = k + count_reaching(scratch->forbidden_values, NULL, row->banned_candidates, level);
    int64_t unmarked = row->forbidden - row->banned_candidates;
    int64_t others = count_reaching(scratch->forbidden_values + row->banned_candidates, NULL, unmarked, level);
    return wanted + others > limit_depth(wanted, find_share(row));
}

#endif
