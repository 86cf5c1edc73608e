/* Exact answers that bounds prove: the k best classes, and the normaliser with a bound on its error.
 *
 * All steps are those of the docstrings of plans/certified.py and of the exporter's graphs/four_bits.py, which say why
 * the bounds hold.
 */
#ifndef SHORTLIST_PROOFS_H
#define SHORTLIST_PROOFS_H

#include "exact/finalists.h"

#define SPARE_FACTOR (1 + 1e-4)      /* for roundings of bounds themselves */
#define LOST_SQUARES 1e-14           /* more than the root of all squares of float32 that underflow together */
#define UNIT_ROUNDOFF 5.9604644775390625e-8
#define BITS_PER_NAT 12102203.0f     /* 2^23 / log 2 */
#define BITS_OF_ONE 1064872507.0f    /* of 1 as a float, less what makes the guess right in the mean */
#define GUESS_ERROR 0.045            /* of a guess of an exponential, and of sums of many in float32 */
#define GUESS_FACTOR (1 + 2 * GUESS_ERROR) /* from a sum of guesses to the most that it stands for, spare and all */
#define COVER_NATS 1e-5              /* what sums of exponentials lose in float32 */

/* The log-normaliser of a context, and by how many nats it may be off. */
struct normalizer {
    double value, error;
};

/* exp(scores) in each lane, of scores of at most 0, off by a share of at most GUESS_ERROR, since the bits of a float
 * are nearly its logarithm; 0 for -inf, and for no number. */
INLINE floats guess_exp(floats scores) {
    floats bits = scores * BITS_PER_NAT + BITS_OF_ONE;
    return (floats)__builtin_convertvector(max_floats(bits, repeat_float(0)), ints);
}

/* About the sum of exp(score - top) of scores [n], n a multiple of LANES. */
static double guess_mass(const float *scores, int64_t n, float top) {
    floats sums[PARTS] = {0};
    for (int64_t i = 0; i < n; i += LANES)
        for (int part = 0; part < PARTS; part++) sums[part] += guess_exp(load_floats(scores + i + WIDTH * part) - top);
    return add_lanes(sums);
}

/* Guesses of sums over the classes that are no candidates, of p = exp(estimate - reference): of p, p s and (p s)^2, s
 * the scale. */
static void sum_rest(const struct candidates *candidates, float reference, double sums[3]) {
    const struct certificate *certificate = get_certificate(candidates);
    const float *estimates = candidates->query->estimates;
    int64_t n = LANES * certificate->blocks;
    sums[0] = sums[1] = sums[2] = 0;
    for (int64_t first = 0; first < n; first += SUM_SCORES) {
        floats some[3][PARTS] = {0};
        for (int64_t i = first; i < (first + SUM_SCORES < n ? first + SUM_SCORES : n); i += LANES)
            for (int part = 0; part < PARTS; part++) {
                floats p = guess_exp(load_floats(estimates + i + WIDTH * part) - reference);
                floats scaled = p * load_floats(certificate->four_bit_scale + i + WIDTH * part);
                some[0][part] += p, some[1][part] += scaled, some[2][part] += scaled * scaled;
            }
        for (int i = 0; i < 3; i++) sums[i] += add_lanes(some[i]);
    }
}

/* How many classes can all be off by as much as any may be, in sum of squares. */
INLINE double count_worst(const struct candidates *candidates) {
    const struct turned_context *turned = &candidates->query->turned;
    double scale = get_certificate(candidates)->largest_scale, square = turned->deviation * turned->deviation;
    double by_reach = square / ((double)turned->reach * turned->reach), by_scale = square * scale * scale / 2;
    return by_reach < by_scale ? by_reach : by_scale; /* reach is over 0 */
}

/* By how much the rest's sum may be over the one by estimates, and under it, by sums of `sum_rest`. */
static void bound_rest(const struct candidates *candidates, float reference, const double sums[3], double *over,
                       double *under) {
    const struct turned_context *turned = &candidates->query->turned;
    double by_squares = turned->deviation * (sqrt(sums[2]) + LOST_SQUARES), by_reach = turned->reach * sums[1];
    *under = GUESS_FACTOR * (by_squares < by_reach ? by_squares : by_reach) + GUESS_ERROR * sums[0];
    *over = *under + SPARE_FACTOR * exp((double)candidates->cut - reference) * count_worst(candidates);
}

/* The first candidates: all that weigh in the normaliser, and no fewer than the anchors; 0 where they are too many, or
 * the bounds say nothing. */
