/* The front of plan `mixture`: a row's components and gates, the logits of its frequent classes, and the vector that
 * its rare ones are scored by. Formulas in brackets are those of the exporter's module `mixtape`. */
#ifndef SHORTLIST_MIXTURE_H
#define SHORTLIST_MIXTURE_H

#include "kernels.h"
#include "primitives/activations.h"
#include "primitives/float_blocks.h"

#include <stdlib.h>

enum { BLOCKS_AT_ONCE = 16 }; /* of frequent classes, whose products stay in the nearest cache */

/* Intermediate results of a row. layers: [layer_blocks, LANES] and LANES to spare, first tanh of components and gates,
 * then the logits that all gates share. products, gates: of BLOCKS_AT_ONCE blocks, [., components or gates, LANES]. */
struct mixing {
    float *layers, *products, *gates;
};

static int allocate_mixing(const struct mixture *mixture, struct mixing *mixing) {
    int64_t layers = LANES * (mixture->layer_blocks + 1), block = BLOCKS_AT_ONCE * LANES;
    mixing->layers = malloc((layers + block * (mixture->components + mixture->gate_count)) * sizeof(float));
    mixing->products = mixing->layers + layers;
    mixing->gates = mixing->products + block * mixture->components;
    return mixing->layers != NULL;
}

/* Where the gates' vectors, and the shared logits, begin in the layers. */
INLINE int64_t find_gate_vectors(const struct mixture *mixture) { return mixture->components * mixture->dim; }

INLINE int64_t find_shared_logits(const struct mixture *mixture) {
    return find_gate_vectors(mixture) + mixture->gate_count * mixture->gate_width;
}

/* All layers over the context, the shared logits without tanh (3, 4). */
static void compute_layers(const struct mixture *mixture, const float *context, float *layers) {
    int64_t shared = find_shared_logits(mixture), count = LANES * mixture->layer_blocks;
    float last[LANES];
    multiply_float_blocks(mixture->layers, mixture->layer_blocks, mixture->dim, context, 0, 1, layers);
    for (int64_t i = 0; i < count; i += WIDTH)
        store_floats(layers + i, load_floats(layers + i) + load_floats(mixture->layer_bias + i));
    memset(layers + count, 0, LANES * sizeof *layers);
    memcpy(last, layers + shared / LANES * LANES, sizeof last);
    for (int64_t i = 0; i < shared; i += WIDTH) store_floats(layers + i, compute_tanh(load_floats(layers + i)));
    for (int64_t i = shared; i < (shared / LANES + 1) * LANES; i++) layers[i] = last[i % LANES];
}

/* The mean over components of values [components], by the tree's sigmoids of `gates`; both are overwritten (5, 6). */
INLINE floats mix_by_tree(floats *values, floats *gates, int64_t components) {
    for (int64_t i = 0; i < components - 1; i++) gates[i] = compute_sigmoid(gates[i]);
    for (int64_t pairs = components / 2; pairs; pairs /= 2)
        for (int64_t i = 0; i < pairs; i++)
            values[i] = values[2 * i + 1] + gates[pairs - 1 + i] * (values[2 * i] - values[2 * i + 1]);
    return values[0];
}

/* The same by a softmax over `gates` [components]. */
INLINE floats mix_by_softmax(const floats *values, const floats *gates, int64_t components) {
    floats peak = repeat_float(-INFINITY), total = {0}, mean = {0};
    for (int64_t i = 0; i < components; i++) peak = max_floats(gates[i], peak);
    for (int64_t i = 0; i < components; i++) {
        floats power = compute_exp(gates[i] - peak);
        total += power;
        mean += power * values[i];
    }
    return mean / total;
}

