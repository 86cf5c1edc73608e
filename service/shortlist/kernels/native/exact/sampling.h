/* Draws from the softmax of a layer, without its logits: the winner of logit / T + noise, found by bounds.
 *
 * A class wins against `bar` only where (upper bound of its logit) / T + its noise reaches that. Its noise g reaches t
 * where its hash, as a share of all, is at most 1 - exp(-exp(-t)), which is at most exp(-t): so hashes are compared
 * with a guess of exp(upper / T - bar), and logarithms are taken for the few classes that pass. These are looked at by
 * int8, and those still left exactly. The bar is first guessed: a little under the log-sum of the estimates, where the
 * largest of all scores lies mostly. Where no class reaches it, it is lowered.
 */
#ifndef SHORTLIST_SAMPLING_H
#define SHORTLIST_SAMPLING_H

#include "exact/proofs.h"
#include "primitives/noise.h"

#define FIRST_STEP 1.0           /* nats from the log-sum to the first bar: one draw in 15 is under it */
#define MAX_TEMPERED_LOGIT 1e5   /* beyond, float32 does not tell what guesses of exponentials must know */

enum { MAX_BARS = 24 }; /* each step down is twice the one before */

/* What is drawn of contexts [count]: seeds, positions, and temperatures over 0, each [count]; so many draws of each.
 * largest_rounding: of the certificate's. */
struct sampling {
    const int64_t *seeds, *positions;
    const double *temperatures;
    int64_t draws;
    float largest_rounding;
};

/* One draw. ids, noise: [count] of the classes that pass, room for all candidates. slack: by how much a logit of
 * float32 may be off at most, of any class. */
struct draw {
    struct candidates *candidates;
    struct noise_key key;
    double inverse, slack, *noise;
    int64_t count;
};

/* The class drawn: its score is logit / T + noise. */
struct winner {
    double score;
    int64_t id;
    float logit;
};

/* Log of about the sum of exp(estimate / T). */
static double guess_log_sum(const struct candidates *candidates, double inverse) {
    const struct certificate *certificate = get_certificate(candidates);
    const float *estimates = candidates->query->estimates;
    int64_t n = LANES * certificate->blocks;
    floats sums[PARTS] = {0};
    float low, high;
    find_range(candidates->query->peaks, count_peaks(certificate), &low, &high);
    for (int64_t i = 0; i < n; i += LANES)
        for (int part = 0; part < PARTS; part++)
            sums[part] += guess_exp((load_floats(estimates + i + WIDTH * part) - high) * (float)inverse);
    return high * inverse + log(add_lanes(sums));
}

/* How much a block's hashes are under what they may be at most to reach the bar, [LANES]: 0 or more where they do. */
INLINE void compare_hashes(const struct draw *draw, float bar, int64_t first, float *margins) {
    const struct certificate *certificate = get_certificate(draw->candidates);
    const struct query *query = draw->candidates->query;
    float inverse = (float)draw->inverse, slack = (float)draw->slack;
    for (int part = 0; part < PARTS; part++) {
        int64_t start = first + WIDTH * part;
        floats upper = load_floats(query->estimates + start) + slack;
        upper += load_floats(certificate->four_bit_scale + start) * query->turned.reach;
        floats excess = upper * inverse - bar, none = repeat_float(0);
        floats most = guess_exp(choose_floats(excess > none, none, excess)) * (float)GUESS_FACTOR;
        words hashes = hash_classes(draw->key, (words)count_lanes((int32_t)start));
        store_floats(margins + WIDTH * part, most - convert_hashes(hashes));
    }
}

/* Writes the permitted classes whose noise may take them over the bar to the candidates' ids; returns 0 where they are
 * too many. */
static int find_passing(struct draw *draw, double bar) {
    struct candidates *candidates = draw->candidates;
    const struct certificate *certificate = get_certificate(candidates);
    int32_t positions[2 * LANES];
    float margins[LANES];
    draw->count = 0;
    for (int64_t first = 0; first < LANES * certificate->blocks; first += LANES) {
        compare_hashes(draw, (float)bar, first, margins);
        int64_t count = select_block(margins, 0.0f, (int32_t)first, positions);
        for (int64_t i = 0; i < count; i++) {
            if (positions[i] >= certificate->classes || !is_permitted(candidates, positions[i])) continue;
            if (draw->count == candidates->room) return 0;
            candidates->ids[draw->count++] = positions[i];
        }
    }
    return 1;
}

/* Keeps the classes that, by int8, may be the winner: writes how many there are, and moves ids and noise together. */
static void keep_likely(struct draw *draw) {
    struct candidates *candidates = draw->candidates;
    double best = -INFINITY;
    int64_t kept = 0;
    refine_estimates(get_certificate(candidates), &candidates->query->turned, candidates->ids, draw->count,
                     candidates->spare_row, candidates->estimates, candidates->reach);
    for (int64_t i = 0; i < draw->count; i++) {
        draw->noise[i] = make_noise(draw->key, candidates->ids[i]);
        double lower = candidates->estimates[i] - candidates->reach[i] - draw->slack;
        best = fmax(best, lower * draw->inverse + draw->noise[i]);
    }
    for (int64_t i = 0; i < draw->count; i++) {
        double upper = candidates->estimates[i] + candidates->reach[i] + draw->slack;
        if (!(upper * draw->inverse + draw->noise[i] >= best)) continue;
        candidates->ids[kept] = candidates->ids[i], draw->noise[kept++] = draw->noise[i];
    }
    draw->count = kept;
}

