/* Reading the state file while a test writes it. */

#include <math.h>
#include <string.h>

#include "sim.h"

static const double TAU = 6.283185307179586476925;

/* Python makes `edits` odd while it writes several words that belong together. A writer that died
 * in between must not hang its readers, so they give up waiting after a while. */
uint32_t begin_read(const struct card *card)
{
    for (int tries = 0; tries < 1000; tries++) {
        uint32_t edits = __atomic_load_n(&card->edits, __ATOMIC_ACQUIRE);
        if (edits % 2 == 0)
            return edits;
        sleep_us(50);
    }
    return __atomic_load_n(&card->edits, __ATOMIC_ACQUIRE);
}

bool read_is_torn(const struct card *card, uint32_t edits)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&card->edits, __ATOMIC_RELAXED) != edits;
}

static struct metric take(const struct card *card, enum metric_id id)
{
    struct metric copy;
    uint32_t edits;
    do {
        edits = begin_read(card);
        copy = card->metrics[id];
    } while (read_is_torn(card, edits));
    return copy;
}

static uint64_t now_ns(const struct call *call)
{
    uint64_t set = call->sim->clock_ns;
    return set != CLOCK_RUNS ? set : call->started - call->sim->started_ns;
}

static double seconds(const struct call *call) { return (double)now_ns(call) * 1e-9; }

uint64_t wall_us(const struct call *call)
{
    return call->sim->started_wall_us + now_ns(call) / 1000;
}

static double wave_at(const struct metric *m, double t)
{
    if (m->amplitude == 0)
        return m->base;
    return m->base + m->amplitude * sin(TAU * (t / m->period + m->phase));
}

/* What has flowed since the driver was loaded, if the metric is a rate per second. */
static double integral_at(const struct metric *m, double t)
{
    double sum = m->total + m->base * (t - m->since);
    if (m->amplitude == 0)
        return sum;
    double from = cos(TAU * (m->since / m->period + m->phase));
    double to = cos(TAU * (t / m->period + m->phase));
    return sum + m->amplitude * m->period / TAU * (from - to);
}

/* A metric whose base is NaN is one this card does not have. */
int read_number(const struct call *call, enum metric_id id, double *out)
{
    struct metric metric = take(call->card, id);
    if (isnan(metric.base))
        return NOT_SUPPORTED;
    *out = floor(wave_at(&metric, seconds(call)) + 0.5);
    return SUCCESS;
}

int read_integral(const struct call *call, enum metric_id id, double *out)
{
    struct metric metric = take(call->card, id);
    if (isnan(metric.base))
        return NOT_SUPPORTED;
    *out = fmax(0, floor(integral_at(&metric, seconds(call)) + 0.5));
    return SUCCESS;
}

int give_u32(const struct call *call, enum metric_id id, unsigned *out)
{
    double value;
    if (!out)
        return INVALID_ARGUMENT;
    int code = read_number(call, id, &value);
    if (code == SUCCESS)
        *out = (unsigned)fmax(0, value);
    return code;
}

int give_u64(const struct call *call, enum metric_id id, uint64_t *out)
{
    double value;
    if (!out)
        return INVALID_ARGUMENT;
    int code = read_number(call, id, &value);
    if (code == SUCCESS)
        *out = (uint64_t)fmax(0, value);
    return code;
}

int give_i32(const struct call *call, enum metric_id id, int *out)
{
    double value;
    if (!out)
        return INVALID_ARGUMENT;
    int code = read_number(call, id, &value);
    if (code == SUCCESS)
        *out = (int)value;
    return code;
}

int give_text(const char *text, char *out, unsigned length)
{
    if (!out)
        return INVALID_ARGUMENT;
    size_t size = strnlen(text, TEXT_SIZE - 1) + 1;
    if (size == 1)
        return NOT_SUPPORTED;
    if (length < size)
        return INSUFFICIENT_SIZE;
    memcpy(out, text, size - 1);
    out[size - 1] = 0;
    return SUCCESS;
}

int give_pair(const struct call *call, enum metric_id a, enum metric_id b, unsigned *out_a,
              unsigned *out_b)
{
    int code = give_u32(call, a, out_a);
    return code ? code : give_u32(call, b, out_b);
}

int give_chosen(const struct call *call, const enum metric_id *choices, size_t count,
                unsigned which, unsigned *out)
{
    return which < count ? give_u32(call, choices[which], out) : INVALID_ARGUMENT;
}

struct bus_address address_of(const struct card *card)
{
    const struct metric *m = card->metrics;
    return (struct bus_address){
        .domain = (unsigned)m[METRIC_pci_domain].base,
        .bus = (unsigned)m[METRIC_pci_bus].base,
        .device = (unsigned)m[METRIC_pci_device].base,
    };
}
