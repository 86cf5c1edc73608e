/* One store of memory for the library, whatever its targets are. No lock: threads swap whole pieces in and out, so that
 * a process that is forked meanwhile lacks those alone that other threads had in use. */
#define _DEFAULT_SOURCE /* madvise */
#include "system/memory.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

enum { LEAST_KEPT_BYTES = 1 << 20, MOST_KEPT = 16, HEADER_BYTES = 64, LARGE_PAGE_BYTES = 1 << 21 };

/* What lies before the memory that is handed out. */
struct piece {
    int64_t size;
};

static _Atomic(struct piece *) kept[MOST_KEPT];

/* Whole large pages, if the system has them: a search writes to hundreds of small ones, here and there. */
static void *map_large_pages(int64_t size) {
    int64_t pages = (size + LARGE_PAGE_BYTES - 1) / LARGE_PAGE_BYTES;
    void *memory = aligned_alloc(LARGE_PAGE_BYTES, pages * LARGE_PAGE_BYTES);
#ifdef __linux__
    if (memory) madvise(memory, pages * LARGE_PAGE_BYTES, MADV_HUGEPAGE);
#endif
    return memory;
}

static struct piece *make_piece(int64_t size) {
    int64_t whole = HEADER_BYTES + size;
    struct piece *piece = size < LEAST_KEPT_BYTES ? malloc(whole) : map_large_pages(whole);
    if (piece) piece->size = size;
    return piece;
}

/* A kept piece of at least so many bytes; NULL where there is none. Those that are smaller are freed on the way. */
static struct piece *find_piece(int64_t size) {
    for (int i = 0; i < MOST_KEPT; i++) {
        struct piece *piece = atomic_exchange(&kept[i], NULL);
        if (piece && piece->size >= size) return piece;
        free(piece);
    }
    return NULL;
}

void *take_memory(int64_t size) {
    struct piece *piece = size < LEAST_KEPT_BYTES ? NULL : find_piece(size);
    if (!piece) piece = make_piece(size);
    return piece ? (char *)piece + HEADER_BYTES : NULL;
}

void give_memory(void *memory) {
    struct piece *piece = memory ? (struct piece *)((char *)memory - HEADER_BYTES) : NULL;
    for (int i = 0; piece && piece->size >= LEAST_KEPT_BYTES && i < MOST_KEPT; i++) {
        struct piece *none = NULL;
        if (atomic_compare_exchange_strong(&kept[i], &none, piece)) return;
    }
    free(piece);
}
