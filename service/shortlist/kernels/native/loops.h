/* All loops of one target, and the table that names them. A target includes this after its own products of bytes. */
#include "exact_rows.h"

const struct kernels KERNELS = {
    .name = TARGET,
    .score_exactly = score_exactly,
};
