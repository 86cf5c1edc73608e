/* Previews of frequent classes by each component of plan `mixture`, and exact logits of those that may be the best.
 *
 * A class of weights w has a preview q in whole numbers of its scale, and a component h is rounded to p in steps of its
 * own. h w - p q = h (w - q) + (h - p) q, so that by Cauchy and Schwarz a preview is off by |h| |w - q| + |h - p| |q|
 * at most; a mean over components by no more than the largest of them, since the gates are not rounded. Roundings of
 * float32, of the preview and of what all components give, are within what `error` and SUM_ROUNDINGS add.
 */
#ifndef SHORTLIST_MIXTURE_PREVIEWS_H
#define SHORTLIST_MIXTURE_PREVIEWS_H

#include "mixture/logits.h"
#include "primitives/select.h"

#define NORM_SPARE 1.001f        /* for roundings of norms */
#define LEFT_ROUNDING 1e-6f      /* times |h|: of what is left of a component after its steps */
#define SUM_ROUNDINGS 2.4e-7f    /* times a logit and its bias: of their sums, four roundings of float32 */
#define TINY_REACH 1e-30f        /* more than what is lost below the smallest float32 */
#define MOST_SUM_ERROR 0.25      /* nats that the bound of a sum of exponentials may be; its error is far less */
enum { CLASSES_PER_K = 32 };     /* with fewer frequent classes for each of k, previews spare no time */

/* Intermediate results of a row. logits, reaches, bounds: [blocks, LANES]. peaks: of bounds, one for STRIP_SCORES.
 * rows: [dim, LANES] of the classes scored. rest: what rounding leaves of a component. */
struct preview_mixing {
    struct mixing mixing;
    float *logits, *reaches, *bounds, *peaks, *rows, *rest, steps[MAX_COMPONENTS];
    int32_t *places, shifts[MAX_COMPONENTS];
    int8_t *digits;
    float size, left; /* the largest norms of components, and of what rounding leaves of them */
};

/* What rows are answered with: means [B, dim], logits [B, frequent], by how much each may be off and by how many nats
 * the log of the sum of their exponentials, or NULL for these two, and how many classes are exact. */
struct preview_results {
    float *means, *logits, *reaches;
    double *errors;
    int32_t *scored;
};

static int allocate_previewing(const struct mixture *mixture, const struct mixture_previews *previews,
                               struct preview_mixing *work) {
    int64_t classes = LANES * mixture->blocks, columns = previews->lines * LANE_BYTES, rows = LANES * mixture->dim;
    int64_t numbers = 4 * classes + rows + columns, places = classes + LANES, digits = columns * mixture->components;
    work->logits = NULL;
    if (!allocate_mixing(mixture, &work->mixing)) return 0;
    work->logits = malloc(numbers * sizeof(float) + places * sizeof(int32_t) + digits);
    if (!work->logits) return 0;
    work->reaches = work->logits + classes, work->bounds = work->reaches + classes;
    work->peaks = work->bounds + classes, work->rows = work->peaks + classes, work->rest = work->rows + rows;
    work->places = (int32_t *)(work->rest + columns), work->digits = (int8_t *)(work->places + places);
    memset(work->rows, 0, rows * sizeof(float));
    memset(work->digits, 0, digits);
    return 1;
}

static void free_previewing(struct preview_mixing *work) {
    free(work->logits);
    free(work->mixing.layers);
}

/* Rounds the components to coarse digits, and measures what that leaves. */
static void round_components(const struct mixture *mixture, const struct mixture_previews *previews,
                             struct preview_mixing *work) {
    int64_t dim = mixture->dim, columns = previews->lines * LANE_BYTES;
    work->size = work->left = 0;
    for (int64_t k = 0; k < mixture->components; k++) {
        const float *component = work->mixing.layers + dim * k;
        float step = work->steps[k] = find_peak(component, dim) / COARSE_LEVELS;
        memcpy(work->rest, component, dim * sizeof *component);
        work->shifts[k] = extract_digit(work->rest, dim, step, work->digits + columns * k);
        float size = sqrtf(dot(component, component, dim)) * NORM_SPARE;
        float left = sqrtf(dot(work->rest, work->rest, dim)) * NORM_SPARE + LEFT_ROUNDING * size;
        work->size = size > work->size ? size : work->size, work->left = left > work->left ? left : work->left;
    }
}

#ifndef HAS_FOUR_PRODUCTS
/* The sums [4, LANES] of a block with four vectors of digits, which begin `columns` bytes from one another. */
INLINE void multiply_block_by_four(const uint8_t *block, const int8_t *digits, int64_t columns, int64_t lines,
                                   int32_t *sums) {
    for (int i = 0; i < 4; i += 2)
        multiply_block_by_digits(block, digits + columns * i, digits + columns * (i + 1), lines, sums + LANES * i,
                                 sums + LANES * (i + 1));
}
#endif

