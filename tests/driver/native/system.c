/* The system, and how its cards are found. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"

const char *nvmlErrorString(int code)
{
    static const struct {
        int code;
        const char *words;
    } errors[] = {
        {SUCCESS, "Success"},
        {UNINITIALIZED, "Uninitialized"},
        {INVALID_ARGUMENT, "Invalid Argument"},
        {NOT_SUPPORTED, "Not Supported"},
        {4, "Insufficient Permissions"},
        {NOT_FOUND, "Not Found"},
        {INSUFFICIENT_SIZE, "Insufficient Size"},
        {DRIVER_NOT_LOADED, "Driver Not Loaded"},
        {TIMEOUT, "Timeout"},
        {12, "NVML Shared Library Not Found"},
        {13, "Function Not Found"},
        {GPU_IS_LOST, "GPU is lost"},
        {16, "GPU requires reset"},
        {18, "Driver/library version mismatch"},
        {19, "In use by another client"},
        {20, "Insufficient Memory"},
        {21, "No data"},
        {23, "Insufficient Resources"},
        {ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
        {27, "Not Ready"},
    };
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code)
            return errors[i].words;
    return "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *text, unsigned length)
{
    ENTER_SYSTEM(nvmlSystemGetDriverVersion);
    return give_text(call.sim->driver_version, text, length);
}

/* The library knows its own version without a driver: that is how nvidia-smi names it when the two
 * disagree. */
int nvmlSystemGetNVMLVersion(char *text, unsigned length)
{
    ENTER_EARLY(nvmlSystemGetNVMLVersion);
    return give_text(call.sim->nvml_version, text, length);
}

static int give_cuda_version(const struct call *call, int *version)
{
    if (!version)
        return INVALID_ARGUMENT;
    *version = (int)call->sim->cuda_version;
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *version)
{
    ENTER_SYSTEM(nvmlSystemGetCudaDriverVersion);
    return give_cuda_version(&call, version);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    ENTER_SYSTEM(nvmlSystemGetCudaDriverVersion_v2);
    return give_cuda_version(&call, version);
}

int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    ENTER_SYSTEM(nvmlSystemGetProcessName);
    char link[32], path[TEXT_SIZE];
    snprintf(link, sizeof link, "/proc/%u/exe", pid);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0)
        return NOT_FOUND;
    path[size] = 0;
    return give_text(path, name, length);
}

/* From here on the call is one about this card: its faults and its counters. */
static int give_card(struct call *call, enum function function, unsigned slot, unsigned mig_number,
                     nvml_device *out)
{
    call->slot = slot;
    call->card = &call->sim->cards[slot];
    int code = suffer(call, function);
    if (code == SUCCESS)
        *out = make_handle(call->sim, slot, mig_number);
    return code;
}

static int count_cards(const struct call *call, unsigned *count)
{
    if (!count)
        return INVALID_ARGUMENT;
    *count = call->sim->card_count;
    return SUCCESS;
}

int nvmlDeviceGetCount(unsigned *count)
{
    ENTER_SYSTEM(nvmlDeviceGetCount);
    return count_cards(&call, count);
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    ENTER_SYSTEM(nvmlDeviceGetCount_v2);
    return count_cards(&call, count);
}

static int card_by_index(struct call *call, enum function function, unsigned index,
                         nvml_device *out)
{
    if (!out || index >= call->sim->card_count)
        return INVALID_ARGUMENT;
    return give_card(call, function, call->sim->order[index], 0, out);
}

int nvmlDeviceGetHandleByIndex(unsigned index, nvml_device *device)
{
    ENTER_SYSTEM(nvmlDeviceGetHandleByIndex);
    return card_by_index(&call, FUNCTION_nvmlDeviceGetHandleByIndex, index, device);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device)
{
    ENTER_SYSTEM(nvmlDeviceGetHandleByIndex_v2);
    return card_by_index(&call, FUNCTION_nvmlDeviceGetHandleByIndex_v2, index, device);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *device)
{
    ENTER_SYSTEM(nvmlDeviceGetHandleByUUID);
    if (!uuid || !device)
        return INVALID_ARGUMENT;
    for (unsigned i = 0; i < call.sim->card_count; i++) {
        unsigned slot = call.sim->order[i];
        const struct card *card = &call.sim->cards[slot];
        if (strcmp(uuid, card->uuid) == 0)
            return give_card(&call, FUNCTION_nvmlDeviceGetHandleByUUID, slot, 0, device);
        for (unsigned m = 0; m < MIGS; m++)
            if (card->migs[m].present && strcmp(uuid, card->migs[m].uuid) == 0)
                return give_card(&call, FUNCTION_nvmlDeviceGetHandleByUUID, slot, m + 1, device);
    }
    return NOT_FOUND;
}

int nvmlDeviceGetHandleBySerial(const char *serial, nvml_device *device)
{
    ENTER_SYSTEM(nvmlDeviceGetHandleBySerial);
    if (!serial || !*serial || !device)
        return INVALID_ARGUMENT;
    for (unsigned i = 0; i < call.sim->card_count; i++)
        if (strcmp(serial, call.sim->cards[call.sim->order[i]].serial) == 0)
            return give_card(&call, FUNCTION_nvmlDeviceGetHandleBySerial, call.sim->order[i], 0,
                             device);
    return NOT_FOUND;
}

/* Both "domain:bus:device.function" and "bus:device.function" are in use. */
static bool parse_bus_id(const char *text, struct bus_address *out)
{
    if (sscanf(text, "%x:%x:%x", &out->domain, &out->bus, &out->device) == 3)
        return true;
    out->domain = 0;
    return sscanf(text, "%x:%x", &out->bus, &out->device) == 2;
}

static int card_by_bus_id(struct call *call, enum function function, const char *bus_id,
                          nvml_device *out)
{
    struct bus_address wanted;
    if (!bus_id || !out || !parse_bus_id(bus_id, &wanted))
        return INVALID_ARGUMENT;
    for (unsigned i = 0; i < call->sim->card_count; i++) {
        unsigned slot = call->sim->order[i];
        struct bus_address at = address_of(&call->sim->cards[slot]);
        if (at.domain == wanted.domain && at.bus == wanted.bus && at.device == wanted.device)
            return give_card(call, function, slot, 0, out);
    }
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvml_device *device)
{
    ENTER_SYSTEM(nvmlDeviceGetHandleByPciBusId);
    return card_by_bus_id(&call, FUNCTION_nvmlDeviceGetHandleByPciBusId, bus_id, device);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvml_device *device)
{
    ENTER_SYSTEM(nvmlDeviceGetHandleByPciBusId_v2);
    return card_by_bus_id(&call, FUNCTION_nvmlDeviceGetHandleByPciBusId_v2, bus_id, device);
}
