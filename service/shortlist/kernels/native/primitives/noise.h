/* Gumbel noise of classes, as core/draws/noise.py says: whole numbers up to the one that a logarithm is taken of. */
#ifndef SHORTLIST_NOISE_H
#define SHORTLIST_NOISE_H

#include "primitives/vectors.h"

#define NOISE_UNIT 2.220446049250313e-16    /* 2^-52 */
#define HASH_UNIT 5.9604644775390625e-8f    /* 2^-24: of the upper bits of a hash, which float32 holds exactly */

enum { LOW_BITS_DROPPED = 12, HIGH_BITS = 20, HASH_BITS_DROPPED = 8 };

/* What makes the noise of one draw: the halves of its key. */
struct noise_key {
    uint32_t low, high;
};

/* One step of SplitMix64 from `state` and a number. */
INLINE uint64_t step_key(uint64_t state, int64_t number) {
    uint64_t key = (state ^ (uint64_t)number) + 0x9E3779B97F4A7C15U;
    key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9U;
    key = (key ^ (key >> 27)) * 0x94D049BB133111EBU;
    return key ^ (key >> 31);
}

/* The key of one draw. */
INLINE struct noise_key make_key(int64_t seed, int64_t position, int64_t draw) {
    uint64_t key = step_key(step_key(step_key(0, seed), position), draw);
    return (struct noise_key){(uint32_t)key, (uint32_t)(key >> 32)};
}

/* A permutation of the uint32 in each lane: lowbias32. */
INLINE words mix_words(words x) {
    x = (x ^ (x >> 16)) * 0x7feb352dU;
    x = (x ^ (x >> 15)) * 0x846ca68bU;
    return x ^ (x >> 16);
}

/* The hashes of classes in each lane: small ones stand for large noise. */
INLINE words hash_classes(struct noise_key key, words classes) {
    return mix_words(mix_words(classes ^ key.low) ^ key.high);
}

/* Hashes as shares of all, rounded down to 2^-24. */
INLINE floats convert_hashes(words hashes) {
    return __builtin_convertvector((ints)(hashes >> HASH_BITS_DROPPED), floats) * HASH_UNIT;
}

/* The noise of one class. */
INLINE double make_noise(struct noise_key key, int64_t class_id) {
    words classes = (uint32_t)class_id - (words){0}, hashes = hash_classes(key, classes);
    uint32_t low = mix_words(hashes ^ key.low)[0] >> LOW_BITS_DROPPED;
    double rest = ((double)hashes[0] * (1 << HIGH_BITS) + (double)low + 0.5) * NOISE_UNIT;
    return -log(-log1p(-rest));
}

#endif
