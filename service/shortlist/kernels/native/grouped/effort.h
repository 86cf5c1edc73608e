/* How much a row needs: the log-odds that a look has missed some of the k best classes, by what it found.
 *
 * Learned stopping (Li et al. 2020, "Improving approximate nearest neighbor search through learned adaptive early
 * termination"): a logistic regression, which the exporter fits to contexts that it held out. Differences of logits are
 * in units of the spread of the groups' scores, so that they mean the same for contexts of any size.
 */
#ifndef SHORTLIST_GROUPED_EFFORT_H
#define SHORTLIST_GROUPED_EFFORT_H

#include "grouped/scratch.h"
#include "primitives/select.h"
#include "primitives/sums.h"

enum {
    RANKS_BEYOND = 9,   /* past the k-th logit, which later ones are compared with */
    MAX_EFFORT_K = 256, /* beyond it, only the last look is taken */
};
#define MAX_FEATURE 12.0f
#define MIN_SPREAD 1e-20f
#define MIN_ERROR 1e-3f /* of previews, in spreads */
#define MAX_ERROR 1e15f /* the same: sums of its squares are finite where all groups score alike */

/* Of groups, in spreads under their mean: a look that opens the few under it, too, is no surer (docs/log/lists.md). */
#define LEAST_BAR 1.5f

/* What a look tells of its row. common: what all but exact scores lack of every class's product. mean, spread: of the
 * scores of all groups. peak: the largest of them. size: root mean square of the projected context. beyond: the same of
 * the columns that groups are not compared by. unit: what previews are in units of. bar: the preview, in logits before
 * scale and soft-cap, that candidates reach. group_bar: the score that opened groups reach. blocks: of these groups, so
 * many are opened, and their classes, all of them permitted, are previewed with this raise_share: a look that goes
 * further begins with them. */
struct look {
    float common, mean, spread, peak, size, beyond, unit, bar, group_bar, raise_share;
    int64_t blocks;
};

/* Sums of differences from the first score and of their squares, LANES of each side by side; the last few by one. */
static void describe_groups(const struct grouped *head, const struct scratch *scratch, struct look *look) {
    const float *scores = scratch->groups;
    int64_t count = head->groups, whole = count - count % LANES;
    floats sums[PARTS] = {0}, squares[PARTS] = {0};
    float least, first = scores[0];
    for (int64_t i = 0; i < whole; i += LANES)
        for (int part = 0; part < PARTS; part++) {
            floats difference = load_floats(scores + i + WIDTH * part) - repeat_float(first);
            sums[part] += difference, squares[part] += difference * difference;
        }
    double total = add_lanes(sums), square = add_lanes(squares);
    for (int64_t i = whole; i < count; i++) {
        float difference = scores[i] - first;
        total += difference, square += difference * difference;
    }
    double mean = total / count, variance = square / count - mean * mean;
    look->mean = (float)(first + mean), look->spread = variance > 0 ? (float)sqrt(variance) + MIN_SPREAD : MIN_SPREAD;
    find_range(scores, count, &least, &look->peak);
}

/* The `wanted` largest of the values [count], descending, to `best`; returns how many there are. A value's place is how
 * many reach it, which vectors count faster than a sort moves them; of equal ones that is the last place.
 * spare: [count], overwritten. */
static int64_t sort_best(const float *values, int64_t count, int64_t wanted, float *best, float *spare) {
    int64_t size = count < wanted ? count : wanted;
    float least = count > wanted ? find_threshold(values, NULL, count, wanted, 0) : -INFINITY;
    int64_t kept = keep_reaching(values, count, least, values, spare);
    for (int64_t i = 0; i < size; i++) best[i] = -INFINITY;
    for (int64_t i = 0; i < kept; i++) {
        int64_t place = count_reaching(spare, NULL, kept, spare[i]);
        best[place < size ? place - 1 : size - 1] = spare[i];
    }
    for (int64_t i = size - 2; i >= 0; i--) best[i] = best[i] > best[i + 1] ? best[i] : best[i + 1];
    return size;
}

