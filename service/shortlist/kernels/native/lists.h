/* Allow and ban lists: which classes may be returned for a row. */
#ifndef SHORTLIST_LISTS_H
#define SHORTLIST_LISTS_H

#include "kernels.h"

#include <string.h>

INLINE int has_lists(const struct lists *lists) { return lists->allow || lists->ban; }

/* Sets permitted[id] to `value` for the ids of one row's list; -1 pads. */
INLINE void mark_ids(unsigned char *permitted, const int64_t *ids, int64_t count, unsigned char value) {
    for (int64_t i = 0; i < count; i++)
        if (ids[i] >= 0) permitted[ids[i]] = value;
}

/* Writes which classes [classes] may be returned for a row: 1 or 0. */
static void mark_permitted(const struct lists *lists, int64_t row, int64_t classes, unsigned char *permitted) {
    memset(permitted, !lists->allow, classes);
    if (lists->allow) mark_ids(permitted, lists->allow + row * lists->allow_stride, lists->allow_count, 1);
    if (lists->ban) mark_ids(permitted, lists->ban + row * lists->ban_stride, lists->ban_count, 0);
}

#endif
