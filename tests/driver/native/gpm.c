/* GPM: how much of a card worked between two samples of its counters (Hopper and later). */

#include <math.h>
#include <stdlib.h>

#include "sim.h"

enum { NO_DATA = 21, WHOLE_CARD = UINT32_MAX };

static const uint64_t LEAST_US = 100000; /* samples closer than this are of no use (DCGM#310) */

static const struct {
    unsigned id; /* nvmlGpmMetricId_t */
    enum metric_id metric;
} known[] = {
    {2, METRIC_sm_active},    {3, METRIC_sm_occupancy}, {5, METRIC_tensor_active},
    {10, METRIC_dram_active}, {11, METRIC_fp64_active}, {12, METRIC_fp32_active},
    {13, METRIC_fp16_active},
};
enum { KNOWN = sizeof known / sizeof known[0] };

struct gpm_sample {
    unsigned slot, gpu_instance;
    uint64_t taken_us;
    double shares[KNOWN]; /* percent; NaN: the card does not tell it */
};

struct gpm_metric {
    unsigned id;
    int code;
    double value;
    const char *short_name, *long_name, *unit;
};

struct gpm_metrics {
    unsigned version, count;
    struct gpm_sample *sample1, *sample2;
    struct gpm_metric metrics[];
};

struct gpm_support {
    unsigned version, is_supported;
};

int nvmlGpmQueryDeviceSupport(nvml_device device, struct gpm_support *out)
{
    ENTER(nvmlGpmQueryDeviceSupport, device, ANY);
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != 1)
        return ARGUMENT_VERSION_MISMATCH;
    double share;
    out->is_supported = read_number(&call, METRIC_sm_active, &share) == SUCCESS;
    return SUCCESS;
}

int nvmlGpmSampleAlloc(struct gpm_sample **out)
{
    ENTER_SYSTEM(nvmlGpmSampleAlloc);
    if (!out)
        return INVALID_ARGUMENT;
    *out = calloc(1, sizeof **out);
    return *out ? SUCCESS : UNKNOWN;
}

int nvmlGpmSampleFree(struct gpm_sample *sample)
{
    ENTER_SYSTEM(nvmlGpmSampleFree);
    if (!sample)
        return INVALID_ARGUMENT;
    free(sample);
    return SUCCESS;
}

static int take(const struct call *call, unsigned gpu_instance, struct gpm_sample *out)
{
    double share;
    if (!out)
        return INVALID_ARGUMENT;
    if (read_number(call, METRIC_sm_active, &share) != SUCCESS)
        return NOT_SUPPORTED;
    for (int i = 0; i < KNOWN; i++)
        out->shares[i] = read_number(call, known[i].metric, &share) == SUCCESS ? share : NAN;
    out->slot = call->slot;
    out->gpu_instance = gpu_instance;
    out->taken_us = wall_us(call);
    return SUCCESS;
}

int nvmlGpmSampleGet(nvml_device device, struct gpm_sample *sample)
{
    ENTER(nvmlGpmSampleGet, device, CARD);
    return take(&call, WHOLE_CARD, sample);
}

int nvmlGpmMigSampleGet(nvml_device device, unsigned gpu_instance, struct gpm_sample *sample)
{
    ENTER(nvmlGpmMigSampleGet, device, PARENT);
    for (int i = 0; i < MIGS; i++) {
        const struct mig *mig = &call.card->migs[i];
        if (!mig->present || mig->gpu_instance != gpu_instance)
            continue;
        int code = take(&call, gpu_instance, sample);
        for (int metric = 0; code == SUCCESS && metric < KNOWN; metric++)
            sample->shares[metric] = mig->shares[metric];
        return code;
    }
    return INVALID_ARGUMENT;
}

int nvmlGpmMetricsGet(struct gpm_metrics *out)
{
    ENTER_SYSTEM(nvmlGpmMetricsGet);
    if (!out || !out->sample1 || !out->sample2)
        return INVALID_ARGUMENT;
    if (out->version != 1)
        return ARGUMENT_VERSION_MISMATCH;
    const struct gpm_sample *before = out->sample1, *after = out->sample2;
    bool same = before->slot == after->slot && before->gpu_instance == after->gpu_instance;
    if (!same || before->taken_us == 0)
        return INVALID_ARGUMENT;
    bool too_close = after->taken_us < before->taken_us + LEAST_US;
    for (unsigned i = 0; i < out->count; i++) {
        struct gpm_metric *metric = &out->metrics[i];
        metric->code = NOT_SUPPORTED;
        for (int j = 0; j < KNOWN; j++) {
            if (known[j].id != metric->id || isnan(before->shares[j]) || isnan(after->shares[j]))
                continue;
            metric->code = too_close ? NO_DATA : SUCCESS;
            metric->value = (before->shares[j] + after->shares[j]) / 2;
        }
    }
    return SUCCESS;
}
