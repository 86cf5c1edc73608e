/* Estimates of logits from rows of 4 bits, of all classes, and of int8, of some, with bounds on their errors. */
#ifndef SHORTLIST_ESTIMATES_H
#define SHORTLIST_ESTIMATES_H

#include "primitives/activations.h"
#include "primitives/turned_context.h"
#include "system/pool.h"

#include <stdlib.h>

enum {
    PART_BLOCKS = 64,        /* of one part of the work on all classes: 295 KB of weights for dim = 576 */
    PEAK_BLOCKS = 16,        /* of which each lane has one peak */
    ROW_PREFETCH_CLASSES = 4, /* how many int8 rows ahead of the current one */
};

/* One context of a call. estimates: [blocks, LANES] of logits, by 4 bits; -inf where there is no class. peaks:
 * [blocks / PEAK_BLOCKS rounded up, LANES], the largest of their upper bounds. */
struct query {
    const float *context;
    struct turned_context turned;
    float *estimates, *peaks;
};

/* The contexts of a call, and what they write to. Groups of FOUR_BIT_ROWS of them, the last one of fewer, share
 * products: each has its spread levels, `spread_size` bytes. */
struct queries {
    const struct certificate *certificate;
    const float *contexts;
    struct query *items;
    int64_t count;
    int8_t *spread;
    int64_t spread_size;
};

INLINE int64_t count_groups(const struct queries *queries) {
    return (queries->count + FOUR_BIT_ROWS - 1) / FOUR_BIT_ROWS;
}

/* How many contexts a group has. */
INLINE int64_t count_rows(const struct queries *queries, int64_t group) {
    int64_t left = queries->count - FOUR_BIT_ROWS * group;
    return left < FOUR_BIT_ROWS ? left : FOUR_BIT_ROWS;
}

INLINE int64_t count_peaks(const struct certificate *certificate) {
    return (certificate->blocks + PEAK_BLOCKS - 1) / PEAK_BLOCKS * LANES;
}

/* Logits after the soft-cap, if there is one; -inf stays. */
INLINE floats cap_logits(const struct certificate *certificate, floats logits) {
    float cap = certificate->soft_cap;
    if (!(cap > 0)) return logits;
    return choose_floats(logits > repeat_float(-INFINITY), compute_tanh(logits / cap) * cap, logits);
}

/* Writes the estimates of one block for one context, of its sums over levels, and raises the lanes' peaks. */
INLINE void write_estimates(const struct certificate *certificate, int64_t block, const int32_t *sums,
                            const struct query *query) {
    float half_level = query->turned.level * 0.5f, *peaks = query->peaks + block / PEAK_BLOCKS * LANES;
    for (int part = 0; part < PARTS; part++) {
        int64_t first = LANES * block + WIDTH * part;
        floats scale = load_floats(certificate->four_bit_scale + first);
        ints numbers;
        memcpy(&numbers, sums + WIDTH * part, sizeof numbers);
        floats halves = __builtin_convertvector(numbers * 2 - query->turned.shift, floats);
        floats constant = load_floats(certificate->constant + first) + query->turned.offset;
        floats logits = cap_logits(certificate, halves * (scale * half_level) + constant);
        floats upper = logits + scale * query->turned.reach;
        store_floats(query->estimates + first, logits);
        if (block % PEAK_BLOCKS) upper = max_floats(upper, load_floats(peaks + WIDTH * part));
        store_floats(peaks + WIDTH * part, choose_floats(upper == upper, upper, repeat_float(-INFINITY)));
    }
}

/* Estimates of the classes of one block for a group of contexts. */
static void estimate_block(const struct queries *queries, int64_t group, int64_t block) {
    const struct certificate *certificate = queries->certificate;
    const uint8_t *weights = certificate->four_bits + block * certificate->four_bit_lines * LINE_BYTES;
    const int8_t *spread = queries->spread + group * queries->spread_size;
    int64_t rows = count_rows(queries, group);
    int32_t sums[FOUR_BIT_ROWS][LANES];
    multiply_four_bit_block(weights, spread, (int)rows, certificate->four_bit_lines, sums);
    for (int64_t row = 0; row < rows; row++)
        write_estimates(certificate, block, sums[row], queries->items + FOUR_BIT_ROWS * group + row);
}

/* A part: PART_BLOCKS blocks for all contexts, while the weights are in the cache and a group's levels in the first. */
static int estimate_part(void *shared, int64_t part) {
    const struct queries *queries = shared;
    int64_t end = PART_BLOCKS * (part + 1), blocks = queries->certificate->blocks;
    for (int64_t group = 0; group < count_groups(queries); group++)
        for (int64_t block = PART_BLOCKS * part; block < (end < blocks ? end : blocks); block++)
            estimate_block(queries, group, block);
    return 1;
}

/* Levels and digits of one context, of which `centred` and `turned` [dim] is what the bounds know; both are
 * overwritten. */
static void take_context(const struct queries *queries, int64_t row, float *centred, float *turned) {
    const struct certificate *certificate = queries->certificate;
    struct turned_context *context = &queries->items[row].turned;
    int64_t dim = certificate->dim, group = row / FOUR_BIT_ROWS;
    double norm = sqrt(dot_exactly(centred, centred, dim));
    context->offset = (float)dot_exactly(centred, certificate->common, dim);
    take_levels(certificate, turned, norm, centred, context);
    take_digits(certificate, turned, norm, context);
    spread_levels(context->levels, row % FOUR_BIT_ROWS, count_rows(queries, group), certificate->four_bit_lines,
                  queries->spread + group * queries->spread_size);
}

