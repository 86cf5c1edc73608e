/* Runs every target of the native library on random arrays of odd shapes, and compares their results bit by bit.
 *
 * Built with -fsanitize=address,undefined: every array has an allocation of its own and of its exact size, so that a
 * step beyond it is seen. Arguments: the first seed, and how many. Prints the seed and what differs, and exits with 1.
 */
#include "../../service/shortlist/kernels/native/kernels.h"
#include "emulate_vpdpbusd.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 16, LINE_BYTES = 64, MAX_BLOCKS = 1024 };

static uint64_t state;
static void *allocations[256];
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
    uint8_t *bytes = allocate(lines * LINE_BYTES), extreme = pick(0, 4) == 0;
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
    struct results results = {make_filled(rows * k * 8), make_filled(rows * k * 4), make_filled(rows * 4), make_filled(rows * 4)};
    return results;
}

static int differ(const char *what, const struct kernels *kernels, const void *left, const void *right, int64_t size) {
    if (!memcmp(left, right, size)) return 0;
    printf("%s of %s are others than those of the portable target\n", what, kernels->name);
    return 1;
}

static int compare(const char *what, const struct kernels *kernels, struct results a, struct results b, int64_t rows,
                   int64_t k) {
    return differ(what, kernels, a.ids, b.ids, rows * k * 8) || differ(what, kernels, a.logits, b.logits, rows * k * 4) ||
           differ(what, kernels, a.normalizers, b.normalizers, rows * 4) ||
           differ(what, kernels, a.scored, b.scored, rows * 4);
}

static int fuzz_exact_rows(const struct kernels *fast, const struct kernels *plain) {
    int64_t classes = pick(1, 50), dim = pick(1, 200), batch = pick(1, 3), count = pick(1, 40);
    struct exact_rows rows = {make_floats(classes * dim), pick(0, 1) ? make_floats(classes) : NULL,
                              pick(0, 1) ? make_floats(classes) : NULL, classes, dim, pick_float(), pick(0, 1) * 30.0f};
    float *contexts = make_floats(batch * dim), *left = make_filled(batch * count * 4), *right = make_filled(batch * count * 4);
    int64_t *ids = make_ids(batch * count, classes), first = pick(0, batch * count), last = pick(first, batch * count);
    fast->score_exactly(&rows, contexts, ids, left, count, first, last);
    plain->score_exactly(&rows, contexts, ids, right, count, first, last);
    if (differ("exact rows", fast, left, right, batch * count * 4)) return 1;
    ids[pick(0, batch * count - 1)] = pick(0, 1) ? -1 : classes;
    return fast->score_exactly(&rows, contexts, ids, left, count, 0, batch * count) != 0;
}

static void fill_groups(struct grouped *head, int64_t *classes) {
    int64_t *starts = make_offsets(head->groups, 0, 4, &head->blocks); /* some groups are empty */
    if (!head->blocks) starts[head->groups] = head->blocks = 1;
    int32_t *filled = allocate_exactly(head->blocks * 4), *firsts = allocate_exactly(head->blocks * 4);
    int32_t *sizes = allocate_exactly(head->groups * 4);
    *classes = 0;
    for (int64_t i = 0; i < head->blocks; i++) firsts[i] = *classes, filled[i] = pick(1, LANES), *classes += filled[i];
    for (int64_t group = 0; group < head->groups; group++) {
        sizes[group] = 0;
        for (int64_t i = starts[group]; i < starts[group + 1]; i++) sizes[group] += filled[i];
    }
    head->group_blocks = starts, head->filled = filled, head->firsts = firsts, head->sizes = sizes;
}

static uint8_t *make_previews(const struct grouped *head) {
    int64_t lines = 2 + head->preview_lines + head->two_bit_lines;
    uint8_t *records = make_lines(head->blocks * lines);
    for (int64_t block = 0; block < head->blocks; block++)
        for (int64_t i = 0; i < 2 * LANES; i++) {
            float scale = pick_float();
            memcpy(records + block * lines * LINE_BYTES + 4 * i, &scale, 4);
        }
    return records;
}

