/* All loops of one target, and the table that names them. A target includes this after its own products of bytes. */
#include "exact/dense_layer.h"
#include "exact/sampling.h"
#include "grouped/answers.h"
#include "mixture/answers.h"
#include "screen/changes.h"
#include "screen/screen.h"
#include "targets/parts_table.h"

const struct kernels KERNELS = {
    .target = TARGET,
    .score_exactly = score_exactly,
    .search_rows = search_rows,
    .answer_rows_of_groups = answer_rows_of_groups,
    .order_rows = order_rows,
    .score_sets = score_sets,
    .score_all_sets = score_all_sets,
    .answer_rows_of_sets = answer_rows_of_sets,
    .sum_row_set = sum_row_set,
    .merge_changes = merge_changes,
    .prove_rows = prove_rows,
    .sample_rows = sample_rows,
    .bound_rows = bound_rows,
    .rank_logits = rank_logits,
    .answer_rows_of_logits = answer_rows_of_logits,
    .score_layer = score_layer,
    .answer_row_of_layer = answer_row_of_layer,
    .mix_rows = mix_rows,
    .mix_rows_by_previews = mix_rows_by_previews,
    .answer_row_of_mixture = answer_row_of_mixture,
    .mark_list = mark_list,
};
