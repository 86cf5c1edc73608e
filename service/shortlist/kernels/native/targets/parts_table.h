/* Parts of one target's loops, as the table of parts calls them. */
#ifndef SHORTLIST_PARTS_TABLE_H
#define SHORTLIST_PARTS_TABLE_H

#include "primitives/digits.h"
#include "primitives/exponentials.h"
#include "primitives/four_bits.h"
#include "primitives/select.h"
#include "screen/clusters.h"
#include "targets/parts.h"

static void call_multiply_block(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums) {
    multiply_block(block, levels, lines, sums);
}
static void call_multiply_two_bit_block(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums) {
    multiply_two_bit_block(block, levels, lines, sums);
}
static void call_multiply_block_by_digits(const uint8_t *block, const int8_t *coarse, const int8_t *fine, int64_t lines,
                                          int32_t *coarse_sums, int32_t *fine_sums) {
    multiply_block_by_digits(block, coarse, fine, lines, coarse_sums, fine_sums);
}
static void call_multiply_four_bit_block(const uint8_t *block, const int8_t *levels, int64_t rows, int64_t lines,
                                         int32_t *sums) {
    int8_t *spread = malloc(measure_spread(FOUR_BIT_ROWS, lines));
    for (int64_t first = 0; spread && first < rows; first += FOUR_BIT_ROWS) {
        int64_t count = rows - first < FOUR_BIT_ROWS ? rows - first : FOUR_BIT_ROWS;
        for (int64_t row = 0; row < count; row++)
            spread_levels(levels + FOUR_BIT_COLUMNS * lines * (first + row), row, count, lines, spread);
        multiply_four_bit_block(block, spread, (int)count, lines, (int32_t(*)[LANES])sums + first);
    }
    free(spread);
}
static int32_t call_multiply_row(const uint8_t *row, const int8_t *levels, int64_t lines) {
    return multiply_row(row, levels, lines);
}
static void call_multiply_row_by_digits(const uint8_t *row, const int8_t *coarse, const int8_t *fine, int64_t lines,
                                        int32_t *sums) {
    multiply_row_by_digits(row, coarse, fine, lines, sums);
}
static float call_quantize(const float *numbers, int64_t n, int8_t *levels) { return quantize(numbers, n, levels); }
static float call_sum_exp(const float *scores, int64_t n, float peak) { return sum_exp(scores, n, peak); }

const struct kernel_parts KERNEL_PARTS = {
    .multiply_block = call_multiply_block,
    .multiply_two_bit_block = call_multiply_two_bit_block,
    .multiply_block_by_digits = call_multiply_block_by_digits,
    .multiply_four_bit_block = call_multiply_four_bit_block,
    .multiply_row = call_multiply_row,
    .multiply_row_by_digits = call_multiply_row_by_digits,
    .find_threshold = find_threshold,
    .select_reaching = select_reaching,
    .select_best = select_best,
    .quantize = call_quantize,
    .sum_exp = call_sum_exp,
    .take_best = take_best,
    .drop_known = drop_known,
};

#endif
