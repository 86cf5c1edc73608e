/* Threads that share the parts of one call. */
#ifndef SHORTLIST_POOL_H
#define SHORTLIST_POOL_H

#include <stdint.h>

/* Work of one call: `run` is called for each part once, with what the parts share; false where one had no memory. */
struct shared_work {
    int (*run)(void *shared, int64_t part);
    void *shared;
    int64_t parts;
};

/* Runs all parts, by up to `threads` threads, the calling one among them; returns 0 where one of them failed.
 *
 * The others are started when they are first needed, and sleep between calls. One call at a time has them: one that
 * comes meanwhile runs alone. A process that was forked starts its own. */
int64_t run_parts(const struct shared_work *work, int64_t threads);

#endif
