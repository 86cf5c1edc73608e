/* One pool of threads for the library, whatever its targets are. */
#include "system/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

enum { MAX_HELPERS = 63 };

/* What helpers see of a call. It lies on the caller's stack: the caller leaves when no helper is in it. */
struct job {
    const struct shared_work *work;
    atomic_int_fast64_t next; /* the part that nobody has begun */
    atomic_int failed;
};

/* busy: whether a call has the helpers. The other fields are guarded by the lock. job: NULL where there is none to
 * join. places: how many helpers may still join it. inside: how many are in it. */
static struct {
    atomic_flag busy;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    struct job *job;
    int64_t helpers, places, inside;
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

static void *help(void *nothing) {
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (!pool.job || !pool.places) pthread_cond_wait(&pool.wake, &pool.lock);
        struct job *job = pool.job;
        pool.places--, pool.inside++;
        pthread_mutex_unlock(&pool.lock);
        run_job(job);
        pthread_mutex_lock(&pool.lock);
        if (!--pool.inside) pthread_cond_signal(&pool.done);
    }
    return nothing;
}

/* A forked process has none of its parent's threads, and may have got the locks as another thread held them. */
static void forget_helpers(void) {
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.done, NULL);
    pool.job = NULL, pool.helpers = pool.places = pool.inside = 0;
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
    pool.job = NULL;
    while (pool.inside) pthread_cond_wait(&pool.done, &pool.lock);
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
