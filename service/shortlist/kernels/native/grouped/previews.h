/* The candidates of a row in plan `grouped`: groups are opened by their centres, the classes in them previewed by the
 * columns that groups are compared by, and the best blocks of them by all columns.
 */
#ifndef SHORTLIST_GROUPED_PREVIEWS_H
#define SHORTLIST_GROUPED_PREVIEWS_H

#include "grouped/effort.h"
#include "grouped/scratch.h"
#include "primitives/digits.h"
#include "primitives/select.h"

enum {
    PREFETCH_BLOCKS = 8, /* how many ahead of the current one */
};
#define MIN_ROW_SCALE 1e-30f /* of the units that biases are taken in, so that none becomes infinite */

/* The products of the projection's columns and a context. The digits are finer than the levels that `projected` is
 * rounded to later, unless one number of the context is hundreds of times the others. */
static void project_context(const struct grouped *head, struct digit_steps steps, const struct scratch *scratch) {
    struct int8_columns columns = {head->projection, head->projection_scale, head->projection_blocks,
                                   head->projection_lines};
    multiply_columns(&columns, scratch->coarse, scratch->fine, steps, scratch->projected);
}

/* (weights @ levels - shift) * scale of one block. */
INLINE void score_block(const uint8_t *weights, const int8_t *levels, int64_t lines, int32_t shift, const float *scale,
                        float *scores) {
    int32_t sums[LANES];
    multiply_block(weights, levels, lines, sums);
    for (int64_t i = 0; i < LANES; i += WIDTH)
        store_floats(scores + i, convert_ints(load_ints(sums + i) - shift) * load_floats(scale + i));
}

/* The same, added to `scores`. */
INLINE void add_scores(const uint8_t *weights, const int8_t *levels, int64_t lines, int32_t shift, const float *scale,
                       float *scores) {
    float more[LANES];
    score_block(weights, levels, lines, shift, scale, more);
    for (int64_t i = 0; i < LANES; i += WIDTH)
        store_floats(scores + i, load_floats(scores + i) + load_floats(more + i));
}

/* Scores of the groups' centres: the first columns, which are much the largest, have a scale of their own. */
static void score_groups(const struct grouped *head, float row_scale, const struct scratch *scratch) {
    int64_t lines = head->centre_lines, wide = head->preview_lines < lines ? head->preview_lines : lines;
    const int8_t *levels = scratch->levels, *fine_levels = levels + wide * LANE_BYTES;
    int32_t shift = WEIGHT_ZERO_POINT * sum_levels(levels, wide * LANE_BYTES);
    int32_t fine_shift = WEIGHT_ZERO_POINT * sum_levels(fine_levels, (lines - wide) * LANE_BYTES);
    for (int64_t i = 0; i < head->centre_blocks; i++) {
        const uint8_t *weights = head->centres + i * lines * LINE_BYTES;
        float *scores = scratch->groups + LANES * i;
        score_block(weights, levels, wide, shift, head->centre_scale + LANES * i, scores);
        if (wide < lines)
            add_scores(weights + wide * LINE_BYTES, fine_levels, lines - wide, fine_shift,
                       head->centre_fine_scale + LANES * i, scores);
    }
    for (int64_t i = 0; i < head->groups; i++)
        scratch->groups[i] = (scratch->groups[i] + head->raises[i]) * row_scale + head->reach[i];
}

/* Writes first, first + 1, ..., end - 1 to `numbers`, up to LANES more behind these; returns how many. Whole vectors,
 * nearly always one: the end of a loop over single ones cannot be guessed. */
INLINE int64_t write_range(int64_t first, int64_t end, int32_t *numbers) {
    int64_t number = first;
    do
        for (int part = 0; part < (int)PARTS; part++) {
            ints some = count_lanes((int32_t)(WIDTH * part)) + (int32_t)number;
            memcpy(numbers + number - first + WIDTH * part, &some, sizeof some);
        }
    while (end - number > LANES && (number += LANES));
    return end - first;
}

