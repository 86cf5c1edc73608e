/* The classes of one context that are looked at more closely than by 4 bits: by int8, some of them exactly. */
#ifndef SHORTLIST_CANDIDATES_H
#define SHORTLIST_CANDIDATES_H

#include "exact/estimates.h"
#include "exact/exact_rows.h"
#include "lists.h"
#include "primitives/select.h"
#include "system/memory.h"

#include <float.h>

#define MAX_CONTEXT_NORM 1e30 /* norm of a context that float32 can surely work with */

/* What a call for proofs asks, and where its results go. */
struct proof_work {
    struct queries queries;
    const struct proof_limits *limits;
    const struct lists *lists;
    int64_t *ids;
    float *logits;
    double *normalizers, *errors;
    int32_t *scored;
};

/* The candidates [count] of one context, in no order: those whose estimates by 4 bits may reach `cut`, and more where
 * an answer needs them. Their estimates by 4 bits are -inf from then on. `estimates` and `reach` are by int8. Of those
 * that are exact, estimates are -inf, and `logits` are off by at most `slack`. permitted: [classes], NULL where all
 * are. room: for so many. */
struct candidates {
    const struct proof_work *work;
    const struct query *query;
    int64_t *ids, *chosen_ids;
    float *estimates, *reach, *logits, *slack, *chosen_logits, *spare;
    int32_t *positions;
    unsigned char *exact, *permitted;
    uint8_t *spare_row;
    int64_t count, exact_count, room;
    double size; /* of the context: its norm and 1 */
    float cut;
};

INLINE const struct certificate *get_certificate(const struct candidates *candidates) {
    return candidates->work->queries.certificate;
}

INLINE int is_permitted(const struct candidates *candidates, int64_t class_id) {
    return !candidates->permitted || candidates->permitted[class_id];
}

/* Lays the arrays out from `place` on, those that are aligned most first; returns how many bytes they take. */
static int64_t lay_out_candidates(struct candidates *candidates, char *place) {
    const struct certificate *certificate = get_certificate(candidates);
    int64_t room = candidates->room, start = (int64_t)(intptr_t)place;
    candidates->ids = (int64_t *)place, candidates->chosen_ids = candidates->ids + room;
    float **floats_of[] = {&candidates->estimates, &candidates->reach, &candidates->logits,
                           &candidates->slack, &candidates->chosen_logits, &candidates->spare};
    place = (char *)(candidates->chosen_ids + room);
    for (int i = 0; i < 6; i++, place += (room + LANES) * sizeof(float)) *floats_of[i] = (float *)place;
    candidates->positions = (int32_t *)place; /* here and above a vector more than there is room for is written */
    candidates->exact = (unsigned char *)(candidates->positions + room + LANES);
    candidates->spare_row = candidates->exact + room;
    candidates->permitted = candidates->spare_row + certificate->row_lines * LINE_BYTES;
    return (int64_t)(intptr_t)(candidates->permitted + certificate->classes) - start;
}

/* A bound of the norm of (context, 1); infinite where float32 may not be able to work with it. */
INLINE double measure_size(const float *context, int64_t dim) {
    double size = sqrt(dot_exactly(context, context, dim)) + 1;
    return size < MAX_CONTEXT_NORM ? size : INFINITY;
}

/* Returns 0 where there is no memory. */
static int open_candidates(const struct proof_work *work, int64_t row, struct candidates *candidates) {
    const struct certificate *certificate = work->queries.certificate;
    memset(candidates, 0, sizeof *candidates);
    candidates->work = work, candidates->query = work->queries.items + row;
    candidates->room = work->limits->refined, candidates->cut = INFINITY;
    candidates->size = measure_size(candidates->query->context, certificate->dim);
    char *memory = take_memory(lay_out_candidates(candidates, NULL));
    if (!memory) return 0;
    lay_out_candidates(candidates, memory);
    if (work->lists)
        mark_permitted(work->lists, row, certificate->classes, candidates->permitted);
    else
        candidates->permitted = NULL;
    return 1;
}

