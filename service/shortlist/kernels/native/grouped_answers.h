/* Rows of plan `grouped`, from contexts of which nothing is known to their answers. */
#ifndef SHORTLIST_GROUPED_ANSWERS_H
#define SHORTLIST_GROUPED_ANSWERS_H

#include "grouped.h"
#include "row_answers.h"

struct group_answers {
    const struct grouped *head;
    const struct grouped_search *search;
    struct row_answers rows;
};

/* A part: the rows `first` to `last` - 1. */
static int answer_part_of_groups(void *shared, int64_t part) {
    const struct group_answers *answers = shared;
    const struct row_answers *rows = &answers->rows;
    int64_t first = part * rows->part_rows, last = end_part(rows, part);
    return search_rows(answers->head, answers->search, NULL, rows->contexts, rows->ids, rows->logprobs,
                       rows->normalizers, rows->scored, rows->odds, NULL, first, last) &&
           finish_answers(rows, first, last);
}

static int64_t answer_rows_of_groups(const struct grouped *head, const struct grouped_search *search,
                                     const float *contexts, int64_t count, int64_t threads, int64_t *ids) {
    struct group_answers answers = {head, search, {0}};
    if (!are_finite(contexts, count * head->dim) ||
        !open_answers(&answers.rows, contexts, count, search->k, threads, ids))
        return 0;
    int64_t done = run_parts(&(struct shared_work){answer_part_of_groups, &answers, answers.rows.parts}, threads);
    free(answers.rows.normalizers);
    return done;
}

#endif
