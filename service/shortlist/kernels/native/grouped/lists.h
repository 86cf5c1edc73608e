/* Allow and ban lists of a row in plan `grouped`: which lanes of which blocks hold a class that may be returned. */
#ifndef SHORTLIST_GROUPED_LISTS_H
#define SHORTLIST_GROUPED_LISTS_H

#include "grouped/scratch.h"
#include "lists.h"
#include "primitives/exponentials.h"
#include "primitives/select.h"

enum {
    CANDIDATES_PER_DEPTH = 25,      /* of a later look for each class in front of a row's best */
    CANDIDATE_LINES_PER_DEPTH = 80, /* or so many lines of int8 rows: previews of short rows tell less */
    FORBIDDEN_DIVISOR = 4,          /* of all classes: where lists forbid more, a first look tells too little */
    FEW_BANS_DIVISOR = 8,           /* of the first look's candidates, so many bans at most only take up room later */
    ROOM_PER_BAN = 4,               /* that a later look has for each ban among them */
    IDS_AHEAD = 32,                 /* that are on their way from memory: of catalogues, `order` is in no cache */
};

/* How many classes the head has: positions count them block by block. */
static int64_t count_classes(const struct grouped *head) {
    int64_t last = head->blocks - 1;
    return (int64_t)head->firsts[last] + head->filled[last];
}

/* The place of a class; -1 of none: padding, or of one that the head does not return. */
INLINE int64_t find_place(const struct grouped *head, int64_t id) { return id < 0 ? -1 : head->places[id]; }

/* Permits or forbids the classes of a list; ids of no class, and padding, are passed over. */
static void mark_classes(const struct grouped *head, const int64_t *ids, int64_t size, int permit,
                         const struct scratch *scratch) {
    for (int64_t i = 0; i < size; i++) {
        int64_t place = find_place(head, ids[i]);
        if (place < 0 || scratch->permitted[place] == permit) continue;
        scratch->permitted[place] = (uint8_t)permit;
        scratch->block_permitted[place / LANES] += permit ? 1 : -1;
    }
}

/* Permits the classes that marks permit, and forbids all others. */
static void copy_marks(const struct grouped *head, const uint8_t *marks, const struct scratch *scratch) {
    memset(scratch->permitted, 0, head->blocks * LANES);
    for (int64_t block = 0; block < head->blocks; block++) {
        int32_t count = 0;
        for (int lane = 0; lane < head->filled[block]; lane++) {
            uint8_t is_permitted = marks[head->order[head->firsts[block] + lane]];
            scratch->permitted[LANES * block + lane] = is_permitted, count += is_permitted;
        }
        scratch->block_permitted[block] = count;
    }
}

/* Permits the classes of an allow list and forbids all others; permits all where it is NULL. */
static void permit_allowed(const struct grouped *head, const int64_t *allow, int64_t size,
                           const struct scratch *scratch) {
    memset(scratch->permitted, allow == NULL, head->blocks * LANES);
    if (!allow) {
        memcpy(scratch->block_permitted, head->filled, head->blocks * sizeof(int32_t));
        return;
    }
    memset(scratch->block_permitted, 0, head->blocks * sizeof(int32_t));
    mark_classes(head, allow, size, 1, scratch);
}

/* Writes which classes the lists of row `row` permit to the scratch; returns how many. classes: of the head. */
static int64_t permit_classes(const struct grouped *head, const struct lists *lists, int64_t row,
                              const struct scratch *scratch) {
    int64_t count = 0;
    if (lists->marks)
        copy_marks(head, lists->marks, scratch);
    else
        permit_allowed(head, find_allow_list(lists, row), lists->allow_size, scratch);
    if (lists->ban) mark_classes(head, lists->ban + row * lists->ban_step, lists->ban_size, 0, scratch);
    for (int64_t block = 0; block < head->blocks; block++) count += scratch->block_permitted[block];
    return count;
}

/* The slot that holds a banned class's position, or the empty one that it would be put in. */
INLINE int32_t *find_slot(const struct scratch *scratch, int32_t position) {
    int64_t slot = (int64_t)((uint32_t)position * 2654435769u >> 7) & (scratch->banned_slots - 1);
    while (scratch->banned[slot] && scratch->banned[slot] != position + 1)
        slot = (slot + 1) & (scratch->banned_slots - 1);
    return scratch->banned + slot;
}

/* The position of the class at a place. */
INLINE int32_t find_position(const struct grouped *head, int64_t place) {
    return head->firsts[place / LANES] + (int32_t)(place % LANES);
}

/* Puts the positions of a row's banned classes into slots, of those alone that marks permit: it takes as long as they
 * are many, whatever the layer has. Returns how many there are. */
static int64_t mark_bans(const struct grouped *head, const struct lists *lists, int64_t row,
                         const struct scratch *scratch) {
    const int64_t *ids = lists->ban ? lists->ban + row * lists->ban_step : NULL;
    int64_t count = 0, size = ids ? lists->ban_size : 0;
    memset(scratch->banned, 0, scratch->banned_slots * sizeof(int32_t));
    for (int64_t i = 0; i < size; i++) {
        if (i + IDS_AHEAD < size) __builtin_prefetch(head->places + ids[i + IDS_AHEAD]);
        if (i + IDS_AHEAD / 2 < size)
            __builtin_prefetch(head->firsts + find_place(head, ids[i + IDS_AHEAD / 2]) / LANES);
        int64_t place = find_place(head, ids[i]);
        if (place < 0 || (lists->marks && !lists->marks[ids[i]])) continue;
        int32_t position = find_position(head, place), *slot = find_slot(scratch, position);
        count += !*slot;
        *slot = position + 1;
    }
    return count;
}