/* The root mean square of `projected` from column `first` on; 0 where there is none. */
static float measure_columns(const float *projected, int64_t first, int64_t columns) {
    if (first >= columns) return 0;
    return sqrtf(dot(projected + first, projected + first, columns - first) / (float)(columns - first));
}

INLINE float limit_feature(float value) {
    return value > MAX_FEATURE ? MAX_FEATURE : value > -MAX_FEATURE ? value : -MAX_FEATURE;
}

/* What the candidates whose values are `least` and more tell by how they were found. Their groups: how far the worst of
 * these is over the bar. Their previews: by how much these are too low in the mean, and the logarithm of how much that
 * differs among them. Rows of which previews say little miss more. */
static void describe_previews(const struct grouped *head, const struct look *look, const struct scratch *scratch,
                              int64_t count, float least, float *features) {
    float worst_group = INFINITY, sum = 0, square = 0, found = 0, least_bar = look->mean - LEAST_BAR * look->spread;
    float bar = look->group_bar > least_bar ? look->group_bar : least_bar;
    for (int64_t i = 0; i < count; i++) {
        if (scratch->values[i] < least) continue;
        int32_t lane = scratch->lanes[i];
        float group = scratch->block_groups[scratch->kept[lane / LANES]];
        float product = scratch->values[i] / head->logit_scale - look->common;
        float error = (product - scratch->scores[lane] * look->unit) / look->spread;
        error = error > MAX_ERROR ? MAX_ERROR : error > -MAX_ERROR ? error : -MAX_ERROR;
        worst_group = group < worst_group ? group : worst_group;
        sum += error, square += error * error, found++;
    }
    float mean = sum / found, variance = square / found - mean * mean;
    features[0] = limit_feature((worst_group - bar) / look->spread);
    features[1] = limit_feature(mean);
    features[2] = logf(MIN_ERROR + sqrtf(variance > 0 ? variance : 0));
}

/* Writes the features of a look at `count` permitted candidates, k at least. forbidden: how many classes the lists
 * forbade, of which those over the k-th count as if they were asked for. best: [k + RANKS_BEYOND], overwritten, as is
 * the scratch's `spare`. */
static void describe_look(const struct grouped *head, const struct look *look, const struct scratch *scratch,
                          int64_t count, int64_t forbidden, int64_t k, float *best, float *features) {
    int64_t size = sort_best(scratch->values, count, k + RANKS_BEYOND, best, scratch->spare), depth = k;
    float unit = look->spread * head->logit_scale, level = best[k - 1];
    float product = level / head->logit_scale - look->common;
    for (int64_t i = 0; i < forbidden; i++) depth += scratch->forbidden_values[i] > level;
    features[0] = logf(look->size + MIN_SPREAD);
    features[1] = logf((float)depth);
    features[2] = limit_feature((best[0] - level) / unit);
    features[3] = limit_feature((level - best[k < size ? k : size - 1]) / unit);
    features[4] = limit_feature((level - best[k + 4 < size ? k + 4 : size - 1]) / unit);
    features[5] = limit_feature((level - best[size - 1]) / unit);
    features[6] = limit_feature((product - look->mean) / look->spread);
    features[7] = limit_feature((look->peak - look->mean) / look->spread);
    features[8] = limit_feature((product - look->bar) / look->spread);
    features[9] = logf(look->beyond + MIN_SPREAD);
    features[10] = logf(look->spread);
    describe_previews(head, look, scratch, count, best[size - 1], features + 11);
}

INLINE float add_features(const float *weights, const float *features) {
    float odds = weights[EFFORT_FEATURES];
    for (int i = 0; i < EFFORT_FEATURES; i++) odds += weights[i] * features[i];
    return odds;
}

#endif