static int find_candidates(struct candidates *candidates) {
    const struct certificate *certificate = get_certificate(candidates);
    const struct query *query = candidates->query;
    const struct proof_limits *limits = candidates->work->limits;
    float low, top, least = find_least(candidates, limits->anchors);
    find_range(query->peaks, count_peaks(certificate), &low, &top);
    if (!(top < INFINITY && top > -INFINITY && query->turned.reach > 0)) return 0;
    double mass = guess_mass(query->estimates, LANES * certificate->blocks, top);
    float cut = (float)(top + log(limits->share * mass / count_worst(candidates)));
    candidates->cut = cut < least ? cut : least;
    return add_candidates(candidates, candidates->cut, 0);
}

/* Exact logits of the candidates of the largest upper bounds: the same whatever is asked of a context. */
static int score_anchors(struct candidates *candidates) {
    int64_t anchors = candidates->work->limits->anchors;
    for (int64_t i = 0; i < candidates->count; i++)
        candidates->spare[i] = candidates->estimates[i] + candidates->reach[i];
    return score_reaching(candidates, find_nth(candidates->spare, candidates->count, anchors), 0);
}

/* The sum of exp(Z - reference) over the candidates that are exact. */
static double sum_exact(const struct candidates *candidates, float reference) {
    int64_t count = 0;
    for (int64_t i = 0; i < candidates->count; i++)
        if (candidates->exact[i]) candidates->spare[count++] = candidates->logits[i];
    return sum_exp(candidates->spare, count, reference);
}

/* The sums of exp(x - reference) over the other candidates: of their lower bounds, estimates and upper bounds. */
static void sum_estimates(const struct candidates *candidates, float reference, double sums[3]) {
    int64_t whole = (candidates->count + LANES - 1) / LANES * LANES;
    floats totals[3][PARTS] = {0};
    for (int64_t i = candidates->count; i < whole; i++) candidates->estimates[i] = -INFINITY, candidates->reach[i] = 0;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int part = 0; part < PARTS; part++) {
            floats estimate = load_floats(candidates->estimates + i + WIDTH * part);
            floats reach = load_floats(candidates->reach + i + WIDTH * part);
            totals[0][part] += compute_exp(estimate - reach - reference);
            totals[1][part] += compute_exp(estimate - reference);
            totals[2][part] += compute_exp(estimate + reach - reference);
        }
    for (int i = 0; i < 3; i++) sums[i] = add_lanes(totals[i]);
}

/* The largest upper bound of a candidate or of the rest, and the largest slack of an exact one. */
static float find_reference(const struct candidates *candidates, float *slack) {
    float reference = candidates->cut;
    *slack = 0;
    for (int64_t i = 0; i < candidates->count; i++) {
        int exact = candidates->exact[i];
        float upper = exact ? candidates->logits[i] : candidates->estimates[i] + candidates->reach[i];
        reference = upper > reference ? upper : reference;
        if (exact) *slack = candidates->slack[i] > *slack ? candidates->slack[i] : *slack;
    }
    return reference;
}

/* By the anchors' exact logits, other candidates' estimates by int8, and the estimates of the rest by 4 bits. Its error
 * is infinite, or no number, where the bounds say nothing. Nothing but the anchors may be exact yet. */
static struct normalizer normalize(const struct candidates *candidates) {
    const struct certificate *certificate = get_certificate(candidates);
    double rest[3], others[3], over, under;
    float slack, reference = find_reference(candidates, &slack);
    sum_rest(candidates, reference, rest);
    bound_rest(candidates, reference, rest, &over, &under);
    sum_estimates(candidates, reference, others);
    double inside = sum_exact(candidates, reference), total = inside + others[1] + rest[0];
    double most = inside + others[2] + rest[0] + over;
    double least = inside + others[0] + (rest[0] > under ? rest[0] - under : 0);
    struct normalizer result = {reference + log(total), fmax(log(most / total), log(total / least))};
    result.error += certificate->floor + certificate->summed + slack + 2 * UNIT_ROUNDOFF * fabs(result.value);
    if (!(total > 0 && most < INFINITY)) result.error = INFINITY;
    return result;
}

/* Raises the log-normaliser to what the best logits [k] add up to, by no more than rounding; returns 0 where that is
 * more: then the estimates of others were too low, and dense has to answer. */
