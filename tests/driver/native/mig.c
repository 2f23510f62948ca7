/* MIG instances. */

#include "sim.h"

int nvmlDeviceGetMaxMigDeviceCount(nvml_device device, unsigned *count)
{
    ENTER(nvmlDeviceGetMaxMigDeviceCount, device, ANY);
    return give_u32(&call, METRIC_mig_count_max, count);
}

int nvmlDeviceGetMigDeviceHandleByIndex(nvml_device device, unsigned index, nvml_device *child)
{
    ENTER(nvmlDeviceGetMigDeviceHandleByIndex, device, PARENT);
    if (!child || index >= MIGS)
        return INVALID_ARGUMENT;
    if (!call.card->migs[index].present)
        return NOT_FOUND;
    *child = make_handle(call.sim, call.slot, index + 1);
    return SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvml_device device, nvml_device *parent)
{
    ENTER(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, device, CHILD);
    if (!parent)
        return INVALID_ARGUMENT;
    *parent = make_handle(call.sim, call.slot, 0);
    return SUCCESS;
}

int nvmlDeviceIsMigDeviceHandle(nvml_device device, unsigned *is_child)
{
    ENTER(nvmlDeviceIsMigDeviceHandle, device, ANY);
    if (!is_child)
        return INVALID_ARGUMENT;
    *is_child = call.mig != NULL;
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(nvml_device device, unsigned *id)
{
    ENTER(nvmlDeviceGetGpuInstanceId, device, CHILD);
    if (!id)
        return INVALID_ARGUMENT;
    *id = call.mig->gpu_instance;
    return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(nvml_device device, unsigned *id)
{
    ENTER(nvmlDeviceGetComputeInstanceId, device, CHILD);
    if (!id)
        return INVALID_ARGUMENT;
    *id = call.mig->compute_instance;
    return SUCCESS;
}

int nvmlDeviceGetAttributes_v2(nvml_device device, struct attributes *out)
{
    ENTER(nvmlDeviceGetAttributes_v2, device, CHILD);
    if (!out)
        return INVALID_ARGUMENT;
    *out = call.mig->attributes;
    return SUCCESS;
}
