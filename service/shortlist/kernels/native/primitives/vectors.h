/* Vectors as wide as the target's registers, which each target says before it includes this: VECTOR_BYTES.
 *
 * That, and HAS_DOT_PRODUCTS, says what a target may use, and no macro of the compiler: the flags of who builds the
 * library, and clang's own on Apple's processors, allow the portable target more than its source includes.
 *
 * Sums of floats run in one order on every target, so that each gives the same bits: sixteen partial sums, whose number
 * i mod 16 takes product i (sums.h says which takes the last few), are held in PARTS vectors. The build forbids to
 * contract a product and a sum into one step.
 */
#ifndef SHORTLIST_VECTORS_H
#define SHORTLIST_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#if VECTOR_BYTES > 16
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

enum {
    LANES = 16,                             /* partial sums, and classes of a block */
    LANE_BYTES = 4,                         /* bytes of a class in one line of a block */
    LINE_BYTES = LANES * LANE_BYTES,        /* a cache line */
    WEIGHT_ZERO_POINT = 128,                /* int8 weights are stored as unsigned bytes, this much larger */
    TWO_BIT_MAX = 3,                        /* a stored weight u of 2 bits is 2 u - 3; also the mask of its bits */
    WEIGHTS_PER_BYTE = 4,                   /* of 2 bits */
    WIDTH = VECTOR_BYTES / sizeof(float),   /* numbers of a vector */
    PARTS = LANES / WIDTH,                  /* vectors of LANES numbers */
};

typedef float floats __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t ints __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t words __attribute__((vector_size(VECTOR_BYTES)));

INLINE floats load_floats(const float *numbers) {
    floats vector;
    memcpy(&vector, numbers, sizeof vector);
    return vector;
}

INLINE void store_floats(float *numbers, floats vector) { memcpy(numbers, &vector, sizeof vector); }

INLINE floats repeat_float(float number) { return number - (floats){0}; }

INLINE ints repeat_int(int32_t number) { return number - (ints){0}; }

INLINE ints load_ints(const int32_t *numbers) {
    ints vector;
    memcpy(&vector, numbers, sizeof vector);
    return vector;
}

INLINE floats convert_ints(ints numbers) { return __builtin_convertvector(numbers, floats); }

/* The numbers from `first` on, one a lane. */
INLINE ints count_lanes(int32_t first) {
    ints numbers;
    for (int32_t i = 0; i < (int32_t)WIDTH; i++) numbers[i] = first + i;
    return numbers;
}

/* mask: all bits of a lane or none, as comparisons give them. */
INLINE floats choose_floats(ints mask, floats yes, floats no) {
    return (floats)((mask & (ints)yes) | (~mask & (ints)no));
}

/* The larger and the smaller of two numbers in each lane, `other` where one is no number. */
#if VECTOR_BYTES == 64
INLINE floats max_floats(floats value, floats other) { return (floats)_mm512_max_ps((__m512)value, (__m512)other); }
INLINE floats min_floats(floats value, floats other) { return (floats)_mm512_min_ps((__m512)value, (__m512)other); }
#elif VECTOR_BYTES == 32
INLINE floats max_floats(floats value, floats other) { return (floats)_mm256_max_ps((__m256)value, (__m256)other); }
INLINE floats min_floats(floats value, floats other) { return (floats)_mm256_min_ps((__m256)value, (__m256)other); }
#else
INLINE floats max_floats(floats value, floats other) { return choose_floats(value > other, value, other); }
INLINE floats min_floats(floats value, floats other) { return choose_floats(value < other, value, other); }
#endif

/* Of LANES numbers, halves of which are compared at a time. */
#if VECTOR_BYTES > 16
INLINE float find_largest_lane(const float *numbers) {
    __m256 eight = _mm256_max_ps(_mm256_loadu_ps(numbers + 8), _mm256_loadu_ps(numbers));
    __m128 four = _mm_max_ps(_mm256_extractf128_ps(eight, 1), _mm256_castps256_ps128(eight));
    __m128 two = _mm_max_ps(_mm_movehl_ps(four, four), four);
    return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(two), two));
}
#else
_Static_assert(WIDTH == 4, "halves of sixteen numbers are compared four at a time");
/* Of vectors of four: a loop over halves would keep them in memory, at several times the time. */
INLINE float find_largest_lane(const float *numbers) {
    floats one = max_floats(load_floats(numbers + WIDTH), load_floats(numbers));
    floats other = max_floats(load_floats(numbers + 3 * WIDTH), load_floats(numbers + 2 * WIDTH));
    floats four = max_floats(other, one);
    float even = four[0] > four[2] ? four[0] : four[2], odd = four[1] > four[3] ? four[1] : four[3];
    return even > odd ? even : odd;
}
#endif

/* Whether one of LANES numbers is this one. */
INLINE int holds_number(const float *numbers, float number) {
    ints is_equal = {0};
    int32_t lanes[WIDTH], holds = 0;
    for (int part = 0; part < (int)PARTS; part++)
        is_equal |= load_floats(numbers + WIDTH * part) == repeat_float(number);
    memcpy(lanes, &is_equal, sizeof lanes);
    for (int lane = 0; lane < (int)WIDTH; lane++) holds |= lanes[lane];
    return holds != 0;
}

/* The largest of numbers [n], -inf of none. Those that are no numbers are left out. */
INLINE float find_largest(const float *numbers, int64_t n) {
    floats peaks[PARTS];
    float lanes[LANES];
    int64_t i = 0;
    for (int part = 0; part < (int)PARTS; part++) peaks[part] = repeat_float(-INFINITY);
    for (; i + LANES <= n; i += LANES)
        for (int part = 0; part < (int)PARTS; part++)
            peaks[part] = max_floats(load_floats(numbers + i + WIDTH * part), peaks[part]);
    memcpy(lanes, peaks, sizeof lanes);
    float peak = find_largest_lane(lanes);
    for (; i < n; i++) peak = numbers[i] > peak ? numbers[i] : peak;
    return peak;
}

/* Whether no number is NaN or infinite: their exponents have a bit that is 0; and they lie where floats can. */
INLINE int are_finite(const float *numbers, int64_t n) {
    if ((uintptr_t)numbers % sizeof *numbers) return 0;
    const uint32_t exponent = 0x7f800000;
    uint32_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, numbers + i, sizeof bits);
        found |= -((bits & exponent) == exponent);
    }
    return !found;
}

/* Into the first-level cache, so no more at a time than it holds beside what is worked on. */
INLINE void prefetch_bytes(const void *address, int64_t size) {
    for (int64_t i = 0; i < size; i += LINE_BYTES) __builtin_prefetch((const char *)address + i, 0, 3);
}

#endif