static int fuzz_grouped(const struct kernels *fast, const struct kernels *plain) {
    int64_t classes, rows = pick(1, 3), width = pick(1, 90), dim = pick(1, 200);
    struct grouped head = {.dim = dim, .projection_blocks = divide_up(width, LANES),
                           .projection_lines = 2 * divide_up(dim, 8), .groups = pick(1, 40),
                           .centre_lines = pick(1, 9), .block_row_lines = pick(1, 3), .preview_lines = pick(0, 9),
                           .two_bit_lines = pick(0, 20), .code_lines = divide_up(dim, LINE_BYTES),
                           .logit_scale = 0.7f, .soft_cap = pick(0, 1) * 30.0f, .tail_offset = 1, .tail_limit = 2};
    fill_groups(&head, &classes);
    head.centre_blocks = divide_up(head.groups, LANES);
    head.projection = make_lines(head.projection_blocks * head.projection_lines);
    head.projection_scale = make_floats(head.projection_blocks * LANES), head.tail = make_floats(dim);
    head.centres = make_lines(head.centre_blocks * head.centre_lines);
    head.centre_scale = make_floats(head.centre_blocks * LANES), head.reach = make_floats(head.groups);
    head.block_rows = make_lines(head.blocks * head.block_row_lines), head.previews = make_previews(&head);
    head.block_scale = make_floats(head.blocks), head.block_reach = make_floats(head.blocks);
    head.bias = pick(0, 1) ? make_floats(head.blocks * LANES) : NULL;
    head.code_bias = head.bias ? make_floats(classes) : NULL;
    int64_t *order = allocate_exactly(classes * 8), *places = allocate_exactly(classes * 8);
    for (int64_t block = 0; block < head.blocks; block++)
        for (int64_t lane = 0; lane < head.filled[block]; lane++) {
            int64_t position = head.firsts[block] + lane;
            order[position] = position, places[position] = LANES * block + lane;
        }
    head.order = order;
    head.codes = make_lines(classes * head.code_lines), head.code_scale = make_floats(classes);
    head.rows = make_floats(classes * dim);
    struct grouped_limits limits[3];
    for (int64_t i = 0; i < 3; i++)
        limits[i] = (struct grouped_limits){pick(1, 300), pick(1, 300), pick(0, 1) * pick(1, 200), pick(1, 200), pick(1, 40)};
    struct grouped_search search = {limits, pick(0, 1) ? make_floats(3 * (EFFORT_FEATURES + 1)) : NULL, pick(1, 3),
                                    pick(1, classes < 9 ? classes : 9), pick(1, 200), pick_float()};
    int64_t allowed = pick(0, 9), banned = pick(0, 9);
    struct grouped_lists lists = {places, allowed ? make_ids(allowed * rows, classes) : NULL,
                                  banned ? make_ids(banned, classes) : NULL, allowed, allowed, banned, 0};
    const struct grouped_lists *given = allowed || banned ? &lists : NULL;
    float *contexts = make_floats(rows * dim), *odds = make_filled(rows * 4), *features = NULL;
    if (pick(0, 1)) features = make_filled(rows * EFFORT_FEATURES * 4);
    if (!pick(0, 9)) memset(contexts, 0, rows * dim * 4);
    struct results left = make_results(rows, search.k), right = make_results(rows, search.k);
    fast->search_rows(&head, &search, given, contexts, left.ids, left.logits, left.normalizers, left.scored, odds, features,
                      0, rows);
    plain->search_rows(&head, &search, given, contexts, right.ids, right.logits, right.normalizers, right.scored, odds,
                       features, 0, rows);
    return compare("grouped searches", fast, left, right, rows, search.k);
}

/* A second stage of these sets, whose ids are under `ids`. */
static const struct second_stage *make_stage(const struct sets *sets, int64_t ids) {
    struct exact_rows *rows = allocate_exactly(sizeof *rows);
    struct second_stage *stage = allocate_exactly(sizeof *stage);
    int64_t *blocks = allocate_exactly((sets->sets + 1) * sizeof *blocks), width = pick(1, 50), lines = divide_up(width, 4);
    blocks[0] = 0;
    for (int64_t i = 0; i < sets->sets; i++)
        blocks[i + 1] = blocks[i] + divide_up(sets->offsets[i + 1] - sets->offsets[i], LANES);
    int64_t classes = blocks[sets->sets] * LANES;
    *rows = (struct exact_rows){make_floats(ids * sets->dim), pick(0, 1) ? make_floats(ids) : NULL, NULL, ids, sets->dim,
                                sets->logit_scale, sets->soft_cap};
    *stage = (struct second_stage){rows, make_floats(sets->dim * width), blocks, make_lines(blocks[sets->sets] * lines),
                                   make_floats(classes), pick(0, 1) ? make_floats(classes) : NULL, width, lines};
    return stage;
}

