/* Parts of the loops by themselves, for tests: one table of functions for each target. */
#ifndef SHORTLIST_PARTS_H
#define SHORTLIST_PARTS_H

#include <stdint.h>

/* Lines and blocks are those of `struct grouped`; digits are at most 64 in size. The block's sums [16] int32; with two
 * digits those of both. */
struct kernel_parts {
    void (*multiply_block)(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums);
    void (*multiply_two_bit_block)(const uint8_t *block, const int8_t *levels, int64_t lines, int32_t *sums);
    void (*multiply_block_by_digits)(const uint8_t *block, const int8_t *coarse, const int8_t *fine, int64_t lines,
                                     int32_t *coarse_sums, int32_t *fine_sums);
    void (*multiply_four_bit_block)(const uint8_t *block, const int8_t *levels, int64_t rows, int64_t lines,
                                    int32_t *sums); /* levels: [rows, 8 lines] */
    int32_t (*multiply_row)(const uint8_t *row, const int8_t *levels, int64_t lines);
    void (*multiply_row_by_digits)(const uint8_t *row, const int8_t *coarse, const int8_t *fine, int64_t lines,
                                   int32_t *sums);
    float (*find_threshold)(const float *scores, const int32_t *sizes, int64_t n, int64_t target, int64_t surplus);
    int64_t (*select_reaching)(const float *scores, int64_t n, float threshold, int32_t *positions);
    int64_t (*select_best)(const float *scores, int64_t n, int64_t target, int32_t *positions, float *spare);
    float (*quantize)(const float *numbers, int64_t n, int8_t *levels);
    float (*sum_exp)(const float *scores, int64_t n, float peak);
    void (*take_best)(const float *logits, const int64_t *ids, int64_t n, float *best, int64_t *best_ids, int64_t k);
    int64_t (*drop_known)(const int64_t *known, int64_t m, const int64_t *ids, int64_t n, uint64_t *bits,
                          float *logits);
};

/* The parts of the target that `shortlist_find_kernels` finds by this name; NULL where there is none. */
const struct kernel_parts *shortlist_find_parts(const char *name);

#endif
