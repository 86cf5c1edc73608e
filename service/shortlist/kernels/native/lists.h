/* Allow and ban lists: which classes may be returned for a row. */
#ifndef SHORTLIST_LISTS_H
#define SHORTLIST_LISTS_H

#include "kernels.h"
#include "primitives/vectors.h"

#include <string.h>

/* The ids that alone may be returned for a row; NULL where it has no such list. */
INLINE const int64_t *find_allow_list(const struct lists *lists, int64_t row) {
    const int64_t *allow = lists->allow ? lists->allow + row * lists->allow_step : NULL;
    return allow && lists->allow_size && allow[0] == ALL_CLASSES ? NULL : allow;
}

/* Sets permitted[id] to `value` for the ids of one row's list; -1 pads. */
INLINE void mark_ids(unsigned char *permitted, const int64_t *ids, int64_t count, unsigned char value) {
    for (int64_t i = 0; i < count; i++)
        if (ids[i] >= 0) permitted[ids[i]] = value;
}

/* Sets marks[id], of `classes`, to 1 for the `count` ids of a list; returns 0 where one is of no class, and stops. */
static int64_t mark_list(const int64_t *ids, int64_t count, int64_t classes, unsigned char *marks) {
    for (int64_t i = 0; i < count; i++) {
        if ((uint64_t)ids[i] >= (uint64_t)classes) return 0;
        marks[ids[i]] = 1;
    }
    return 1;
}

/* Whether all of a list's ids [count] are classes, of which the head has `ids`, or padding; NULL is no list. */
static int are_ids(const int64_t *list, int64_t count, int64_t ids) {
    int all = 1;
    for (int64_t i = 0; list && i < count; i++) all &= list[i] >= -1 && list[i] < ids;
    return all;
}

/* The same of the lists of `rows` rows, NULL where they have none. */
static int are_lists(const struct lists *lists, int64_t rows, int64_t ids) {
    return !lists ||
           (are_ids(lists->allow, (lists->allow_step ? rows : 1) * lists->allow_size, ids) &&
            are_ids(lists->ban, (lists->ban_step ? rows : 1) * lists->ban_size, ids));
}

/* Writes which classes [classes] may be returned for a row: 1 or 0. */
static void mark_permitted(const struct lists *lists, int64_t row, int64_t classes, unsigned char *permitted) {
    const int64_t *allow = find_allow_list(lists, row);
    memset(permitted, !allow, classes);
    if (allow) mark_ids(permitted, allow, lists->allow_size, 1);
    if (lists->ban) mark_ids(permitted, lists->ban + row * lists->ban_step, lists->ban_size, 0);
}

#endif
