/* Allow and ban lists of a row in plan `grouped`: which lanes of which blocks hold a class that may be returned. */
#ifndef SHORTLIST_GROUPED_LISTS_H
#define SHORTLIST_GROUPED_LISTS_H

#include "grouped_scratch.h"
#include "lists.h"

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

#endif
