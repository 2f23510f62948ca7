/* Event sets, through which XIDs arrive. */

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct subscription {
    unsigned slot;
    nvml_device device;
    uint64_t kinds, seen;
};

struct event_set {
    uint32_t tag;
    unsigned count;
    struct subscription subscriptions[CARDS];
};

struct event_data {
    nvml_device device;
    uint64_t kind, data;
    unsigned gpu_instance, compute_instance;
};

static const uint32_t SET_TAG = 0x53455445;

static bool is_set(const struct event_set *set) { return set && set->tag == SET_TAG; }

int nvmlEventSetCreate(struct event_set **out)
{
    ENTER_SYSTEM(nvmlEventSetCreate);
    if (!out)
        return INVALID_ARGUMENT;
    *out = calloc(1, sizeof **out);
    (*out)->tag = SET_TAG;
    return SUCCESS;
}

int nvmlEventSetFree(struct event_set *set)
{
    ENTER_SYSTEM(nvmlEventSetFree);
    if (!is_set(set))
        return INVALID_ARGUMENT;
    set->tag = 0;
    free(set);
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(nvml_device device, uint64_t kinds, struct event_set *set)
{
    ENTER(nvmlDeviceRegisterEvents, device, CARD);
    uint64_t supported;
    if (!is_set(set) || set->count == CARDS)
        return INVALID_ARGUMENT;
    int code = give_u64(&call, METRIC_event_types, &supported);
    if (code || kinds & ~supported)
        return NOT_SUPPORTED;
    uint64_t seen = __atomic_load_n(&call.card->events_written, __ATOMIC_ACQUIRE);
    set->subscriptions[set->count++] = (struct subscription){call.slot, device, kinds, seen};
    return SUCCESS;
}

/* The next event of this card that was asked for, if there is one. */
static bool next_event(struct sim *s, struct subscription *to, struct event_data *out)
{
    const struct card *card = &s->cards[to->slot];
    uint64_t written = __atomic_load_n(&card->events_written, __ATOMIC_ACQUIRE);
    while (to->seen < written) {
        const struct event *event = &card->events[to->seen++ % EVENTS];
        if (!(event->kind & to->kinds))
            continue;
        *out = (struct event_data){to->device, event->kind, event->data, event->gpu_instance,
                                   event->compute_instance};
        return true;
    }
    return false;
}

static int look_for_event(struct sim *s, struct event_set *set, struct event_data *out)
{
    int code = driver_state(s);
    for (unsigned i = 0; i < set->count && code == SUCCESS; i++)
        if (next_event(s, &set->subscriptions[i], out))
            return SUCCESS;
    for (unsigned i = 0; i < set->count && code == SUCCESS; i++)
        if (s->cards[set->subscriptions[i].slot].lost)
            return GPU_IS_LOST;
    return code ? code : TIMEOUT;
}

static int wait_for_event(const struct call *call, struct event_set *set, struct event_data *out,
                          unsigned timeout_ms)
{
    enum { LOOK_EVERY_MS = 50 };
    if (!is_set(set) || !out)
        return INVALID_ARGUMENT;
    uint64_t until = call->started + timeout_ms * 1000000ull;
    for (;;) {
        int code = look_for_event(call->sim, set, out);
        uint64_t now = clock_ns();
        if (code != TIMEOUT || now >= until)
            return code;
        uint64_t left_us = (until - now) / 1000 + 1;
        sleep_us(left_us < LOOK_EVERY_MS * 1000 ? left_us : LOOK_EVERY_MS * 1000);
    }
}

static int wait_without_instances(const struct call *call, struct event_set *set,
                                  struct event_data *out, unsigned timeout_ms)
{
    struct event_data data;
    int code = out ? wait_for_event(call, set, &data, timeout_ms) : INVALID_ARGUMENT;
    if (code == SUCCESS)
        memcpy(out, &data, offsetof(struct event_data, gpu_instance));
    return code;
}

int nvmlEventSetWait(struct event_set *set, struct event_data *out, unsigned timeout_ms)
{
    ENTER_SYSTEM(nvmlEventSetWait);
    return wait_without_instances(&call, set, out, timeout_ms);
}

int nvmlEventSetWait_v2(struct event_set *set, struct event_data *out, unsigned timeout_ms)
{
    ENTER_SYSTEM(nvmlEventSetWait_v2);
    return wait_for_event(&call, set, out, timeout_ms);
}
