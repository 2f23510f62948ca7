/* Memory errors, and what was done about them. */

#include "sim.h"

static const enum metric_id ecc_totals[2][2] = {
    {METRIC_ecc_corrected_volatile, METRIC_ecc_corrected_aggregate},
    {METRIC_ecc_uncorrected_volatile, METRIC_ecc_uncorrected_aggregate},
};

static int give_ecc(const struct call *call, unsigned type, unsigned counter, uint64_t *out)
{
    if (type > 1 || counter > 1)
        return INVALID_ARGUMENT;
    if (call->card->metrics[METRIC_ecc_mode].base != 1)
        return NOT_SUPPORTED;
    return give_u64(call, ecc_totals[type][counter], out);
}

int nvmlDeviceGetTotalEccErrors(nvml_device device, unsigned type, unsigned counter,
                                uint64_t *count)
{
    ENTER(nvmlDeviceGetTotalEccErrors, device, CARD);
    return give_ecc(&call, type, counter, count);
}

/* Every simulated error is one of the device memory; the other places are sound. */
int nvmlDeviceGetMemoryErrorCounter(nvml_device device, unsigned type, unsigned counter,
                                    unsigned place, uint64_t *count)
{
    ENTER(nvmlDeviceGetMemoryErrorCounter, device, CARD);
    enum { DEVICE_MEMORY = 2, PLACES = 8 };
    if (place >= PLACES)
        return INVALID_ARGUMENT;
    int code = give_ecc(&call, type, counter, count);
    if (code == SUCCESS && place != DEVICE_MEMORY)
        *count = 0;
    return code;
}

int nvmlDeviceGetRemappedRows(nvml_device device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed)
{
    ENTER(nvmlDeviceGetRemappedRows, device, CARD);
    int code = give_pair(&call, METRIC_remapped_corrected, METRIC_remapped_uncorrected, corrected,
                         uncorrected);
    return code
               ? code
               : give_pair(&call, METRIC_remapped_pending, METRIC_remapped_failed, pending, failed);
}

static int list_retired(const struct call *call, unsigned cause, unsigned *count,
                        uint64_t *addresses, uint64_t *times)
{
    static const enum metric_id causes[] = {METRIC_retired_single_bit, METRIC_retired_double_bit};
    unsigned pages;
    if (!count)
        return INVALID_ARGUMENT;
    int code = give_chosen(call, causes, 2, cause, &pages);
    if (code)
        return code;
    unsigned room = *count;
    *count = pages;
    if (room < pages)
        return INSUFFICIENT_SIZE;
    if (pages && !addresses)
        return INVALID_ARGUMENT;
    for (unsigned i = 0; i < pages; i++) {
        addresses[i] = 0x1000u * (i + 1);
        if (times)
            times[i] = call->sim->started_wall_us;
    }
    return SUCCESS;
}

int nvmlDeviceGetRetiredPages(nvml_device device, unsigned cause, unsigned *count,
                              uint64_t *addresses)
{
    ENTER(nvmlDeviceGetRetiredPages, device, CARD);
    return list_retired(&call, cause, count, addresses, NULL);
}

int nvmlDeviceGetRetiredPages_v2(nvml_device device, unsigned cause, unsigned *count,
                                 uint64_t *addresses, uint64_t *times)
{
    ENTER(nvmlDeviceGetRetiredPages_v2, device, CARD);
    return list_retired(&call, cause, count, addresses, times);
}
