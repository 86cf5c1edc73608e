/* Memory that large searches hand on from call to call. */
#ifndef SHORTLIST_MEMORY_H
#define SHORTLIST_MEMORY_H

#include <stdint.h>

/* As malloc, but faster for much memory: what an earlier call gave back, of a mebibyte and more, is taken again where
 * it is large enough, and lies in large pages. From 32 MiB on the system maps memory anew for each malloc, with a fault
 * for every page written. */
void *take_memory(int64_t size);

/* As free, of what `take_memory` returned: up to 16 large pieces are kept for later calls. */
void give_memory(void *memory);

#endif