/* A part: the basis, levels and digits of up to TURNED_ROWS contexts. */
static int turn_part(void *shared, int64_t part) {
    const struct queries *queries = shared;
    const struct certificate *certificate = queries->certificate;
    int64_t dim = certificate->dim, first = TURNED_ROWS * part, left = queries->count - first;
    int64_t count = left < TURNED_ROWS ? left : TURNED_ROWS;
    float *centred = malloc(2 * count * dim * sizeof *centred), *turned = centred + count * dim;
    if (!centred) return 0;
    for (int64_t row = 0; row < count; row++)
        for (int64_t i = 0; i < dim; i++)
            centred[row * dim + i] = queries->contexts[(first + row) * dim + i] - certificate->mean[i];
    if (count == TURNED_ROWS)
        change_basis(certificate, centred, TURNED_ROWS, turned);
    else /* each with its sums in registers */
        for (int64_t row = 0; row < count; row++) change_basis(certificate, centred + row * dim, 1, turned + row * dim);
    for (int64_t row = 0; row < count; row++)
        take_context(queries, first + row, centred + row * dim, turned + row * dim);
    free(centred);
    return 1;
}

/* How many bytes of a line or more `count` items take. */
INLINE int64_t round_to_lines(int64_t bytes) { return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES; }

/* Allocates what `count` contexts need, zeros in levels and digits; NULL in `items` where there is no memory. */
static struct queries open_queries(const struct certificate *certificate, const float *contexts, int64_t count) {
    struct queries queries = {.certificate = certificate, .contexts = contexts, .count = count};
    int64_t levels = round_to_lines(certificate->four_bit_lines * FOUR_BIT_COLUMNS);
    int64_t digits = 2 * certificate->row_lines * LINE_BYTES, whole = levels + digits;
    int64_t estimates = certificate->blocks * LANES, numbers = estimates + count_peaks(certificate);
    int64_t items = round_to_lines(count * (int64_t)sizeof *queries.items);
    queries.spread_size = round_to_lines(measure_spread(FOUR_BIT_ROWS, certificate->four_bit_lines));
    int64_t spread = items + count * (whole + numbers * (int64_t)sizeof(float));
    char *memory = aligned_alloc(LINE_BYTES, spread + count_groups(&queries) * queries.spread_size);
    if (!memory) return queries;
    queries.items = (struct query *)memory, queries.spread = (int8_t *)memory + spread;
    memset(memory, 0, items + count * whole);
    for (int64_t row = 0; row < count; row++) {
        struct query *query = queries.items + row;
        query->context = contexts + row * certificate->dim;
        query->turned.levels = (int8_t *)memory + items + row * whole;
        query->turned.digits = query->turned.levels + levels;
        query->estimates = (float *)(memory + items + count * whole) + row * numbers;
        query->peaks = query->estimates + estimates;
    }
    return queries;
}

/* Estimates of all classes for all contexts, by up to `threads` threads; returns 0 where there is no memory. */
static int64_t estimate_queries(struct queries *queries, int64_t threads) {
    int64_t parts = (queries->certificate->blocks + PART_BLOCKS - 1) / PART_BLOCKS;
    int64_t turns = (queries->count + TURNED_ROWS - 1) / TURNED_ROWS;
    return run_parts(&(struct shared_work){turn_part, queries, turns}, threads) &&
           run_parts(&(struct shared_work){estimate_part, queries, parts}, threads);
}

/* The int8 row of a class in whole lines; spare: [row_lines lines], for the last rows, behind which there is nothing.
 * What follows a row is multiplied by digits of 0. */
INLINE const uint8_t *find_row(const struct certificate *certificate, int64_t class_id, uint8_t *spare) {
    int64_t dim = certificate->dim, width = certificate->row_lines * LINE_BYTES;
    const uint8_t *row = certificate->rows + class_id * dim;
    return class_id * dim + width <= certificate->classes * dim ? row : memcpy(spare, row, dim);
}

/* The estimate of one class by int8. */
INLINE float estimate_finely(const struct certificate *certificate, const struct turned_context *context,
                             int64_t class_id, uint8_t *spare) {
    int32_t sums[2];
    const int8_t *fine = context->digits + certificate->row_lines * LINE_BYTES;
    multiply_row_by_digits(find_row(certificate, class_id, spare), context->digits, fine, certificate->row_lines, sums);
    float coarse = (float)(sums[0] - context->shifts[0]), rest = (float)(sums[1] - context->shifts[1]);
    float product = context->steps[0] * coarse + context->steps[1] * rest;
    float logit = product * certificate->scale[class_id] + (certificate->constant[class_id] + context->offset);
    return cap_logits(certificate, repeat_float(logit))[0];
}

/* Writes estimates of `count` classes by int8, and by how much each may be off. */
static void refine_estimates(const struct certificate *certificate, const struct turned_context *context,
                             const int64_t *ids, int64_t count, uint8_t *spare, float *estimates, float *reach) {
    for (int64_t i = 0; i < count; i++) {
        if (i + ROW_PREFETCH_CLASSES < count)
            prefetch_bytes(certificate->rows + ids[i + ROW_PREFETCH_CLASSES] * certificate->dim, certificate->dim);
        estimates[i] = estimate_finely(certificate, context, ids[i], spare);
        reach[i] = certificate->scale[ids[i]] * context->fine_reach;
    }
}

#endif