/* Writes `score` `count` times to `scores`, up to LANES more behind these, as `write_range` writes numbers. */
INLINE void repeat_score(float score, int64_t count, float *scores) {
    int64_t written = 0;
    do
        for (int64_t i = 0; i < LANES; i += WIDTH) store_floats(scores + written + i, repeat_float(score));
    while (count - written > LANES && (written += LANES));
}

/* Writes the blocks of the best groups to block_ids, and the scores of these groups to block_groups, behind the blocks
 * that the look has of them, which are none where it was wider; returns how many there are with these. The groups'
 * scores are there. look: gets the score that opened groups reach, or somewhat less. */
static int64_t open_groups(const struct grouped *head, int64_t opened, const struct scratch *scratch,
                           struct look *look) {
    float threshold = find_threshold(scratch->groups, head->sizes, head->groups, opened, opened / SURPLUS_DIVISOR);
    if (threshold > look->group_bar) look->blocks = 0;
    int64_t known = look->blocks, count = known;
    int64_t reaching = select_reaching(scratch->groups, head->groups, threshold, scratch->positions);
    for (int64_t i = 0; i < reaching; i++) {
        int32_t group = scratch->positions[i];
        if (known && scratch->groups[group] >= look->group_bar) continue;
        int64_t first = head->group_blocks[group], end = head->group_blocks[group + 1];
        repeat_score(scratch->groups[group], end - first, scratch->block_groups + count);
        count += write_range(first, end, scratch->block_ids + count);
    }
    look->group_bar = threshold;
    return count;
}

/* Writes the blocks that hold permitted classes to block_ids, and the scores of their groups to block_groups; returns
 * how many. The groups' scores are there. restricted: whether there are lists. */
static int64_t open_all_groups(const struct grouped *head, int restricted, const struct scratch *scratch) {
    int64_t count = 0;
    for (int64_t group = 0; group < head->groups; group++)
        for (int64_t block = head->group_blocks[group]; block < head->group_blocks[group + 1]; block++) {
            scratch->block_ids[count] = (int32_t)block, scratch->block_groups[count] = scratch->groups[group];
            count += !restricted || scratch->block_permitted[block] > 0;
        }
    return count;
}

/* Adds `raise_share` of the raises, and biases times `inverse_scale`; lanes of a block that hold no class, or one that
 * is not permitted, get -inf. */
INLINE void finish_block(const struct grouped *head, int64_t block, const float *raises, float raise_share,
                         float inverse_scale, const uint8_t *permitted, float *scores) {
    for (int64_t i = 0; i < LANES; i += WIDTH) {
        ints is_filled = count_lanes((int32_t)i) < repeat_int(head->filled[block]);
        floats raise = load_floats(raises + i) * repeat_float(raise_share);
        floats raised = load_floats(scores + i) + raise;
        if (head->bias) raised += load_floats(head->bias + LANES * block + i) * repeat_float(inverse_scale);
        store_floats(scores + i, choose_floats(is_filled, raised, repeat_float(-INFINITY)));
    }
    if (permitted)
        for (int lane = 0; lane < LANES; lane++)
            scores[lane] = permitted[LANES * block + lane] ? scores[lane] : -INFINITY;
}

/* Two-bit lines of every block that a pass multiplies: how many, the levels of their columns, and what their zero point
 * adds to the sums. */
struct two_bit_lines {
    int64_t count;
    const int8_t *levels;
    int32_t shift;
};

static struct two_bit_lines find_lines(const struct grouped *head, const int8_t *levels, int64_t first,
                                       int64_t count) {
    int64_t columns = WEIGHTS_PER_BYTE * LANE_BYTES;
    const int8_t *some = levels + head->preview_lines * LANE_BYTES + first * columns;
    return (struct two_bit_lines){count, some, TWO_BIT_MAX * sum_levels(some, count * columns)};
}