/* The whole numbers of one block's products with all components, [components, LANES], some components together. */
static void preview_sums(const struct mixture *mixture, const struct mixture_previews *previews, int64_t block,
                         const struct preview_mixing *work, int32_t *sums) {
    int64_t lines = previews->lines, columns = lines * LANE_BYTES, k = 0;
    const uint8_t *rows = previews->rows + LINE_BYTES * lines * block;
    for (; k + 4 <= mixture->components; k += 4)
        multiply_block_by_four(rows, work->digits + columns * k, columns, lines, sums + LANES * k);
    for (; k + 2 <= mixture->components; k += 2) {
        const int8_t *digits = work->digits + columns * k;
        multiply_block_by_digits(rows, digits, digits + columns, lines, sums + LANES * k, sums + LANES * (k + 1));
    }
    if (k < mixture->components) multiply_block(rows, work->digits + columns * k, lines, sums + LANES * k);
}

/* The previews of one block's products with all components, [components, LANES]. */
static void preview_products(const struct mixture *mixture, const struct mixture_previews *previews, int64_t block,
                             const struct preview_mixing *work, float *products) {
    int32_t sums[LANES * MAX_COMPONENTS];
    preview_sums(mixture, previews, block, work, sums);
    for (int64_t k = 0; k < mixture->components; k++)
        for (int lane = 0; lane < LANES; lane += WIDTH) {
            floats whole = convert_ints(load_ints(sums + LANES * k + lane) - work->shifts[k]);
            floats step = load_floats(previews->scale + LANES * block + lane) * work->steps[k];
            store_floats(products + LANES * k + lane, whole * step);
        }
}

/* Writes the previews of one block's logits, by how much each may be off, and lower bounds. gates: of this block. */
INLINE void preview_block(const struct mixture *mixture, const struct mixture_previews *previews, int64_t block,
                          const float *gates, struct preview_mixing *work) {
    float *logits = work->logits + LANES * block, *products = work->mixing.products;
    preview_products(mixture, previews, block, work, products);
    mix_lanes(mixture, products, LANES, gates, logits);
    for (int64_t lane = 0, at = LANES * block; lane < LANES; lane += WIDTH) {
        floats bias = load_floats(mixture->class_bias + at + lane), logit = load_floats(logits + lane);
        floats reach = load_floats(previews->error + at + lane) * work->size +
                       load_floats(previews->size + at + lane) * work->left;
        reach += (take_sizes(logit) + take_sizes(bias)) * SUM_ROUNDINGS + TINY_REACH;
        store_floats(logits + lane, logit + bias);
        store_floats(work->reaches + at + lane, reach);
        store_floats(work->bounds + at + lane, logit + bias - reach);
    }
}

/* The same of all classes, and -inf where there is none. */
static void preview_frequent(const struct mixture *mixture, const struct mixture_previews *previews,
                             struct preview_mixing *work) {
    for (int64_t block = 0; block < mixture->blocks; block++) {
        int64_t at = block % BLOCKS_AT_ONCE, rest = mixture->blocks - block;
        if (!at) compute_gates(mixture, &work->mixing, block, rest < BLOCKS_AT_ONCE ? rest : BLOCKS_AT_ONCE);
        preview_block(mixture, previews, block, work->mixing.gates + LANES * mixture->gate_count * at, work);
    }
    for (int64_t i = mixture->frequent; i < LANES * mixture->blocks; i++)
        work->logits[i] = work->bounds[i] = -INFINITY, work->reaches[i] = 0;
}

/* Scores up to LANES classes by all components: bit by bit what `score_frequent` gives. */
static void score_places(const struct mixture *mixture, const struct mixture_previews *previews,
                         const int32_t *places, int64_t count, struct preview_mixing *work) {
    float gates[LANES * MAX_COMPONENTS] = {0}, means[LANES];
    int64_t dim = mixture->dim;
    for (int64_t lane = 0; lane < count; lane++) {
        int64_t block = places[lane] / LANES, at = places[lane] % LANES;
        const float *row = previews->weights + dim * previews->ids[places[lane]];
        for (int64_t i = 0; i < dim; i++) work->rows[LANES * i + lane] = row[i];
        compute_gates(mixture, &work->mixing, block, 1);
        for (int64_t i = 0; i < mixture->gate_count; i++)
            gates[LANES * i + lane] = work->mixing.gates[LANES * i + at];
    }
    multiply_float_blocks(work->rows, 1, dim, work->mixing.layers, dim, mixture->components, work->mixing.products);
    mix_lanes(mixture, work->mixing.products, LANES, gates, means);
    for (int64_t lane = 0; lane < count; lane++) {
        work->logits[places[lane]] = means[lane] + mixture->class_bias[places[lane]];
        work->reaches[places[lane]] = 0;
    }
}

/* A number that the k best of lower bounds reach at least: the k-th largest, or a little less. */
static float find_contender_bound(const struct mixture *mixture, int64_t k, struct preview_mixing *work) {
    int64_t classes = LANES * mixture->blocks, length = (classes + STRIP_SCORES - 1) / STRIP_SCORES;
    float *peaks = work->peaks;
    memcpy(peaks, work->bounds, length * sizeof *peaks);
    for (int64_t start = length; start < classes; start += length) {
        const float *some = work->bounds + start;
        int64_t count = classes - start < length ? classes - start : length;
        for (int64_t i = 0; i < count; i++) peaks[i] = some[i] > peaks[i] ? some[i] : peaks[i];
    }
    return find_threshold(peaks, NULL, length, k, k / 4);
}