static int fuzz_sets(const struct kernels *fast, const struct kernels *plain) {
    int64_t classes, count = pick(1, 9), dim = pick(1, 150), are_experts = pick(0, 1);
    struct sets sets = {.dim = dim, .sets = pick(1, 9), .lines = dim + (are_experts || pick(0, 1)), .largest = 60,
                        .are_experts = are_experts, .logit_scale = pick_float(), .soft_cap = pick(0, 1) * 30.0f};
    sets.offsets = make_offsets(sets.sets, 1, 60, &classes);
    sets.chooser = make_floats(dim * sets.sets), sets.weights = make_floats(classes * sets.lines);
    sets.ids = make_ids(classes, 2 * classes), sets.tail = make_floats(sets.sets);
    if (!are_experts && pick(0, 1)) sets.stage = make_stage(&sets, 2 * classes);
    struct screen_limits limits = {pick(1, 5), pick(1, 3), pick(0, 1) * 0.4, pick(0, 1) * 0.1, pick(5, 40)};
    float *contexts = make_floats(count * dim);
    struct results left = make_results(count, limits.k), right = make_results(count, limits.k);
    fast->score_all_sets(&sets, &limits, contexts, left.ids, left.logits, left.normalizers, left.scored, count);
    plain->score_all_sets(&sets, &limits, contexts, right.ids, right.logits, right.normalizers, right.scored, count);
    if (compare("rows of sets", fast, left, right, count, limits.k)) return 1;
    int64_t size = limits.k * 12 + 4, *one = make_filled(size), *other = make_filled(size);
    int64_t answers = fast->answer_row_of_sets(&sets, &limits, contexts, one);
    if (answers != plain->answer_row_of_sets(&sets, &limits, contexts, other)) return 1;
    return answers && differ("whole answers", fast, one, other, size);
}

static int fuzz_bounds(const struct kernels *fast, const struct kernels *plain) {
    int64_t dim = pick(1, 150), classes = pick(1, 100), count = pick(1, 4), blocks = divide_up(classes, LANES), rows = 1;
    while (rows * rows < dim) rows++;
    struct bounds bounds = {make_floats(dim), make_floats(rows * rows * dim), make_floats(3), make_floats(classes),
                            make_floats(classes), NULL, dim, rows, classes, 2 * divide_up(dim, 8)};
    bounds.rows = make_lines(blocks * bounds.lines);
    int64_t size = count * 2 * 4 * bounds.lines;
    float *contexts = make_floats(count * dim);
    struct { int8_t *digits; float *steps, *spreads, *estimates; int32_t *shifts; } results[2];
    for (int i = 0; i < 2; i++) {
        const struct kernels *kernels = i ? plain : fast;
        results[i].digits = memset(allocate_exactly(size), 0, size), results[i].steps = make_filled(count * 8);
        results[i].spreads = make_filled(count * 4), results[i].shifts = make_filled(count * 8);
        results[i].estimates = make_filled(count * classes * 4);
        kernels->quantize_contexts(&bounds, contexts, count, results[i].digits, results[i].steps, results[i].shifts,
                                   results[i].spreads);
        kernels->estimate_logits(&bounds, results[i].digits, results[i].steps, results[i].shifts, results[i].estimates,
                                 count, 0, blocks);
    }
    return differ("digits", fast, results[0].digits, results[1].digits, size) ||
           differ("spreads", fast, results[0].spreads, results[1].spreads, count * 4) ||
           differ("estimates", fast, results[0].estimates, results[1].estimates, count * classes * 4);
}

/* The target of this name, NULL where it is not there; AVX-VNNI in software where the build asks for that. */
static const struct kernels *find_kernels(const char *name) {
#ifdef EMULATE
    extern const struct kernels kernels_avxvnni;
    if (!strcmp(name, kernels_avxvnni.name)) return &kernels_avxvnni;
#endif
    return shortlist_find_kernels(name);
}

int main(int count, char **arguments) {
    uint64_t first = count > 1 ? strtoull(arguments[1], NULL, 10) : 1, runs = count > 2 ? strtoull(arguments[2], NULL, 10) : 1000;
    static int (*const parts[])(const struct kernels *, const struct kernels *) = {fuzz_exact_rows, fuzz_grouped, fuzz_sets, fuzz_bounds};
    static const char *const names[] = {"avx512vnni", "avxvnni", "avx2", "neon", "portable"};
    const struct kernels *plain = find_kernels("portable");
#ifdef EMULATE
    emulate_vpdpbusd();
#endif
    for (uint64_t seed = first; seed < first + runs; seed++)
        for (int name = 0; name < (int)(sizeof names / sizeof *names); name++)
            for (int part = 0; part < 4; part++) {
                const struct kernels *kernels = find_kernels(names[name]);
                state = seed * 0x9e3779b97f4a7c15u + 1;
                if (kernels && parts[part](kernels, plain)) {
                    printf("seed %llu\n", (unsigned long long)seed);
                    return 1;
                }
                free_all();
            }
    printf("%llu seeds: no difference\n", (unsigned long long)runs);
    return 0;
}
