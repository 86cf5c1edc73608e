/* Rows of plan `grouped`, from contexts of which nothing is known to their answers. */
#ifndef SHORTLIST_GROUPED_ANSWERS_H
#define SHORTLIST_GROUPED_ANSWERS_H

#include "grouped/search.h"
#include "row_answers.h"

struct group_answers {
    const struct request *request;
    struct row_answers rows;
};

#define SURE_MISS 0.999f /* a risk that stands for a row which is left to exact answers: plans/grouped knows it */
#define LEFT_ROW (-1) /* in place of the number of classes scored: kernels/grouped/answers.py knows it */
enum { WHOLE = 1, INCOMPLETE = 2 }; /* an answer: kernels/row_answers.py knows it */

/* Finishes the rows `first` to `last` - 1, but for those that are left to exact answers, which are marked; returns 0
 * where another one has no answer. */
static int finish_or_leave(const struct row_answers *rows, int64_t first, int64_t last) {
    int all = 1;
    for (int64_t row = first; row < last; row++)
        if (rows->risks[row] > SURE_MISS)
            rows->scored[row] = LEFT_ROW, rows->risks[row] = 0; /* exact answers miss nothing */
        else
            all &= finish_answer(rows, row);
    return all;
}

/* A part: the rows `first` to `last` - 1. */
static int answer_part_of_groups(void *shared, int64_t part) {
    const struct group_answers *answers = shared;
    const struct row_answers *rows = &answers->rows;
    int64_t first = part * rows->part_rows, last = end_part(rows, part);
    const struct request *request = answers->request;
    return search_rows(request->head, request->search, request->lists, rows->contexts, rows->ids, rows->logprobs,
                       rows->normalizers, rows->scored, rows->risks, NULL, first, last) &&
           finish_or_leave(rows, first, last);
}

/* Whether a row is left to exact answers. */
static int are_incomplete(const struct row_answers *rows) {
    for (int64_t row = 0; row < rows->count; row++)
        if (rows->scored[row] == LEFT_ROW) return 1;
    return 0;
}

/* Returns 0 where there is no answer, INCOMPLETE where kernels/grouped/answers.py has to complete it, else WHOLE. */
static int64_t answer_rows_of_groups(const struct request *request, const float *contexts, int64_t *ids) {
    struct group_answers answers = {.request = request};
    const struct grouped *head = request->head;
    const struct grouped_search *search = request->search;
    if (!are_finite(contexts, request->rows * head->dim) ||
        !are_lists(request->lists, request->rows, head->ids) ||
        !open_answers(&answers.rows, request, contexts, search->k, ids))
        return 0;
    struct shared_work work = {answer_part_of_groups, &answers, answers.rows.parts};
    int64_t done = run_parts(&work, request->threads);
    free(answers.rows.normalizers);
    return !done ? 0 : are_incomplete(&answers.rows) ? INCOMPLETE : WHOLE;
}

#endif
