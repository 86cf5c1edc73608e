/* Chooses a target by what the processor has and the operating system saves and restores. */
#include "kernels.h"
#include "targets/parts.h"

#include <stddef.h>
#include <string.h>

#ifndef SOURCE_HASH
#define SOURCE_HASH "unknown"
#endif
#define EXPORT __attribute__((visibility("default")))

#define DECLARE(target)                          \
    extern const struct kernels kernels_##target; \
    extern const struct kernel_parts kernel_parts_##target
#define NAME_TABLES(target) &kernels_##target, &kernel_parts_##target

DECLARE(portable);

static int has_all(void) { return 1; }

/* The build defines HAS_* for the targets whose instructions the compiler knows. */
#if defined(__x86_64__)
#include <cpuid.h>

DECLARE(avx512vnni);
DECLARE(avxvnni);
DECLARE(avx2);

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
DECLARE(neon);

#if defined(__linux__)
#include <sys/auxv.h>
#define DOT_PRODUCT (1UL << 20) /* HWCAP_ASIMDDP */
static int has_dot_product(void) { return (getauxval(AT_HWCAP) & DOT_PRODUCT) != 0; }
#else
static int has_dot_product(void) { return 1; } /* every processor of Apple's that runs 64-bit code since 2018 */
#endif
#endif

/* The fastest first. */
static const struct target {
    const struct kernels *kernels;
    const struct kernel_parts *parts;
    int (*is_available)(void);
} targets[] = {
#if defined(__x86_64__)
#ifdef HAS_AVX512VNNI
    {NAME_TABLES(avx512vnni), has_avx512vnni},
#endif
#ifdef HAS_AVXVNNI
    {NAME_TABLES(avxvnni), has_avxvnni},
#endif
#ifdef HAS_AVX2
    {NAME_TABLES(avx2), has_avx2},
#endif
#elif defined(HAS_NEON)
    {NAME_TABLES(neon), has_dot_product},
#endif
    {NAME_TABLES(portable), has_all},
};

static const struct target *find_target(const char *name) {
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        int is_named = !name || !*name || !strcmp(name, targets[i].kernels->target);
        if (is_named && targets[i].is_available()) return targets + i;
    }
    return NULL;
}

EXPORT const struct kernels *shortlist_find_kernels(const char *name) {
    const struct target *target = find_target(name);
    return target ? target->kernels : NULL;
}

EXPORT const struct kernel_parts *shortlist_find_parts(const char *name) {
    const struct target *target = find_target(name);
    return target ? target->parts : NULL;
}

EXPORT const char *shortlist_source_hash(void) { return SOURCE_HASH; }
