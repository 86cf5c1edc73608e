/* Arrays of random numbers, each in an allocation of its own, and places for results, which are compared bit by bit. */
#ifndef SHORTLIST_RANDOM_ARRAYS_H
#define SHORTLIST_RANDOM_ARRAYS_H

#include "kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 16, LINE_BYTES = 64, MAX_BLOCKS = 1024 };

static uint64_t state;
static void *allocations[512];
static int allocation_count;

static uint64_t next_random(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static int64_t pick(int64_t low, int64_t high) { return low + (int64_t)(next_random() % (uint64_t)(high - low + 1)); }

static float pick_float(void) { return (float)((double)next_random() / 9.3e18 - 1); }

static void *allocate(int64_t size) { return allocations[allocation_count++] = aligned_alloc(64, size ? size : 1); }

/* aligned_alloc wants whole lines in some C libraries; malloc is exact. */
static void *allocate_exactly(int64_t size) { return allocations[allocation_count++] = malloc(size ? size : 1); }

static void free_all(void) {
    while (allocation_count) free(allocations[--allocation_count]);
}

static float *make_floats(int64_t count) {
    float *numbers = allocate_exactly(count * sizeof *numbers), size = pick(0, 3) ? 1 : 1000;
    for (int64_t i = 0; i < count; i++) numbers[i] = size * pick_float();
    return numbers;
}

static uint8_t *make_lines(int64_t lines) {
    uint8_t *bytes = allocate((lines ? lines : 1) * LINE_BYTES), extreme = pick(0, 4) == 0;
    for (int64_t i = 0; i < lines * LINE_BYTES; i++) bytes[i] = extreme ? 255 * pick(0, 1) : pick(0, 255);
    return bytes;
}

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Offsets of `sets` parts, each of `low` to `high`; the whole is returned in *total. */
static int64_t *make_offsets(int64_t sets, int64_t low, int64_t high, int64_t *total) {
    int64_t *offsets = allocate_exactly((sets + 1) * sizeof *offsets);
    offsets[0] = 0;
    for (int64_t i = 0; i < sets; i++) offsets[i + 1] = offsets[i] + pick(low, high);
    *total = offsets[sets];
    return offsets;
}

static int64_t *make_ids(int64_t count, int64_t classes) {
    int64_t *ids = allocate_exactly(count * sizeof *ids);
    for (int64_t i = 0; i < count; i++) ids[i] = pick(0, classes - 1);
    return ids;
}

/* Places for one target's results, filled with a pattern. */
struct results {
    int64_t *ids;
    float *logits, *normalizers;
    int32_t *scored;
};

static void *make_filled(int64_t size) { return memset(allocate_exactly(size), 0x5a, size); }

static struct results make_results(int64_t rows, int64_t k) {
    struct results results = {make_filled(rows * k * 8), make_filled(rows * k * 4), make_filled(rows * 4),
                              make_filled(rows * 4)};
    return results;
}

static int differ(const char *what, const struct kernels *kernels, const void *left, const void *right, int64_t size) {
    if (!memcmp(left, right, size)) return 0;
    printf("%s of %s are others than those of the portable target\n", what, kernels->target);
    return 1;
}

static int compare(const char *what, const struct kernels *kernels, struct results a, struct results b, int64_t rows,
                   int64_t k) {
    return differ(what, kernels, a.ids, b.ids, rows * k * 8) ||
           differ(what, kernels, a.logits, b.logits, rows * k * 4) ||
           differ(what, kernels, a.normalizers, b.normalizers, rows * 4) ||
           differ(what, kernels, a.scored, b.scored, rows * 4);
}

/* Whole numbers as bytes of any size, without a line to spare behind them. */
static uint8_t *make_bytes(int64_t count) {
    uint8_t *bytes = allocate_exactly(count), extreme = pick(0, 4) == 0;
    for (int64_t i = 0; i < count; i++) bytes[i] = extreme ? 255 * pick(0, 1) : pick(0, 255);
    return bytes;
}

static float *make_positive(int64_t count, float size) {
    float *numbers = make_floats(count);
    for (int64_t i = 0; i < count; i++) numbers[i] = pick(0, 9) ? fabsf(numbers[i]) * size : 0;
    return numbers;
}

/* One list a row, of ids and padding; of every class for some rows, where it is an allow list. */
static int64_t *make_list(int64_t rows, int64_t count, int64_t classes, int is_allow) {
    int64_t *ids = make_ids(rows * count, classes);
    for (int64_t i = 0; i < rows * count; i++)
        if (!pick(0, 3)) ids[i] = is_allow && i % count == 0 && pick(0, 1) ? ALL_CLASSES : -1;
    return ids;
}

/* Lists of some rows, or of all rows one, or NULL. */
static const struct lists *make_lists(int64_t rows, int64_t classes) {
    struct lists *lists = allocate_exactly(sizeof *lists);
    int64_t allow_rows = pick(0, 1) ? rows : 1, ban_rows = pick(0, 1) ? rows : 1;
    *lists = (struct lists){.allow_size = pick(1, 40), .ban_size = pick(1, 2 * classes)};
    if (!pick(0, 2)) lists->allow = make_list(allow_rows, lists->allow_size, classes, 1);
    if (!pick(0, 2)) lists->ban = make_list(ban_rows, lists->ban_size, classes, 0);
    lists->allow_step = allow_rows > 1 ? lists->allow_size : 0, lists->ban_step = ban_rows > 1 ? lists->ban_size : 0;
    return lists->allow || lists->ban ? lists : NULL;
}

/* The same for searches of groups: some have marks in place of allow lists. */
static const struct lists *make_marked_lists(int64_t rows, int64_t classes) {
    const struct lists *lists = make_lists(rows, classes);
    if (pick(0, 2)) return lists;
    struct lists *marked = allocate_exactly(sizeof *marked);
    uint8_t *marks = allocate_exactly(classes);
    int64_t rarity = pick(1, 9);
    *marked = (struct lists){.marks = marks};
    if (lists) marked->ban = lists->ban, marked->ban_size = lists->ban_size, marked->ban_step = lists->ban_step;
    for (int64_t i = 0; i < classes; i++) marks[i] = !pick(0, rarity), marked->allow_size += marks[i];
    return marked;
}

#endif