INLINE void close_candidates(struct candidates *candidates) { give_memory(candidates->ids); }

/* Keeps the permitted classes of `positions` [count]; returns how many. */
INLINE int64_t keep_permitted(const struct candidates *candidates, int32_t *positions, int64_t count) {
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        if (is_permitted(candidates, positions[i])) positions[kept++] = positions[i];
    return kept;
}

/* Writes the positions of classes that may reach `threshold` by 4 bits, of the permitted ones alone where `listed`;
 * returns how many, more than there is room for where there are. */
static int64_t find_reaching(const struct candidates *candidates, float threshold, int listed, int64_t room) {
    const struct certificate *certificate = get_certificate(candidates);
    const struct query *query = candidates->query;
    int64_t count = 0;
    for (int64_t first = 0; first < LANES * certificate->blocks && count <= room; first += LANES) {
        int32_t *positions = candidates->positions + (count < room ? count : room);
        float upper[LANES];
        for (int64_t i = first; i < first + LANES; i++)
            upper[i - first] = query->estimates[i] + certificate->four_bit_scale[i] * query->turned.reach;
        int64_t found = select_block(upper, threshold, (int32_t)first, positions);
        count += listed && candidates->permitted ? keep_permitted(candidates, positions, found) : found;
    }
    return count;
}

/* Adds all classes that may reach `threshold`, of the permitted ones alone where `listed`; returns 0 where they are too
 * many. */
static int add_candidates(struct candidates *candidates, float threshold, int listed) {
    int64_t start = candidates->count, room = candidates->room - start;
    int64_t found = find_reaching(candidates, threshold, listed, room);
    if (found > room) return 0;
    for (int64_t i = 0; i < found; i++) candidates->ids[start + i] = candidates->positions[i];
    refine_estimates(get_certificate(candidates), &candidates->query->turned, candidates->ids + start, found,
                     candidates->spare_row, candidates->estimates + start, candidates->reach + start);
    for (int64_t i = start; i < start + found; i++)
        candidates->query->estimates[candidates->ids[i]] = -INFINITY, candidates->exact[i] = 0;
    candidates->count += found;
    return 1;
}

/* By how much a class's float32 logit may be off. */
INLINE float measure_slack(const struct candidates *candidates, int64_t class_id) {
    const struct certificate *certificate = get_certificate(candidates);
    return certificate->rounding[class_id] * (float)candidates->size + (float)certificate->floor;
}

/* Exact logits of the candidates whose upper bounds reach `threshold`, of the permitted ones alone where `listed`;
 * returns 0 where they are too many. */
static int score_reaching(struct candidates *candidates, float threshold, int listed) {
    int64_t chosen = 0;
    for (int64_t i = 0; i < candidates->count; i++) {
        int reaches = candidates->estimates[i] + candidates->reach[i] >= threshold;
        if (reaches && (!listed || is_permitted(candidates, candidates->ids[i])))
            candidates->chosen_ids[chosen] = candidates->ids[i], candidates->positions[chosen++] = (int32_t)i;
    }
    if (candidates->exact_count + chosen > candidates->work->limits->rescored) return 0;
    score_row_exactly(get_certificate(candidates)->exact, candidates->query->context, candidates->chosen_ids,
                      candidates->chosen_logits, chosen);
    for (int64_t j = 0; j < chosen; j++) {
        int64_t i = candidates->positions[j];
        candidates->logits[i] = candidates->chosen_logits[j], candidates->exact[i] = 1;
        candidates->slack[i] = measure_slack(candidates, candidates->ids[i]);
        candidates->estimates[i] = -INFINITY;
    }
    candidates->exact_count += chosen;
    return 1;
}

/* What at least `count` classes may reach by 4 bits, or all where there are so few. */
static float find_least(const struct candidates *candidates, int64_t count) {
    int64_t peaks = count_peaks(get_certificate(candidates));
    float threshold = find_threshold(candidates->query->peaks, NULL, peaks, count, 0);
    return count_reaching(candidates->query->peaks, NULL, peaks, threshold) < count ? -FLT_MAX : threshold;
}

#endif