/* The best of the classes that passed, by exact logits; equal scores by lower id. */
static struct winner take_winner(struct draw *draw) {
    struct candidates *candidates = draw->candidates;
    struct winner winner = {-INFINITY, -1, -INFINITY};
    score_row_exactly(get_certificate(candidates)->exact, candidates->query->context, candidates->ids,
                      candidates->chosen_logits, draw->count);
    candidates->exact_count += draw->count;
    for (int64_t i = 0; i < draw->count; i++) {
        double score = candidates->chosen_logits[i] * draw->inverse + draw->noise[i];
        if (score > winner.score) winner = (struct winner){score, candidates->ids[i], candidates->chosen_logits[i]};
    }
    return winner;
}

/* One draw, whose score may be about `log_sum`; returns 0 where the bounds do not decide it. */
static int draw_class(struct draw *draw, double log_sum, struct winner *winner) {
    double step = FIRST_STEP, bar = log_sum - step;
    for (int i = 0; i < MAX_BARS; i++) {
        if (!find_passing(draw, bar)) return 0;
        keep_likely(draw);
        *winner = take_winner(draw);
        if (winner->score >= bar) return 1;
        step *= 2;
        bar = winner->id < 0 ? bar - step : winner->score;
    }
    return 0;
}

/* All draws of one context; returns 0 where the bounds do not decide one of them. */
static int draw_classes(struct draw *draw, const struct sampling *sampling, int64_t row,
                        const struct proof_work *work) {
    struct candidates *candidates = draw->candidates;
    const struct certificate *certificate = get_certificate(candidates);
    draw->inverse = 1 / sampling->temperatures[row];
    draw->slack = (double)sampling->largest_rounding * candidates->size + certificate->floor;
    double log_sum = guess_log_sum(candidates, draw->inverse);
    if (!(fabs(log_sum) < MAX_TEMPERED_LOGIT && draw->slack < INFINITY)) return 0;
    for (int64_t i = 0; i < sampling->draws; i++) {
        struct winner winner;
        draw->key = make_key(sampling->seeds[row], sampling->positions[row], i);
        if (!draw_class(draw, log_sum, &winner)) return 0;
        work->ids[row * sampling->draws + i] = winner.id, work->logits[row * sampling->draws + i] = winner.logit;
    }
    return 1;
}

/* What the parts of a call share. */
struct sampling_work {
    struct proof_work proofs;
    struct sampling sampling;
};

/* A part: one context, its draws and its normaliser, which is under none of their logits. One that is not decided gets
 * an infinite error. */
static int sample_part(void *shared, int64_t row) {
    const struct sampling_work *work = shared;
    struct candidates candidates;
    struct normalizer normalizer = {0, INFINITY};
    if (!open_candidates(&work->proofs, row, &candidates)) return 0;
    struct draw draw = {.candidates = &candidates, .noise = malloc(candidates.room * sizeof *draw.noise)};
    int done = draw.noise != NULL, decided = done && draw_classes(&draw, &work->sampling, row, &work->proofs);
    work->proofs.scored[row] = (int32_t)(candidates.exact_count < INT32_MAX ? candidates.exact_count : INT32_MAX);
    candidates.exact_count = 0;
    if (decided && find_candidates(&candidates) && score_anchors(&candidates)) normalizer = normalize(&candidates);
    for (int64_t i = 0; decided && i < work->sampling.draws; i++)
        normalizer.value = fmax(normalizer.value, work->proofs.logits[row * work->sampling.draws + i]);
    work->proofs.normalizers[row] = normalizer.value, work->proofs.errors[row] = normalizer.error;
    free(draw.noise);
    close_candidates(&candidates);
    return done;
}

/* Draws for contexts [count, dim]. */
static int64_t sample_rows(const struct certificate *certificate, const struct proof_limits *limits,
                           const struct lists *lists, const int64_t *seeds, const int64_t *positions,
                           const double *temperatures, int64_t draws, float largest_rounding, const float *contexts,
                           int64_t count, int64_t *ids, float *logits, double *normalizers, double *errors,
                           int32_t *scored, int64_t threads) {
    struct sampling_work work = {{open_queries(certificate, contexts, count), limits, lists, ids, logits, normalizers,
                                  errors, scored}, {seeds, positions, temperatures, draws, largest_rounding}};
    if (!work.proofs.queries.items) return 0;
    int64_t done = estimate_queries(&work.proofs.queries, threads) &&
                   run_parts(&(struct shared_work){sample_part, &work, count}, threads);
    free(work.proofs.queries.items);
    return done;
}

#endif
