/* Memory that large searches hand on from call to call. */
#ifndef SHORTLIST_MEMORY_H
#define SHORTLIST_MEMORY_H

#include <stdint.h>

/* As malloc, but faster for a mebibyte and more: memory that an earlier call gave back is taken again, where it is
 * large enough. The system maps such memory anew for each malloc, with a fault for every page that is written. */
void *take_memory(int64_t size);

/* As free, of what `take_memory` returned: up to 16 large pieces are kept for later calls. */
void give_memory(void *memory);

#endif
