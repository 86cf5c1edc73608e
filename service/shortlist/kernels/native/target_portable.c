/* Any processor: C alone, in vectors of sixteen bytes, which compilers take apart where there are none. */
#define TARGET "portable"
#define KERNELS kernels_portable
#define KERNEL_PARTS kernel_parts_portable
#define VECTOR_BYTES 16
#include "vectors.h"

#include "products_of_pairs.h"

#include "loops.h"