/* The means of LANES numbers: values [components], each `stride` from the last, by gates [gate_count, LANES]. */
INLINE void mix_lanes(const struct mixture *mixture, const float *values, int64_t stride, const float *gates,
                      float *means) {
    floats some_values[MAX_COMPONENTS], some_gates[MAX_COMPONENTS];
    for (int part = 0; part < (int)PARTS; part++) {
        for (int64_t i = 0; i < mixture->components; i++)
            some_values[i] = load_floats(values + stride * i + WIDTH * part);
        for (int64_t i = 0; i < mixture->gate_count; i++)
            some_gates[i] = load_floats(gates + LANES * i + WIDTH * part);
        floats mean = mixture->is_tree ? mix_by_tree(some_values, some_gates, mixture->components)
                                       : mix_by_softmax(some_values, some_gates, mixture->components);
        store_floats(means + WIDTH * part, mean);
    }
}

/* The vector [dim] that rare classes are scored by: the mean of the components by the gates that these share. */
static void compute_mean(const struct mixture *mixture, const struct mixing *mixing, float *mean) {
    const float *shared = mixing->layers + find_shared_logits(mixture);
    for (int64_t i = 0; i < mixture->gate_count; i++)
        for (int lane = 0; lane < LANES; lane++) mixing->gates[LANES * i + lane] = shared[i];
    for (int64_t i = 0; i < mixture->dim; i += LANES) {
        float means[LANES];
        int64_t left = mixture->dim - i;
        mix_lanes(mixture, mixing->layers + i, mixture->dim, mixing->gates, means);
        memcpy(mean + i, means, (left < LANES ? left : LANES) * sizeof *means);
    }
}

/* The logits of the gates of `count` blocks from block `first` on (4). */
static void compute_gates(const struct mixture *mixture, const struct mixing *mixing, int64_t first, int64_t count) {
    const float *shared = mixing->layers + find_shared_logits(mixture);
    int64_t gates = mixture->gate_count, width = mixture->gate_width;
    multiply_float_blocks(mixture->gates + LANES * width * first, count, width,
                          mixing->layers + find_gate_vectors(mixture), width, gates, mixing->gates);
    for (int64_t i = 0; i < count * gates; i++) {
        float *place = mixing->gates + LANES * i;
        const float *bias = mixture->gate_bias + LANES * (first * gates + i);
        for (int lane = 0; lane < LANES; lane += WIDTH)
            store_floats(place + lane, load_floats(place + lane) + load_floats(bias + lane) + shared[i % gates]);
    }
}

/* Logits [frequent] of the frequent classes by all components (2). */
static void score_frequent(const struct mixture *mixture, const struct mixing *mixing, float *logits) {
    for (int64_t block = 0; block < mixture->blocks; block++) {
        int64_t at = block % BLOCKS_AT_ONCE, left = mixture->frequent - LANES * block, rest = mixture->blocks - block;
        int64_t count = rest < BLOCKS_AT_ONCE ? rest : BLOCKS_AT_ONCE;
        float means[LANES];
        if (!at) {
            compute_gates(mixture, mixing, block, count);
            multiply_float_blocks(mixture->classes + LANES * mixture->dim * block, count, mixture->dim, mixing->layers,
                                  mixture->dim, mixture->components, mixing->products);
        }
        mix_lanes(mixture, mixing->products + LANES * mixture->components * at, LANES,
                  mixing->gates + LANES * mixture->gate_count * at, means);
        for (int lane = 0; lane < LANES; lane++) means[lane] += mixture->class_bias[LANES * block + lane];
        memcpy(logits + LANES * block, means, (left < LANES ? left : LANES) * sizeof *means);
    }
}

static void mix_row(const struct mixture *mixture, const struct mixing *mixing, const float *context, float *mean,
                    float *logits) {
    compute_layers(mixture, context, mixing->layers);
    compute_mean(mixture, mixing, mean);
    score_frequent(mixture, mixing, logits);
}

static int64_t mix_rows(const struct mixture *mixture, const float *contexts, float *means, float *logits,
                        int64_t first, int64_t last) {
    struct mixing mixing;
    if (!allocate_mixing(mixture, &mixing)) return 0;
    for (int64_t row = first; row < last; row++)
        mix_row(mixture, &mixing, contexts + row * mixture->dim, means + row * mixture->dim,
                logits + row * mixture->frequent);
    free(mixing.layers);
    return 1;
}

#endif