/* By what of the scratch the candidates that lists forbid are told. */
enum reader { BY_LANES, BY_BANS, BY_MARKS };

/* Whether the lists forbid a class, by its position: by `permitted`, `banned`, or `marks`. */
INLINE int is_forbidden(const struct grouped *head, const struct scratch *scratch, int32_t position,
                        enum reader reader) {
    if (reader == BY_BANS) return *find_slot(scratch, position) != 0;
    int64_t id = head->order[position];
    return reader == BY_MARKS ? !scratch->marks[id] : !scratch->permitted[head->places[id]];
}

/* How many candidates come before the first one that a ban list forbids. */
static int64_t count_permitted(const struct scratch *scratch, int64_t count) {
    int64_t i = 0;
    while (i < count && !*find_slot(scratch, scratch->positions[i])) i++;
    return i;
}

/* Drops the candidates that the lists forbid; returns how many are left. forbidden: how many were dropped before, and
 * now; their values are kept. */
INLINE int64_t drop_forbidden(const struct grouped *head, const struct scratch *scratch, int64_t count,
                              enum reader reader, int64_t *forbidden) {
    int64_t kept = reader == BY_BANS ? count_permitted(scratch, count) : 0, dropped = *forbidden;
    for (int64_t i = kept; i < count; i++) { /* without a branch, which half of all classes would take */
        int32_t position = scratch->positions[i];
        float value = scratch->values[i];
        int32_t lane = scratch->lanes[i];
        if (reader != BY_BANS && i + IDS_AHEAD < count)
            __builtin_prefetch(head->order + scratch->positions[i + IDS_AHEAD]);
        if (reader == BY_MARKS && i + IDS_AHEAD / 2 < count)
            __builtin_prefetch(scratch->marks + head->order[scratch->positions[i + IDS_AHEAD / 2]]);
        int is_dropped = is_forbidden(head, scratch, position, reader);
        scratch->forbidden_values[dropped] = value;
        scratch->positions[kept] = position, scratch->values[kept] = value, scratch->lanes[kept] = lane;
        dropped += is_dropped, kept += !is_dropped;
    }
    *forbidden = dropped;
    return kept;
}

/* Whether the ids [size] ascend from 0 on, so that each is a class that stands there once. */
static int are_ascending(const int64_t *ids, int64_t size) {
    int ascend = size > 0 && ids[0] >= 0;
    for (int64_t i = 1; i < size; i++) ascend &= ids[i] > ids[i - 1];
    return ascend;
}

/* Writes the positions of the classes of ascending ids [size] to `positions`; returns how many there are. */
static int64_t list_positions(const struct grouped *head, const int64_t *ids, int64_t size, int32_t *positions) {
    int64_t count = 0;
    for (int64_t i = 0; i < size; i++) {
        if (i + IDS_AHEAD < size) __builtin_prefetch(head->places + ids[i + IDS_AHEAD]);
        int64_t place = head->places[ids[i]];
        if (place >= 0) positions[count++] = find_position(head, place);
    }
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

/* Widens a later look for lists: bans take up room, and those in front of a row's best classes, `ahead` of all, ask for
 * a closer look, in which `opened` classes in all are previewed whole. Where lists forbid many classes, all groups are
 * opened. lines: of an int8 row. */
static void widen_limits(int64_t classes, int64_t lines, int are_many, int64_t banned, int64_t ahead, int64_t opened,
                         struct grouped_limits *limits) {
    int64_t candidates = max_of(CANDIDATES_PER_DEPTH, CANDIDATE_LINES_PER_DEPTH / lines) * ahead;
    limits->opened = are_many ? classes : max_of(limits->opened + banned, opened);
    limits->candidates = max_of(limits->candidates, candidates);
    limits->previewed = max_of(max_of(limits->previewed, limits->candidates), opened);
}

/* Remembers what the first look scored exactly; returns how many classes these are. */
static int64_t keep_exact(const struct scratch *scratch, int64_t exact_count) {
    for (int64_t i = 0; i < exact_count; i++) {
        scratch->first_exact[i] = scratch->positions[scratch->exact[i]];
        scratch->first_values[i] = scratch->values[scratch->exact[i]];
    }
    return exact_count;
}

/* Whether one of positions [count], ascending, is this one. */
INLINE int holds_position(const int32_t *positions, int64_t count, int32_t position) {
    int64_t first = 0, end = count;
    while (first < end) {
        int64_t middle = (first + end) / 2;
        if (positions[middle] < position) first = middle + 1;
        else end = middle;
    }
    return first < count && positions[first] == position;
}

/* The log-sum of all classes that were scored exactly: by the first look, `first_count`, whose positions ascend since
 * it opens groups in their order, and by the last. */
static float add_exact(const struct scratch *scratch, int64_t first_count, int64_t exact_count) {
    int64_t total = first_count;
    memcpy(scratch->spare, scratch->first_values, first_count * sizeof(float));
    for (int64_t i = 0; i < exact_count; i++) {
        int32_t index = scratch->exact[i];
        if (!holds_position(scratch->first_exact, first_count, scratch->positions[index]))
            scratch->spare[total++] = scratch->values[index];
    }
    return total ? log_sum_exp(scratch->spare, total) : -INFINITY;
}

#endif