/* Scores exactly what may be among the k best: upper bounds reach the k-th largest lower bound. Returns how many. */
static int64_t score_possible_best(const struct mixture *mixture, const struct mixture_previews *previews, int64_t k,
                                struct preview_mixing *work) {
    int64_t classes = LANES * mixture->blocks;
    float least = find_contender_bound(mixture, k, work);
    for (int64_t i = 0; i < classes; i += WIDTH)
        store_floats(work->bounds + i, load_floats(work->logits + i) + load_floats(work->reaches + i));
    int64_t count = select_reaching(work->bounds, classes, least, work->places);
    for (int64_t i = 0; i < count; i += LANES)
        score_places(mixture, previews, work->places + i, count - i < LANES ? count - i : LANES, work);
    return count;
}

/* By how many nats the log of the sum of all exponentials may be off, where each logit is off by its reach. */
static double bound_log_sum(const float *logits, const float *reaches, int64_t count) {
    float peak = -INFINITY, most = TINY_REACH;
    floats sums[2][PARTS] = {0};
    for (int64_t i = 0; i < count; i++)
        peak = logits[i] > peak ? logits[i] : peak, most = reaches[i] > most ? reaches[i] : most;
    for (int64_t i = 0; i < count; i += LANES)
        for (int part = 0; part < (int)PARTS; part++) {
            floats power = compute_exp(load_floats(logits + i + WIDTH * part) - peak);
            sums[0][part] += power, sums[1][part] += power * load_floats(reaches + i + WIDTH * part);
        }
    double share = add_lanes(sums[1]) / (double)add_lanes(sums[0]) * (1 + 1e-4) + 1e-6;
    double error = fmax(log1p(share * expm1(most) / most), share < 1 ? -log1p(-share) : INFINITY);
    return error == error ? error : INFINITY; /* no number where logits are none */
}

/* Whether previews spare anything in the search of the k best. */
INLINE int are_previews_worth_it(const struct mixture *mixture, const struct mixture_previews *previews, int64_t k) {
    return previews && CLASSES_PER_K * k <= mixture->frequent;
}

/* Previews of all logits, exact ones for all classes that may be among the k best, and how many these are: all where
 * the sum of exponentials might be off by much. */
static void mix_row_by_previews(const struct mixture *mixture, const struct mixture_previews *previews, int64_t k,
                                const float *context, struct preview_mixing *work, float *mean, int32_t *scored) {
    compute_layers(mixture, context, work->mixing.layers);
    compute_mean(mixture, &work->mixing, mean);
    round_components(mixture, previews, work);
    preview_frequent(mixture, previews, work);
    *scored = k ? (int32_t)score_possible_best(mixture, previews, k, work) : 0;
    if (k && !(bound_log_sum(work->logits, work->reaches, LANES * mixture->blocks) <= MOST_SUM_ERROR)) {
        score_frequent(mixture, &work->mixing, work->logits);
        memset(work->reaches, 0, LANES * mixture->blocks * sizeof *work->reaches);
        *scored = (int32_t)mixture->frequent;
    }
}

/* Of rows for whose k previews spare nothing: all logits are exact. */
static int64_t mix_rows_exactly(const struct mixture *mixture, const float *contexts,
                                const struct preview_results *results, int64_t first, int64_t last) {
    int64_t classes = mixture->frequent;
    for (int64_t row = first; row < last; row++) {
        results->scored[row] = (int32_t)classes;
        if (results->errors) results->errors[row] = 0;
        if (results->reaches) memset(results->reaches + row * classes, 0, classes * sizeof(float));
    }
    return mix_rows(mixture, contexts, results->means, results->logits, first, last);
}

static int64_t mix_rows_by_previews(const struct mixture *mixture, const struct mixture_previews *previews, int64_t k,
                                    const float *contexts, float *means, float *logits, int32_t *scored,
                                    float *reaches, double *errors, int64_t first, int64_t last) {
    struct preview_results results = {means, logits, reaches, errors, scored};
    struct preview_mixing work;
    int64_t classes = mixture->frequent, dim = mixture->dim;
    if (!are_previews_worth_it(mixture, previews, k))
        return mix_rows_exactly(mixture, contexts, &results, first, last);
    int64_t done = allocate_previewing(mixture, previews, &work);
    for (int64_t row = first; done && row < last; row++) {
        mix_row_by_previews(mixture, previews, k, contexts + row * dim, &work, means + row * dim, scored + row);
        memcpy(logits + row * classes, work.logits, classes * sizeof *logits);
        if (reaches) memcpy(reaches + row * classes, work.reaches, classes * sizeof *reaches);
        if (errors) errors[row] = bound_log_sum(work.logits, work.reaches, LANES * mixture->blocks);
    }
    free_previewing(&work);
    return done;
}

#endif
