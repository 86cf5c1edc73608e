/* Chooses a target by what the processor has and the operating system saves and restores. */
#include "kernels.h"

#include <stddef.h>
#include <string.h>

#ifndef SOURCE_HASH
#define SOURCE_HASH "unknown"
#endif
#define EXPORT __attribute__((visibility("default")))

extern const struct kernels kernels_portable;

static int has_all(void) { return 1; }

/* The build defines HAS_* for the targets whose instructions the compiler knows. */
#if defined(__x86_64__)
#include <cpuid.h>

extern const struct kernels kernels_avx512vnni, kernels_avxvnni, kernels_avx2;

/* __builtin_cpu_supports asks XGETBV, too: registers that the system does not save are not there. */
#ifdef HAS_AVX512VNNI
static int has_avx512vnni(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}
#endif

static int has_avx2(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi");
}

#ifdef HAS_AVXVNNI
#define AVX_VNNI (1U << 4) /* of EAX of leaf 7, subleaf 1; some compilers have no name for it */
static int has_avxvnni(void) {
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX_VNNI);
}
#endif
#elif defined(HAS_NEON)
extern const struct kernels kernels_neon;

#if defined(__linux__)
#include <sys/auxv.h>
#define DOT_PRODUCT (1UL << 20) /* HWCAP_ASIMDDP */
static int has_dot_product(void) { return (getauxval(AT_HWCAP) & DOT_PRODUCT) != 0; }
#else
static int has_dot_product(void) { return 1; } /* every processor of Apple's that runs 64-bit code since 2018 */
#endif
#endif

/* The fastest first. */
static const struct {
    const struct kernels *kernels;
    int (*is_available)(void);
} targets[] = {
#if defined(__x86_64__)
#ifdef HAS_AVX512VNNI
    {&kernels_avx512vnni, has_avx512vnni},
#endif
#ifdef HAS_AVXVNNI
    {&kernels_avxvnni, has_avxvnni},
#endif
    {&kernels_avx2, has_avx2},
#elif defined(HAS_NEON)
    {&kernels_neon, has_dot_product},
#endif
    {&kernels_portable, has_all},
};

EXPORT const struct kernels *shortlist_find_kernels(const char *name) {
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        int is_named = !name || !*name || !strcmp(name, targets[i].kernels->name);
        if (is_named && targets[i].is_available()) return targets[i].kernels;
    }
    return NULL;
}

EXPORT const char *shortlist_source_hash(void) { return SOURCE_HASH; }
