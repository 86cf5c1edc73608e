/* Any processor: C alone, in vectors of sixteen bytes, which compilers take apart where there are none. */
#define TARGET "portable"
#define KERNELS kernels_portable
#define KERNEL_PARTS kernel_parts_portable
#define VECTOR_BYTES 16
#include "primitives/vectors.h"

#include "primitives/products_of_pairs.h"

#include "targets/loops.h"