/* Adds (2 weights @ levels - shift) * scale of one block to `scores`: weights u of 2 bits stand for 2 u - 3. */
INLINE void add_two_bit_scores(const uint8_t *weights, struct two_bit_lines lines, const float *scale, float *scores) {
    int32_t sums[LANES];
    multiply_two_bit_block(weights, lines.levels, lines.count, sums);
    for (int64_t i = 0; i < LANES; i += WIDTH) {
        floats more = convert_ints(2 * load_ints(sums + i) - lines.shift) * load_floats(scale + i);
        store_floats(scores + i, load_floats(scores + i) + more);
    }
}

/* Bytes of a block's record: what its classes are previewed by at first. */
INLINE int64_t measure_record(const struct grouped *head) {
    return (HEADER_LINES + head->preview_lines + head->coarse_lines) * LINE_BYTES;
}

/* Previews of the classes of the blocks first, ..., count - 1 of block_ids, by all columns in int8 and the coarse ones
 * in 2 bits. */
static void score_previews(const struct grouped *head, int64_t first, int64_t count, float raise_share,
                           float row_scale, const uint8_t *permitted, const struct scratch *scratch) {
    int64_t lines = head->preview_lines, size = measure_record(head);
    const int8_t *levels = scratch->levels;
    struct two_bit_lines coarse = find_lines(head, levels, 0, head->coarse_lines);
    int32_t shift = WEIGHT_ZERO_POINT * sum_levels(levels, lines * LANE_BYTES);
    float inverse_scale = row_scale > MIN_ROW_SCALE ? 1 / row_scale : 1 / MIN_ROW_SCALE;
    for (int64_t i = first; i < count; i++) {
        int64_t block = scratch->block_ids[i];
        const uint8_t *record = head->previews + block * size, *weights = record + HEADER_LINES * LINE_BYTES;
        const float *scale = (const float *)record;
        float *scores = scratch->block_previews + LANES * i;
        if (i + PREFETCH_BLOCKS < count)
            prefetch_bytes(head->previews + scratch->block_ids[i + PREFETCH_BLOCKS] * size, size);
        score_block(weights, levels, lines, shift, scale, scores);
        if (coarse.count) add_two_bit_scores(weights + lines * LINE_BYTES, coarse, scale + LANES, scores);
        int whole = !permitted || scratch->block_permitted[block] == head->filled[block];
        finish_block(head, block, scale + 2 * LANES, raise_share, inverse_scale, whole ? NULL : permitted, scores);
        scratch->is_refined[i] = 0;
    }
}

/* The largest preview of each of the blocks first, ..., count - 1 of block_ids, to block_scores, and how many classes
 * they hold, of lists only those permitted, to block_sizes. */
static void find_block_peaks(const struct grouped *head, int64_t first, int64_t count, int restricted,
                             const struct scratch *scratch) {
    const int32_t *sizes = restricted ? scratch->block_permitted : head->filled;
    for (int64_t i = first; i < count; i++) {
        scratch->block_scores[i] = find_largest_lane(scratch->block_previews + LANES * i);
        scratch->block_sizes[i] = sizes[scratch->block_ids[i]];
    }
}

/* Writes the places of the best of the first `count` blocks to `kept`, by the largest preview in each, until they hold
 * `previewed` classes; returns how many. */
static int64_t choose_blocks(int64_t count, int64_t previewed, const struct scratch *scratch) {
    float threshold = find_threshold(scratch->block_scores, scratch->block_sizes, count, previewed,
                                     previewed / SURPLUS_DIVISOR);
    return select_reaching(scratch->block_scores, count, threshold, scratch->kept);
}

/* Adds the fine columns to the previews of the first `count` blocks of `kept` that lack them, and writes the previews
 * of all of these to `scores`. */
