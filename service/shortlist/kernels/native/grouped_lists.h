/* Allow and ban lists of a row in plan `grouped`: which lanes of which blocks hold a class that may be returned. */
#ifndef SHORTLIST_GROUPED_LISTS_H
#define SHORTLIST_GROUPED_LISTS_H

#include "grouped_scratch.h"
#include "lists.h"

enum {
    CANDIDATES_OF_FIRST_LOOK = 6, /* for each class that is better than the k-th permitted one, or the row goes on */
    CANDIDATES_PER_DEPTH = 25,    /* the same of later looks */
    OPENED_PER_DEPTH = 100,
    BANS_PER_EXACT_SCORE = 3,     /* classes far down differ by less than int8 rows tell */
    DEEP_CLASSES_DIVISOR = 128,   /* of more banned classes in front of a row's best, proofs are faster */
};

/* Permits or forbids the classes of a list; ids of no class, and padding, are passed over. */
static void mark_classes(const struct grouped *head, const int64_t *ids, int64_t size, int permit,
                         const struct scratch *scratch) {
    for (int64_t i = 0; i < size; i++) {
        int64_t place = ids[i] < 0 ? -1 : head->places[ids[i]];
        if (place < 0 || scratch->permitted[place] == permit) continue;
        scratch->permitted[place] = (uint8_t)permit;
        scratch->block_permitted[place / LANES] += permit ? 1 : -1;
    }
}

/* Writes which classes the lists of row `row` permit to the scratch; returns how many. classes: of the head. */
static int64_t permit_classes(const struct grouped *head, const struct lists *lists, int64_t row,
                              const struct scratch *scratch) {
    int64_t count = 0;
    const int64_t *allow = find_allow_list(lists, row);
    memset(scratch->permitted, allow == NULL, head->blocks * LANES);
    if (allow)
        memset(scratch->block_permitted, 0, head->blocks * sizeof(int32_t));
    else
        memcpy(scratch->block_permitted, head->filled, head->blocks * sizeof(int32_t));
    if (allow) mark_classes(head, allow, lists->allow_size, 1, scratch);
    if (lists->ban) mark_classes(head, lists->ban + row * lists->ban_step, lists->ban_size, 0, scratch);
    for (int64_t block = 0; block < head->blocks; block++) count += scratch->block_permitted[block];
    return count;
}

/* Writes the positions of all permitted classes, ascending, to `positions`; returns how many. */
static int64_t list_permitted(const struct grouped *head, const struct scratch *scratch) {
    int64_t count = 0;
    for (int64_t block = 0; block < head->blocks; block++) {
        if (!scratch->block_permitted[block]) continue;
        for (int lane = 0; lane < head->filled[block]; lane++) {
            scratch->positions[count] = head->firsts[block] + lane;
            count += scratch->permitted[LANES * block + lane];
        }
    }
    return count;
}

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

/* Whether bans leave a look too few candidates for what it tells of the row to hold. */
INLINE int needs_more(int64_t depth, int64_t k, const struct grouped_limits *limits) {
    return depth > k && CANDIDATES_OF_FIRST_LOOK * depth > limits->candidates;
}

/* Whether bans leave so little of a row's best classes that it is better proved what the others are. */
INLINE int is_deep(int64_t depth, int64_t k, int64_t classes) {
    return depth > k && depth > classes / DEEP_CLASSES_DIVISOR;
}

/* Widens a later look for lists: bans take up room, and those in front of a row's best classes ask for a closer look.
 * An allow list leaves few classes, so that all groups are opened. */
static void widen_limits(int64_t classes, int64_t banned, int64_t depth, int64_t k, struct grouped_limits *limits) {
    limits->opened = banned ? max_of(limits->opened + banned, OPENED_PER_DEPTH * (depth - k)) : classes;
    limits->candidates = max_of(limits->candidates, CANDIDATES_PER_DEPTH * (depth - k));
    limits->previewed = max_of(limits->previewed, limits->candidates);
    limits->full_view += (depth - k) / BANS_PER_EXACT_SCORE;
}

#endif
