/* Runs AVX-VNNI's one instruction in software, where a processor with AVX2 lacks it: each raises SIGILL, whose handler
 * does what it would have done and goes on behind it. Thousands of times slower, for tests alone; Linux on x86-64.
 *
 * VPDPBUSD ymm1, ymm2, ymm3/m256 is VEX.256.66.0F38.W0 50 /r: to each of eight numbers of ymm1 it adds four products of
 * unsigned bytes of ymm2 and signed ones of the third.
 */
#define _GNU_SOURCE
#include "emulate_vpdpbusd.h"

#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum {
    XMM_OFFSET = 160, FEATURES_OFFSET = 512, /* in the area that XSAVE writes */
    HAS_UPPER_HALVES = 4,                    /* the bit of XSAVE's features for the upper halves of registers */
    HALF_BYTES = 16, OPCODE = 0x50, RIP_RELATIVE = 5, HAS_INDEX = 4,
};

static unsigned upper_halves_offset; /* in that area */

static uint8_t *features_of(char *area) { return (uint8_t *)area + FEATURES_OFFSET; }

static char *upper_half(char *area, int number) { return area + upper_halves_offset + HALF_BYTES * number; }

static void read_register(char *area, int number, void *bytes) {
    memcpy(bytes, area + XMM_OFFSET + HALF_BYTES * number, HALF_BYTES);
    if (*features_of(area) & HAS_UPPER_HALVES)
        memcpy((char *)bytes + HALF_BYTES, upper_half(area, number), HALF_BYTES);
    else /* all of them are zeros, and not written to memory */
        memset((char *)bytes + HALF_BYTES, 0, HALF_BYTES);
}

static void write_register(char *area, int number, const void *bytes) {
    if (!(*features_of(area) & HAS_UPPER_HALVES)) memset(upper_half(area, 0), 0, 16 * HALF_BYTES);
    *features_of(area) |= HAS_UPPER_HALVES;
    memcpy(area + XMM_OFFSET + HALF_BYTES * number, bytes, HALF_BYTES);
    memcpy(upper_half(area, number), (const char *)bytes + HALF_BYTES, HALF_BYTES);
}

static int64_t read_integer(const ucontext_t *context, int number) {
    static const int places[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                 REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return context->uc_mcontext.gregs[places[number]];
}

/* The address of the operand in memory that ModRM at `code` names; *end becomes the place behind it. extend: 8 or 0,
 * added to the number of the base, and of the index. */
static const void *find_operand(const ucontext_t *context, const uint8_t *code, int extend_base, int extend_index,
                                const uint8_t **end) {
    int mode = *code >> 6, base = *code & 7, is_relative = !mode && base == RIP_RELATIVE;
    int64_t address = 0, displacement = 0;
    code++;
    if (base == HAS_INDEX) {
        int index = (*code >> 3 & 7) + extend_index, scale = *code >> 6;
        base = *code++ & 7;
        if (index != HAS_INDEX) address += read_integer(context, index) << scale;
    }
    int size = mode == 1 ? 1 : mode == 2 || (!mode && base == RIP_RELATIVE) ? 4 : 0;
    if (size == 1) displacement = (int8_t)*code;
    if (size == 4) displacement = (int32_t)(code[0] | code[1] << 8 | code[2] << 16 | (uint32_t)code[3] << 24);
    *end = code + size;
    if (is_relative)
        address = (int64_t)*end;
    else if (mode || base != RIP_RELATIVE)
        address += read_integer(context, base + extend_base);
    return (const void *)(address + displacement);
}

static void add_products(int32_t *sums, const uint8_t *weights, const int8_t *levels) {
    for (int lane = 0; lane < 8; lane++)
        for (int i = 4 * lane; i < 4 * lane + 4; i++) sums[lane] += weights[i] * levels[i];
}

static void emulate(int number, siginfo_t *info, void *state) {
    ucontext_t *context = state;
    char *area = (char *)context->uc_mcontext.fpregs;
    const uint8_t *code = (const uint8_t *)context->uc_mcontext.gregs[REG_RIP], *end = code + 5;
    (void)number, (void)info;
    /* C4, then R X B inverted and map 0F38, then W = 0, vvvv inverted, L = 1, prefix 66 */
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x87) != 5 || code[3] != OPCODE) abort();
    int base = code[1] & 0x20 ? 0 : 8, index = code[1] & 0x40 ? 0 : 8;
    int to = (code[4] >> 3 & 7) + (code[1] & 0x80 ? 0 : 8);
    int32_t sums[8];
    uint8_t weights[32];
    int8_t levels[32];
    if (code[4] >> 6 == 3)
        read_register(area, (code[4] & 7) + base, levels);
    else
        memcpy(levels, find_operand(context, code + 4, base, index, &end), sizeof levels);
    read_register(area, ~(code[2] >> 3) & 15, weights);
    read_register(area, to, sums);
    add_products(sums, weights, levels);
    write_register(area, to, sums);
    context->uc_mcontext.gregs[REG_RIP] = (int64_t)end;
}

void emulate_vpdpbusd(void) {
    unsigned size, c, d;
    struct sigaction action = {.sa_sigaction = emulate, .sa_flags = SA_SIGINFO};
    if (!__get_cpuid_count(0xd, 2, &size, &upper_halves_offset, &c, &d)) abort();
    sigaction(SIGILL, &action, NULL);
}
