/* What a search keeps between its stages, and how that lies in memory. */
#ifndef SHORTLIST_GROUPED_SCRATCH_H
#define SHORTLIST_GROUPED_SCRATCH_H

#include "kernels.h"
#include "primitives/vectors.h"
#include "system/memory.h"

#include <stdlib.h>

/* Intermediate results of a search, allocated once for all rows of a call. */
struct scratch {
    void *memory;
    int8_t *coarse, *fine;               /* the context in two digits */
    int8_t *levels;                      /* the projected context in whole numbers */
    float *rest, *projected;             /* what digits leave of the context; the projected context */
    float *groups;                       /* scores of all groups */
    int32_t *block_ids, *block_sizes;    /* the blocks of opened groups, and how many classes they hold */
    float *block_groups, *block_scores;  /* the scores of their groups, and their best previews by some columns */
    float *block_previews;               /* [., LANES], of their classes, by all columns where `is_refined` says so */
    uint8_t *is_refined;
    int32_t *kept;                       /* the best of these blocks, by their places among them */
    float *scores, *values, *spare;      /* previews of the kept; logits of candidates; what choosing overwrites */
    int32_t *lanes;                      /* of the candidates: where in `scores` their previews are */
    int32_t *positions, *exact;          /* of the candidates in `order`; indices of those that are scored exactly */
    float *exact_values;                 /* logits of what is scored exactly */
    uint64_t *places;                    /* of what is scored exactly, as `make_place` makes them */
    int32_t *first_exact;                /* positions of what the first look scored exactly, where a row has lists */
    float *first_values;                 /* and their logits */
    float *forbidden_values;             /* logits of the first look's candidates that the lists forbid */
    uint8_t *permitted;                  /* of each lane of each block, whether the row's lists permit its class */
    int32_t *block_permitted;            /* how many classes of each block they permit */
    int32_t *banned;                     /* of banned classes, position + 1, in its slot or a later one; 0 is empty */
    const uint8_t *marks;                /* of the lists: [ids], whether a class is permitted; or NULL */
    int64_t banned_slots;                /* a power of two, most of them empty; 0 without bans */
};

INLINE int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

enum { SLOTS_PER_BAN = 8 }; /* at least: so few are taken that a look into an empty one is foreseen */

/* How many slots `count` banned classes are spread over. */
INLINE int64_t count_slots(int64_t count) {
    int64_t slots = 1;
    while (slots < SLOTS_PER_BAN * count) slots *= 2;
    return slots;
}

/* `count` items of `size` bytes from the next line on; the place after them is remembered. */
INLINE void *take(uintptr_t *place, int64_t count, int64_t size) {
    uintptr_t start = *place;
    *place += (count * size + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    return (void *)start;
}

/* Lays out what lists need. */
static void lay_out_lists(const struct grouped *head, const struct lists *lists, struct scratch *scratch,
                          uintptr_t *place) {
    scratch->permitted = take(place, head->blocks * LANES, 1);
    scratch->block_permitted = take(place, head->blocks, sizeof(int32_t));
    scratch->marks = lists ? lists->marks : NULL;
    scratch->banned_slots = lists && lists->ban ? count_slots(lists->ban_size) : 0;
    scratch->banned = take(place, scratch->banned_slots, sizeof(int32_t));
}

/* Lays out what is known of the blocks of opened groups. */
static void lay_out_blocks(int64_t blocks, struct scratch *scratch, uintptr_t *place) {
    int64_t written = blocks + LANES; /* numbers and scores are written by LANES */
    scratch->block_ids = take(place, written, sizeof(int32_t));
    scratch->block_sizes = take(place, blocks, sizeof(int32_t));
    scratch->block_groups = take(place, written, sizeof(float));
    scratch->block_scores = take(place, blocks, sizeof(float));
    scratch->block_previews = take(place, blocks * LANES, sizeof(float));
    scratch->is_refined = take(place, blocks, 1);
    scratch->kept = take(place, blocks, sizeof(int32_t));
}

/* Lays the scratch out from `place` on; returns how many bytes it takes. */
static int64_t lay_out_scratch(const struct grouped *head, const struct lists *lists, struct scratch *scratch,
                               uintptr_t place) {
    uintptr_t start = place;
    int64_t columns = (head->preview_lines + WEIGHTS_PER_BYTE * (head->coarse_lines + head->fine_lines)) * LANE_BYTES;
    int64_t levels = max_of(max_of(columns, head->centre_lines * LANE_BYTES), head->projection_blocks * LANES);
    int64_t digits = max_of(head->projection_lines * LANE_BYTES, head->code_lines * LINE_BYTES);
    int64_t classes = head->blocks * LANES;
    scratch->coarse = take(&place, digits, 1);
    scratch->fine = take(&place, digits, 1);
    scratch->levels = take(&place, levels, 1);
    scratch->rest = take(&place, head->dim, sizeof(float));
    scratch->projected = take(&place, head->projection_blocks * LANES, sizeof(float));
    scratch->groups = take(&place, head->centre_blocks * LANES, sizeof(float));
    lay_out_blocks(head->blocks, scratch, &place);
    scratch->lanes = take(&place, classes, sizeof(int32_t));
    scratch->positions = take(&place, classes, sizeof(int32_t));
    scratch->scores = take(&place, classes, sizeof(float));
    scratch->values = take(&place, classes, sizeof(float));
    scratch->spare = take(&place, classes, sizeof(float));
    scratch->exact = take(&place, classes, sizeof(int32_t));
    scratch->exact_values = take(&place, classes, sizeof(float));
    scratch->places = take(&place, classes, sizeof(uint64_t));
    scratch->first_exact = take(&place, classes, sizeof(int32_t));
    scratch->first_values = take(&place, classes, sizeof(float));
    scratch->forbidden_values = take(&place, classes, sizeof(float));
    lay_out_lists(head, lists, scratch, &place);
    return (int64_t)(place - start);
}

/* Digits and levels beyond those of the context stay zeros. */
static int allocate_scratch(const struct grouped *head, const struct lists *lists, struct scratch *scratch) {
    int64_t size = lay_out_scratch(head, lists, scratch, 0);
    if (!(scratch->memory = take_memory(size + LINE_BYTES))) return 0;
    lay_out_scratch(head, lists, scratch, ((uintptr_t)scratch->memory + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES);
    memset(scratch->coarse, 0, (char *)scratch->rest - (char *)scratch->coarse);
    return 1;
}

#endif
