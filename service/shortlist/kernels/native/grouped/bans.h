/* Bans of a row's own best classes in plan `grouped`: how many of these are banned, and whether looks can pass them. */
#ifndef SHORTLIST_GROUPED_BANS_H
#define SHORTLIST_GROUPED_BANS_H

#include "grouped/previews.h"
#include "grouped/row.h"
#include "grouped/scores.h"

enum {
    MOST_PARTLY_PASSED = 64,  /* banned classes in front of a row's best: looks that pass more open all groups */
    PROBED_BANS = 8,          /* of a list, whose scores tell whether they can be the row's best classes */
    WANTED_PER_DEPTH = 2,     /* of the best classes by previews, for each that may be deep in bans */
    OPENED_PER_WANTED = 8,    /* classes that are previewed by some columns for each of these */
    PREVIEWED_PER_WANTED = 2, /* and by all columns */
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

/* Whether bans leave so little of a row's best classes that an exact answer takes less time than looks. */
INLINE int is_deep(const struct row_search *row) {
    return row->depth > row->search->k + row->search->deep_bans;
}

/* Writes products of a row's context and a few of its bans, spread over the list, to `products` [PROBED_BANS], as
 * groups are scored: without what all classes' products have in common. Returns how many. Padding does not count, so
 * that the row's answer is the same beside longer lists. */
static int64_t probe_bans(const struct row_search *row, float *products) {
    const struct grouped *head = row->head;
    const int64_t *ids = row->lists->ban + row->number * row->lists->ban_step;
    int64_t size = row->lists->ban_size, step = count_bans(row) / PROBED_BANS + 1, named = 0, probed = 0;
    for (int64_t i = 0; i < size; i++) {
        if (ids[i] < 0 || named++ % step) continue;
        int64_t place = find_place(head, ids[i]);
        if (place < 0) continue;
        float product = dot(head->rows + ids[i] * head->dim, row->context, head->dim);
        products[probed++] = product - row->look.common + (head->bias ? head->bias[place] : 0);
    }
    return probed;
}

/* Whether most of the probed bans score over the centres of all groups but those of as many classes as are banned. It
 * is so of a row's best classes, of which each is better than the mean of its group. */
static int may_be_ahead(const struct row_search *row) {
    const struct grouped *head = row->head;
    float products[PROBED_BANS], *centres = row->scratch->spare;
    int64_t probed = probe_bans(row, products);
    if (!probed) return 0;
    float level = find_threshold(products, NULL, probed, probed / 2 + 1, 0); /* which most of them reach */
    for (int64_t i = 0; i < head->groups; i++)
        centres[i] = row->scratch->groups[i] - head->raises[i] * row->row_scale;
    return count_reaching(centres, head->sizes, head->groups, level) < row->banned;
}

/* Writes the best `wanted` classes by previews of the best groups to `positions` and their logits by previews to
 * `forbidden_values`; returns how many. */
static int64_t preview_best(const struct row_search *row, int64_t wanted) {
    const struct grouped *head = row->head;
    const struct scratch *scratch = row->scratch;
    struct grouped_limits limits = row->search->limits[0];
    limits.opened = OPENED_PER_WANTED * wanted, limits.previewed = PREVIEWED_PER_WANTED * wanted;
    limits.raise_share = 0;
    struct look look = {.blocks = 0};
    int64_t opened = open_groups(head, limits.opened, scratch, &look);
    int64_t blocks = preview_blocks(head, &limits, row->row_scale, NULL, scratch, 0, opened);
    int64_t count = select_best(scratch->scores, LANES * blocks, wanted, scratch->positions, scratch->spare);
    for (int64_t i = 0; i < count; i++) {
        int32_t place = scratch->positions[i];
        float product = scratch->scores[place] * row->row_scale + row->look.common;
        scratch->forbidden_values[i] = scale_logit(head, product);
        scratch->positions[i] = find_kept_position(head, scratch, place);
    }
    return count;
}

/* Leaves the permitted ones of `count` classes in `positions`, and the logits of the banned ones in
 * `forbidden_values`; returns how many are permitted. banned: gets how many are banned. What marks alone forbid is
 * neither. */
static int64_t part_banned(const struct row_search *row, int64_t count, int64_t *banned) {
    const struct scratch *scratch = row->scratch;
    int64_t permitted = 0;
    *banned = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t position = scratch->positions[i];
        int is_banned = is_forbidden(row->head, scratch, position, row->is_marked ? BY_LANES : BY_BANS);
        if (is_banned) scratch->forbidden_values[(*banned)++] = scratch->forbidden_values[i];
        if (is_banned || (is_chance(row) && is_forbidden(row->head, scratch, position, BY_MARKS))) continue;
        scratch->positions[permitted++] = position;
    }
    return permitted;
}

/* Whether so many bans are better than the k-th permitted class that an exact answer takes less time than looks, as
 * previews of the row's best groups have it, which see two thirds of them. The groups' scores are there, and what the
 * row's lists forbid. */
static int are_bans_ahead(const struct row_search *row) {
    int64_t k = row->search->k, deep = row->search->deep_bans, least = deep * 2 / 3, banned;
    if (!row->lists->ban || row->banned <= deep) return 0;
    float wanted = WANTED_PER_DEPTH * (k + deep) / find_share(row);
    if (OPENED_PER_WANTED * wanted > row->search->limits[0].opened || !may_be_ahead(row)) return 0;
    int64_t permitted = part_banned(row, preview_best(row, (int64_t)wanted), &banned);
    if (banned <= least || permitted < k) return banned > least;
    score_candidates(row->head, row->steps, row->look.common, row->scratch, permitted);
    float level = find_threshold(row->scratch->values, NULL, permitted, k, 0);
    return count_reaching(row->scratch->forbidden_values, NULL, banned, level) > least;
}

#endif
