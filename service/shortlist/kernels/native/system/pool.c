/* One pool of threads for the library, whatever its targets are. */
#include "system/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

enum {
    MAX_HELPERS = 63,
    AWAKE_NANOSECONDS = 50000, /* that a thread waits without sleeping: to be woken takes as long */
    LOOKS_PER_TIME = 16        /* at what it waits for, between two looks at the clock */
};

/* What helpers see of a call. It lies on the caller's stack: the caller leaves when no helper is in it. */
struct job {
    const struct shared_work *work;
    atomic_int_fast64_t next; /* the part that nobody has begun */
    atomic_int failed;
};

/* busy: whether a call has the helpers. The other fields are changed by who holds the lock. job: that helpers join.
 * places: how many may still do so. inside: how many are in it. */
static struct {
    atomic_flag busy;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    struct job *job;
    int64_t helpers;
    atomic_int_fast64_t places, inside;
} pool = {.busy = ATOMIC_FLAG_INIT,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

static void run_job(struct job *job) {
    for (;;) {
        int64_t part = atomic_fetch_add(&job->next, 1);
        if (part >= job->work->parts) return;
        if (!job->work->run(job->work->shared, part)) atomic_store(&job->failed, 1);
    }
}

/* Tells the processor that a loop waits. */
static void relax(void) {
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static int64_t read_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int has_places(void) { return atomic_load(&pool.places) > 0; }

static int is_empty(void) { return !atomic_load(&pool.inside); }

/* Waits awake until something is true, or for AWAKE_NANOSECONDS. */
static void stay_awake(int (*is_true)(void)) {
    int64_t end = read_nanoseconds() + AWAKE_NANOSECONDS;
    do
        for (int i = 0; i < LOOKS_PER_TIME; i++, relax())
            if (is_true()) return;
    while (read_nanoseconds() < end);
}

static void *help(void *nothing) {
    for (;;) {
        stay_awake(has_places);
        pthread_mutex_lock(&pool.lock);
        while (!has_places()) pthread_cond_wait(&pool.wake, &pool.lock);
        struct job *job = pool.job;
        pool.places--;
        pool.inside++;
        pthread_mutex_unlock(&pool.lock);
        run_job(job);
        pthread_mutex_lock(&pool.lock);
        if (!--pool.inside) pthread_cond_signal(&pool.done);
        pthread_mutex_unlock(&pool.lock);
    }
    return nothing;
}

/* A forked process has none of its parent's threads, and may have got the locks as another thread held them. */
static void forget_helpers(void) {
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.done, NULL);
    pool.helpers = pool.places = pool.inside = 0;
    atomic_flag_clear(&pool.busy);
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_helpers); }

/* Signals are the other threads' business, but for those that tell of a fault of the thread itself. */
static void fill_signals(sigset_t *others) {
    static const int faults[] = {SIGILL, SIGFPE, SIGSEGV, SIGBUS, SIGTRAP};
    sigfillset(others);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(others, faults[i]);
}

/* Starts helpers until there are `count`, or no more can be had. */
static void start_helpers(int64_t count) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sigset_t others, before;
    if (pool.helpers >= count) return;
    pthread_once(&once, watch_forks);
    fill_signals(&others);
    pthread_sigmask(SIG_SETMASK, &others, &before);
    for (pthread_t thread; pool.helpers < count; pool.helpers++) {
        if (pthread_create(&thread, NULL, help, NULL)) break;
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void share_job(struct job *job, int64_t helpers) {
    pthread_mutex_lock(&pool.lock);
    start_helpers(helpers);
    pool.job = job, pool.places = helpers;
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
    run_job(job);
    pthread_mutex_lock(&pool.lock);
    pool.places = 0;
    pthread_mutex_unlock(&pool.lock);
    stay_awake(is_empty);
    pthread_mutex_lock(&pool.lock);
    while (!is_empty()) pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

int64_t run_parts(const struct shared_work *work, int64_t threads) {
    struct job job = {.work = work};
    int64_t helpers = (threads < work->parts ? threads : work->parts) - 1;
    if (helpers > MAX_HELPERS) helpers = MAX_HELPERS;
    if (helpers > 0 && !atomic_flag_test_and_set(&pool.busy)) {
        share_job(&job, helpers);
        atomic_flag_clear(&pool.busy);
    } else {
        run_job(&job);
    }
    return !atomic_load(&job.failed);
}
