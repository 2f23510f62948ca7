/* Who is on a card, and how busy. */

#include <string.h>

#include "sim.h"

enum { COMPUTE = 1, GRAPHICS = 2, MPS = 4 };

struct process_v1 {
    unsigned pid;
    uint64_t memory;
};

struct process_v2 {
    unsigned pid;
    uint64_t memory;
    unsigned gpu_instance, compute_instance;
};

static bool concerns(const struct call *call, const struct process *p, unsigned type)
{
    if (!(p->types & type))
        return false;
    return !call->mig || (p->gpu_instance == call->mig->gpu_instance &&
                          p->compute_instance == call->mig->compute_instance);
}

/* Writes what fits and returns how many there are; `stride` is the size of the caller's struct, of
 * which `v1` is the oldest and shortest. */
static unsigned copy_processes(const struct call *call, unsigned type, char *out, unsigned room,
                               size_t stride)
{
    unsigned found = 0, limit = call->sim->process_limit;
    for (unsigned i = 0; i < call->card->process_count && found < limit; i++) {
        const struct process *p = &call->card->processes[i];
        if (!concerns(call, p, type))
            continue;
        if (found < room) {
            struct process_v2 entry = {p->pid, p->memory, p->gpu_instance, p->compute_instance};
            size_t size = stride < sizeof entry ? stride : sizeof entry;
            memset(out + found * stride, 0, stride);
            memcpy(out + found * stride, &entry, size);
        }
        found++;
    }
    return found;
}

static int list_processes(const struct call *call, unsigned type, unsigned *count, void *out,
                          size_t stride)
{
    struct card *card = call->card;
    if (!count || (*count && !out))
        return INVALID_ARGUMENT;
    unsigned room = *count, found;
    uint32_t edits;
    do {
        edits = begin_read(card);
        found = copy_processes(call, type, out, room, stride);
    } while (read_is_torn(card, edits));
    unsigned needed = found;
    if (card->growth_step)
        needed += card->growth_step * __atomic_fetch_add(&card->growth_calls, 1, __ATOMIC_RELAXED);
    *count = needed > room ? needed : found;
    return needed > room ? INSUFFICIENT_SIZE : SUCCESS;
}

/* `struct_size` may use `call`: the third version was longer for a while. */
#define LIST(function, type, struct_size)                                  \
    int function(nvml_device device, unsigned *count, void *processes)     \
    {                                                                      \
        ENTER(function, device, ANY);                                      \
        return list_processes(&call, type, count, processes, struct_size); \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, COMPUTE, sizeof(struct process_v1))
LIST(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE, sizeof(struct process_v2))
LIST(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE, call.sim->process_stride)
LIST(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS, sizeof(struct process_v1))
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS, sizeof(struct process_v2))
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS, call.sim->process_stride)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, MPS, sizeof(struct process_v1))
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS, sizeof(struct process_v2))
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS, call.sim->process_stride)

static const uint32_t NO_SAMPLE = UINT32_MAX;

struct sample {
    unsigned pid;
    uint64_t timestamp;
    unsigned sm, memory, encoder, decoder;
};

struct sample_v1 {
    uint64_t timestamp;
    unsigned pid, sm, memory, encoder, decoder, jpeg, ofa;
};

struct samples_v1 {
    unsigned version, count;
    uint64_t last_seen;
    struct sample_v1 *samples;
};

/* The driver samples six times a second, so that is how its timestamps move. */
static uint64_t sampled_us(const struct call *call, const struct process *p)
{
    enum { PERIOD_US = 166667 };
    return p->sampled_us ? p->sampled_us : wall_us(call) / PERIOD_US * PERIOD_US;
}

static unsigned copy_samples(const struct call *call, uint64_t last_seen, struct sample_v1 *out)
{
    unsigned found = 0;
    for (unsigned i = 0; i < call->card->process_count; i++) {
        const struct process *p = &call->card->processes[i];
        uint64_t at = sampled_us(call, p);
        if (p->sm == NO_SAMPLE || at <= last_seen)
            continue;
        out[found++] = (struct sample_v1){at,         p->pid,     p->sm,   p->memory_util,
                                          p->encoder, p->decoder, p->jpeg, p->ofa};
    }
    return found;
}

static int list_samples(const struct call *call, uint64_t last_seen, struct sample_v1 *out,
                        unsigned *found)
{
    uint32_t edits;
    do {
        edits = begin_read(call->card);
        *found = copy_samples(call, last_seen, out);
    } while (read_is_torn(call->card, edits));
    return *found ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetProcessUtilization(nvml_device device, struct sample *out, unsigned *count,
                                    uint64_t last_seen)
{
    ENTER(nvmlDeviceGetProcessUtilization, device, WHOLE);
    struct sample_v1 samples[PROCESSES];
    unsigned found;
    if (!count)
        return INVALID_ARGUMENT;
    int code = list_samples(&call, last_seen, samples, &found);
    if (code)
        return code;
    unsigned room = out ? *count : 0;
    *count = found;
    if (room < found)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++) {
        const struct sample_v1 *s = &samples[i];
        out[i] = (struct sample){s->pid, s->timestamp, s->sm, s->memory, s->encoder, s->decoder};
    }
    return SUCCESS;
}

int nvmlDeviceGetProcessesUtilizationInfo(nvml_device device, struct samples_v1 *out)
{
    ENTER(nvmlDeviceGetProcessesUtilizationInfo, device, WHOLE);
    struct sample_v1 samples[PROCESSES];
    unsigned found;
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != version_word(sizeof *out, 1))
        return ARGUMENT_VERSION_MISMATCH;
    int code = list_samples(&call, out->last_seen, samples, &found);
    if (code)
        return code;
    unsigned room = out->samples ? out->count : 0;
    out->count = found;
    if (room < found)
        return INSUFFICIENT_SIZE;
    memcpy(out->samples, samples, found * sizeof *samples);
    return SUCCESS;
}
