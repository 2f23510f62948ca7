/* The way into every function: the state file, handles, faults and counters. */

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim *sim;
static char sim_path[4096];
static atomic_uint references; /* nvmlInit calls not yet answered by nvmlShutdown */
static atomic_uint epoch;      /* the driver load this process initialised against */
static _Thread_local const struct sim *client_of; /* the file that this thread's calls are about */

/* A mapping is never undone: a call that hangs may still look at it after the test has moved on to
 * another file. */
static struct sim *map_state(void)
{
    const char *path = getenv("NVML_SIM_STATE");
    if (!path || strlen(path) >= sizeof sim_path)
        return NULL;
    if (sim && strcmp(path, sim_path) == 0)
        return sim;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return NULL;
    struct stat facts;
    struct sim *mapped = MAP_FAILED;
    if (fstat(file, &facts) == 0 && (size_t)facts.st_size == sizeof *mapped)
        mapped = mmap(NULL, sizeof *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED || mapped->magic != SIM_MAGIC)
        return NULL;
    strcpy(sim_path, path);
    sim = mapped;
    references = 0;
    return mapped;
}

uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sleep_us(uint64_t us)
{
    struct timespec left = {.tv_sec = (time_t)(us / 1000000),
                            .tv_nsec = (long)(us % 1000000) * 1000};
    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

/* The kernel adds about 60 us to any sleep, so short latencies are spent spinning. */
static void spend_us(uint64_t us)
{
    if (us > 200) {
        sleep_us(us);
        return;
    }
    for (uint64_t until = clock_ns() + us * 1000; clock_ns() < until;)
        ;
}

void leave(struct call *call)
{
    if (!call->row)
        return;
    __atomic_fetch_add(&call->row->calls, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&call->row->nanoseconds, clock_ns() - call->started, __ATOMIC_RELAXED);
}

/* What a client sees whose driver went away: 9 while it is away, 1 once another one is loaded. */
int driver_state(const struct sim *s)
{
    if (!s || !references)
        return UNINITIALIZED;
    if (!s->loaded)
        return DRIVER_NOT_LOADED;
    return s->epoch == epoch ? SUCCESS : UNINITIALIZED;
}

static bool chance(struct sim *s, double probability)
{
    if (probability <= 0)
        return false;
    uint64_t x = s->seed + __atomic_add_fetch(&s->draws, 1, __ATOMIC_RELAXED) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u; /* splitmix64 */
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    return (double)(x >> 11) * 0x1p-53 < probability;
}

static void pace(struct call_row *row)
{
    if (row->latency_us)
        spend_us(row->latency_us);
    if (!__atomic_load_n(&row->hang, __ATOMIC_RELAXED))
        return;
    __atomic_fetch_add(&row->hanging, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&row->hang, __ATOMIC_RELAXED))
        sleep_us(2000);
    __atomic_fetch_sub(&row->hanging, 1, __ATOMIC_RELAXED);
}

/* The faults set for this card and function, in the order a real driver would notice them. */
int suffer(struct call *call, enum function function)
{
    call->row = &call->sim->rows[call->slot][function];
    pace(call->row);
    if (call->card && call->card->lost)
        return GPU_IS_LOST;
    if (call->row->code)
        return call->row->code;
    double global = call->card ? call->sim->unknown : 0;
    if (chance(call->sim, fmax(call->row->unknown, global)))
        return UNKNOWN;
    return SUCCESS;
}

static struct call begin(struct sim *with, int code)
{
    struct call call = {.sim = with, .started = clock_ns(), .slot = SYSTEM_ROW, .code = code};
    if (!client_of)
        client_of = with;
    if (code == SUCCESS && with->latency_us)
        spend_us(with->latency_us);
    return call;
}

struct call enter_early(enum function function)
{
    pthread_mutex_lock(&init_lock);
    struct sim *mapped = map_state();
    pthread_mutex_unlock(&init_lock);
    struct call call = begin(mapped, mapped ? SUCCESS : DRIVER_NOT_LOADED);
    if (call.code == SUCCESS)
        call.code = suffer(&call, function);
    return call;
}

struct call enter_system(enum function function)
{
    struct call call = begin(sim, driver_state(sim));
    if (call.code == SUCCESS)
        call.code = suffer(&call, function);
    return call;
}

/* A handle is a number that carries what it stands for; the two generations make it stale when that
 * is gone. */
static const uintptr_t HANDLE_TAG = 0x4E56;

nvml_device make_handle(const struct sim *s, unsigned slot, unsigned mig_number)
{
    const struct card *card = &s->cards[slot];
    uintptr_t born = mig_number ? card->mig_generation & 0xFFFF : 0;
    return (nvml_device)(HANDLE_TAG << 48 | born << 32 |
                         (uintptr_t)(card->incarnation & 0xFFFF) << 16 |
                         (uintptr_t)mig_number << 8 | slot);
}

int resolve(struct call *call, nvml_device device)
{
    uintptr_t bits = (uintptr_t)device;
    unsigned slot = bits & 0xFF, mig_number = bits >> 8 & 0xFF;
    if (bits >> 48 != HANDLE_TAG || slot >= CARDS || mig_number > MIGS)
        return INVALID_ARGUMENT;
    struct card *card = &call->sim->cards[slot];
    if (!card->lost && device != make_handle(call->sim, slot, mig_number))
        return INVALID_ARGUMENT;
    call->slot = slot;
    call->card = card;
    call->mig = mig_number ? &card->migs[mig_number - 1] : NULL;
    return SUCCESS;
}

static enum kinds kind_of(const struct call *call)
{
    if (call->mig)
        return CHILD;
    return call->card->metrics[METRIC_mig_mode].base == 1 ? PARENT : WHOLE;
}

struct call enter(enum function function, nvml_device device, enum kinds kinds)
{
    struct call call = begin(sim, driver_state(sim));
    if (call.code == SUCCESS)
        call.code = resolve(&call, device);
    if (call.code == SUCCESS)
        call.code = suffer(&call, function);
    if (call.code == SUCCESS && !(kind_of(&call) & kinds))
        call.code = NOT_SUPPORTED;
    return call;
}

static int initialise(enum function function)
{
    OPEN(enter_early(function));
    int code = call.sim->loaded ? call.sim->init_result : DRIVER_NOT_LOADED;
    if (code)
        return code;
    if (epoch != call.sim->epoch)
        references = 0; /* what was open before was closed with its driver */
    epoch = call.sim->epoch;
    client_of = call.sim;
    references++;
    return SUCCESS;
}

#define INIT(function, parameters) \
    int function parameters { return initialise(FUNCTION_##function); }

INIT(nvmlInit, (void))
INIT(nvmlInit_v2, (void))
INIT(nvmlInitWithFlags, (unsigned flags __attribute__((unused))))

int nvmlShutdown(void)
{
    /* A thread that outlived its test must not end what the next one has initialised. */
    if (client_of && client_of != sim)
        return UNINITIALIZED;
    ENTER_SYSTEM(nvmlShutdown);
    references--;
    return SUCCESS;
}
