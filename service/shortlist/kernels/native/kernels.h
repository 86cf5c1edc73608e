/* What the library offers: one table of functions for each target, and the arrays that they read.
 *
 * All arrays are C-contiguous; Python checks types, shapes and indices before it hands over an address. Nothing here
 * calls Python, so that the interpreter's lock is released during each call. Every function may be called by many
 * threads at once.
 */
#ifndef SHORTLIST_KERNELS_H
#define SHORTLIST_KERNELS_H

#include <stdint.h>

/* The rows of a layer. weight: [classes, dim]. bias, padding: [classes] or NULL. soft_cap: 0 for none. */
struct exact_rows {
    const float *weight, *bias, *padding;
    int64_t classes, dim;
    float logit_scale, soft_cap;
};

struct kernels {
    const char *name;

    /* Writes the logits of the items `first` to `last` - 1 of ids [B, count] to `logits` [B, count], each for its row
     * of contexts [B, dim]. Returns 0, and writes none, where one of them is no class of the layer. */
    int64_t (*score_exactly)(const struct exact_rows *rows, const float *contexts, const int64_t *ids, float *logits,
                             int64_t count, int64_t first, int64_t last);
};

/* The functions of the target of this name, NULL where this build or this processor lacks it. No name, or an empty
 * one: the fastest that there is. */
const struct kernels *shortlist_find_kernels(const char *name);

/* A hash of the sources that the library was built from. */
const char *shortlist_source_hash(void);

#endif