static void refine_previews(const struct grouped *head, int64_t count, const struct scratch *scratch) {
    struct two_bit_lines fine = find_lines(head, scratch->levels, head->coarse_lines, head->fine_lines);
    int64_t size = head->fine_lines * LINE_BYTES, record_size = measure_record(head);
    for (int64_t i = 0; i < count; i++) {
        int32_t place = scratch->kept[i];
        int64_t block = scratch->block_ids[place];
        float *previews = scratch->block_previews + LANES * place;
        const float *scale = (const float *)(head->previews + block * record_size) + LANES;
        if (i + PREFETCH_BLOCKS < count && !scratch->is_refined[scratch->kept[i + PREFETCH_BLOCKS]])
            prefetch_bytes(head->fine_previews + scratch->block_ids[scratch->kept[i + PREFETCH_BLOCKS]] * size, size);
        if (fine.count && !scratch->is_refined[place])
            add_two_bit_scores(head->fine_previews + block * size, fine, scale, previews);
        scratch->is_refined[place] = 1;
        memcpy(scratch->scores + LANES * i, previews, LANES * sizeof(float));
    }
}

/* Previews of the classes of the first `count` blocks, of which `known` have them: by some columns at first, by all
 * where the best `previewed` classes are. Returns how many of the blocks are kept. */
static int64_t preview_blocks(const struct grouped *head, const struct grouped_limits *limits, float row_scale,
                              const uint8_t *permitted, const struct scratch *scratch, int64_t known, int64_t count) {
    score_previews(head, known, count, limits->raise_share, row_scale, permitted, scratch);
    find_block_peaks(head, known, count, permitted != NULL, scratch);
    int64_t kept = choose_blocks(count, limits->previewed, scratch);
    refine_previews(head, kept, scratch);
    return kept;
}

/* The position of a lane of the blocks in `kept`. */
INLINE int32_t find_kept_position(const struct grouped *head, const struct scratch *scratch, uint32_t lane) {
    return head->firsts[scratch->block_ids[scratch->kept[lane / LANES]]] + (int32_t)(lane % LANES);
}

/* Writes the positions of a row's candidates to `positions`, and their lanes to `lanes`; returns how many. Those of a
 * first look ascend; of a further one, those of blocks that it adds come behind the others.
 *
 * The projected context is in `levels`, in units of row_scale. permitted: of every lane, or NULL. classes: how many the
 * head has. look: of the row's looks so far; gets the bars that opened groups and candidates reach. What a narrower
 * look among all classes previewed is not previewed again: the candidates equal those of this look alone, in less
 * time; sums over them differ in rounding. */
static int64_t choose_candidates(const struct grouped *head, const struct grouped_limits *limits, float row_scale,
                                 const uint8_t *permitted, int64_t classes, const struct scratch *scratch,
                                 struct look *look) {
    int is_part = limits->opened < classes, is_kept = is_part && !permitted;
    if (!is_kept || look->raise_share != limits->raise_share) look->blocks = 0;
    if (!is_part) look->group_bar = -INFINITY;
    int64_t opened = is_part ? open_groups(head, limits->opened, scratch, look)
                             : open_all_groups(head, permitted != NULL, scratch);
    int64_t blocks = preview_blocks(head, limits, row_scale, permitted, scratch, look->blocks, opened);
    look->blocks = is_kept ? opened : 0, look->raise_share = limits->raise_share;
    int32_t *lanes = scratch->lanes;
    int64_t count = select_best(scratch->scores, LANES * blocks, limits->candidates, lanes, scratch->spare);
    float least, most;
    for (int64_t i = 0; i < count; i++) scratch->spare[i] = scratch->scores[lanes[i]];
    find_range(scratch->spare, count, &least, &most);
    look->bar = count ? least * row_scale : INFINITY;
    for (int64_t i = 0; i < count; i++) scratch->positions[i] = find_kept_position(head, scratch, lanes[i]);
    return count;
}

#endif