static int cover_best(const float *logits, int64_t k, double *normalizer) {
    if (!(logits[0] > -INFINITY)) return 1;
    double excess = logits[0] + log(sum_exp(logits, k, logits[0])) - *normalizer;
    if (excess > 0) *normalizer += excess;
    return excess <= COVER_NATS;
}

/* Decides the k best classes of one context; returns 0 where bounds leave too many, or all: then dense knows more. */
static int decide_best(struct candidates *candidates, int64_t row, struct finalists *finalists) {
    const struct proof_work *work = candidates->work;
    int64_t most = work->limits->rescored < candidates->room ? work->limits->rescored : candidates->room;
    int has_list = work->lists && find_allow_list(work->lists, row);
    int64_t allowed = has_list ? list_allowed(candidates, row, most) : INT64_MAX;
    int decided = allowed <= most ? take_allowed(candidates, allowed, finalists)
                                  : take_contenders(candidates, finalists);
    decided = decided && finalists->scored < get_certificate(candidates)->classes;
    work->scored[row] = (int32_t)finalists->scored;
    if (decided)
        rank_finalists(candidates, finalists, work->ids + row * work->limits->k, work->logits + row * work->limits->k);
    return decided;
}

/* Writes the k best classes of one context; an infinite error where they are not decided. */
static int write_proved_best(struct candidates *candidates, int64_t row, struct normalizer *normalizer) {
    const struct proof_work *work = candidates->work;
    int64_t k = work->limits->k;
    struct finalists finalists = {malloc(work->limits->rescored * sizeof(struct finalist)), 0, 0};
    if (!finalists.items) return 0;
    if (decide_best(candidates, row, &finalists) && cover_best(work->logits + row * k, k, &normalizer->value))
        normalizer->error += 2 * find_slack(&finalists);
    else
        normalizer->error = INFINITY;
    free(finalists.items);
    return 1;
}

/* A part: one context. One that the bounds do not decide gets an infinite error, or none that is a number. */
static int prove_part(void *shared, int64_t row) {
    const struct proof_work *work = shared;
    struct candidates candidates;
    struct normalizer normalizer = {0, INFINITY};
    int done = open_candidates(work, row, &candidates);
    if (!done) return 0;
    if (find_candidates(&candidates) && score_anchors(&candidates)) normalizer = normalize(&candidates);
    if (work->limits->k && normalizer.error < INFINITY) done = write_proved_best(&candidates, row, &normalizer);
    work->normalizers[row] = normalizer.value, work->errors[row] = normalizer.error;
    close_candidates(&candidates);
    return done;
}

/* Proves the k best classes, or with k = 0 the normalisers alone, of contexts [count, dim]. */
static int64_t prove_rows(const struct certificate *certificate, const struct proof_limits *limits,
                          const struct lists *lists, const float *contexts, int64_t count, int64_t *ids, float *logits,
                          double *normalizers, double *errors, int32_t *scored, int64_t threads) {
    struct proof_work work = {open_queries(certificate, contexts, count), limits, lists, ids, logits, normalizers,
                              errors, scored};
    if (!work.queries.items) return 0;
    int64_t done = estimate_queries(&work.queries, threads) &&
                   run_parts(&(struct shared_work){prove_part, &work, count}, threads);
    free(work.queries.items);
    return done;
}

/* What the proofs rest on, of all classes: writes estimates [count, 2, classes], by 4 bits and by int8, and for each
 * context by how many times a class's scale each may be off, and the root of the sum of squares [count, 3]. */
static int64_t bound_rows(const struct certificate *certificate, const float *contexts, int64_t count,
                          float *estimates, double *bounds) {
    struct queries queries = open_queries(certificate, contexts, count);
    int64_t classes = certificate->classes, done = queries.items && estimate_queries(&queries, 1);
    uint8_t *spare = done ? malloc(certificate->row_lines * LINE_BYTES) : NULL;
    for (int64_t row = 0; spare && row < count; row++) {
        const struct turned_context *turned = &queries.items[row].turned;
        float *coarse = estimates + 2 * row * classes, *fine = coarse + classes;
        memcpy(coarse, queries.items[row].estimates, classes * sizeof *coarse);
        for (int64_t i = 0; i < classes; i++) fine[i] = estimate_finely(certificate, turned, i, spare);
        bounds[3 * row] = turned->reach, bounds[3 * row + 1] = turned->fine_reach;
        bounds[3 * row + 2] = turned->deviation;
    }
    done = spare != NULL;
    free(spare);
    free(queries.items);
    return done;
}

#endif
