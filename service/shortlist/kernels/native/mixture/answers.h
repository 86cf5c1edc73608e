/* A single row of plan `mixture`: its front, the search among rare classes, and the k best of both. */
#ifndef SHORTLIST_MIXTURE_ANSWERS_H
#define SHORTLIST_MIXTURE_ANSWERS_H

#include "exact/dense_rows.h"
#include "grouped/search.h"
#include "mixture/previews.h"

/* The k best classes of one part, and the log-sum of all its classes. ids: [k], -1 where there are fewer. */
struct part_answer {
    int64_t *ids;
    float *logits, normalizer;
};

/* Whether the first of two classes comes before the other; -1 comes last. */
INLINE int comes_first(const struct part_answer *one, int64_t i, const struct part_answer *other, int64_t j) {
    if (one->ids[i] < 0 || other->ids[j] < 0) return other->ids[j] < 0;
    return one->logits[i] > other->logits[j] || (one->logits[i] == other->logits[j] && one->ids[i] < other->ids[j]);
}

/* The k best of both parts, by log-probabilities. */
static void merge_parts(const struct part_answer *one, const struct part_answer *other, int64_t k, float normalizer,
                        int64_t *ids, float *logprobs) {
    for (int64_t rank = 0, i = 0; rank < k; rank++) {
        int64_t j = rank - i;
        const struct part_answer *part = comes_first(one, i, other, j) ? one : other;
        int64_t place = part == one ? i++ : j;
        ids[rank] = part->ids[place];
        logprobs[rank] = part->logits[place] - normalizer;
    }
}

/* The k best of the logits of the frequent classes; 0 where there is no memory for it. */
static int rank_frequent(const struct mixture_head *head, float *logits, int64_t k, struct part_answer *answer) {
    struct dense_work work = {NULL, logits, answer->logits, &answer->normalizer, answer->ids, head->front->frequent, k};
    if (!rank_dense_row(&work, 0)) return 0;
    for (int64_t i = 0; i < k; i++)
        if (answer->ids[i] >= 0) answer->ids[i] = head->frequent_ids[answer->ids[i]];
    return 1;
}

/* memory: room for [2 k] ids and [2 k + dim + frequent] numbers. */
static int64_t answer_mixture(const struct mixture_head *head, const struct grouped_search *search,
                              const float *context, void *memory, int64_t *ids) {
    int64_t k = search->k, *part_ids = memory;
    float *part_logits = (float *)(part_ids + 2 * k), *mean = part_logits + 2 * k, *logits = mean + head->front->dim;
    float *logprobs = (float *)(ids + k), risk;
    struct part_answer frequent = {part_ids, part_logits, NAN}, rare = {part_ids + k, part_logits + k, NAN};
    int64_t exact = search->limits[0].full_view; /* the same for every k of one width */
    int32_t scored = 0, previewed = 0;
    if (!mix_rows_by_previews(head->front, head->previews, exact, context, mean, logits, &previewed, NULL, NULL, 0,
                              1) ||
        !rank_frequent(head, logits, k, &frequent) ||
        !search_rows(head->rare, search, NULL, mean, rare.ids, rare.logits, &rare.normalizer, &scored, &risk, NULL, 0,
                     1))
        return 0;
    float normalizer = log_add_exp(frequent.normalizer, rare.normalizer);
    if (!isfinite(normalizer)) return 0;
    merge_parts(&frequent, &rare, k, normalizer, ids, logprobs);
    scored += previewed;
    memcpy(logprobs + k, &scored, sizeof scored);
    return 1;
}

static int64_t answer_row_of_mixture(const struct request *request, const float *context, int64_t *ids) {
    const struct mixture_head *head = request->head;
    const struct grouped_search *search = request->search;
    int64_t numbers = 2 * search->k + head->front->dim + head->front->frequent;
    void *memory = malloc(2 * search->k * sizeof *ids + numbers * sizeof(float));
    int64_t is_answered =
        memory && are_finite(context, head->front->dim) && answer_mixture(head, search, context, memory, ids);
    free(memory);
    return is_answered;
}

#endif
