/* What one card says of itself. */

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "sim.h"

#define NUMBER(function, kinds, metric)                 \
    int function(nvml_device device, unsigned *value)   \
    {                                                   \
        ENTER(function, device, kinds);                 \
        return give_u32(&call, METRIC_##metric, value); \
    }

#define NUMBER64(function, kinds, metric)               \
    int function(nvml_device device, uint64_t *value)   \
    {                                                   \
        ENTER(function, device, kinds);                 \
        return give_u64(&call, METRIC_##metric, value); \
    }

#define TEXT(function, kinds, field)                              \
    int function(nvml_device device, char *text, unsigned length) \
    {                                                             \
        ENTER(function, device, kinds);                           \
        return give_text(call.card->field, text, length);         \
    }

#define PAIR(function, kinds, metric_a, metric_b)                            \
    int function(nvml_device device, unsigned *a, unsigned *b)               \
    {                                                                        \
        ENTER(function, device, kinds);                                      \
        return give_pair(&call, METRIC_##metric_a, METRIC_##metric_b, a, b); \
    }

NUMBER(nvmlDeviceGetMinorNumber, CARD, minor_number)
NUMBER(nvmlDeviceGetBrand, ANY, brand)
NUMBER(nvmlDeviceGetArchitecture, ANY, architecture)
NUMBER(nvmlDeviceGetBoardId, CARD, board_id)
NUMBER(nvmlDeviceGetNumGpuCores, CARD, gpu_cores)
NUMBER(nvmlDeviceGetBusType, CARD, bus_type)
NUMBER(nvmlDeviceGetMemoryBusWidth, CARD, memory_bus_width)
NUMBER(nvmlDeviceGetPowerUsage, CARD, power_usage)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, CARD, power_limit_enforced)
NUMBER(nvmlDeviceGetPowerManagementLimit, CARD, power_limit)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, CARD, power_limit_default)
NUMBER(nvmlDeviceGetPowerManagementMode, CARD, power_management_mode)
NUMBER(nvmlDeviceGetPerformanceState, CARD, pstate)
NUMBER(nvmlDeviceGetPowerState, CARD, pstate)
NUMBER(nvmlDeviceGetNumFans, CARD, fan_count)
NUMBER(nvmlDeviceGetFanSpeed, CARD, fan_speed)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, CARD, pcie_generation)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, CARD, pcie_width)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, CARD, pcie_generation_max)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, CARD, pcie_width_max)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, CARD, pcie_generation_gpu_max)
NUMBER(nvmlDeviceGetPcieReplayCounter, CARD, pcie_replays)
NUMBER(nvmlDeviceGetPersistenceMode, CARD, persistence_mode)
NUMBER(nvmlDeviceGetComputeMode, CARD, compute_mode)
NUMBER(nvmlDeviceGetDisplayMode, CARD, display_mode)
NUMBER(nvmlDeviceGetDisplayActive, CARD, display_active)
NUMBER(nvmlDeviceGetVirtualizationMode, CARD, virtualization_mode)
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, CARD, retired_pending)

NUMBER64(nvmlDeviceGetCurrentClocksThrottleReasons, CARD, clock_event_reasons)
NUMBER64(nvmlDeviceGetCurrentClocksEventReasons, CARD, clock_event_reasons)
NUMBER64(nvmlDeviceGetSupportedClocksThrottleReasons, CARD, clock_event_reasons_supported)
NUMBER64(nvmlDeviceGetSupportedClocksEventReasons, CARD, clock_event_reasons_supported)
NUMBER64(nvmlDeviceGetSupportedEventTypes, CARD, event_types)

TEXT(nvmlDeviceGetSerial, CARD, serial)
TEXT(nvmlDeviceGetVbiosVersion, CARD, vbios)

PAIR(nvmlDeviceGetCudaComputeCapability, ANY, compute_capability_major, compute_capability_minor)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, CARD, power_limit_min, power_limit_max)
PAIR(nvmlDeviceGetEccMode, CARD, ecc_mode, ecc_mode_pending)
PAIR(nvmlDeviceGetMigMode, CARD, mig_mode, mig_mode_pending)
PAIR(nvmlDeviceGetEncoderUtilization, WHOLE, utilization_encoder, sampling_period_us)
PAIR(nvmlDeviceGetDecoderUtilization, WHOLE, utilization_decoder, sampling_period_us)
PAIR(nvmlDeviceGetJpgUtilization, WHOLE, utilization_jpeg, sampling_period_us)
PAIR(nvmlDeviceGetOfaUtilization, WHOLE, utilization_ofa, sampling_period_us)

int nvmlDeviceGetIndex(nvml_device device, unsigned *index)
{
    ENTER(nvmlDeviceGetIndex, device, CARD);
    if (!index)
        return INVALID_ARGUMENT;
    for (unsigned i = 0; i < call.sim->card_count; i++)
        if (call.sim->order[i] == call.slot) {
            *index = i;
            return SUCCESS;
        }
    return UNKNOWN;
}

int nvmlDeviceGetName(nvml_device device, char *text, unsigned length)
{
    ENTER(nvmlDeviceGetName, device, ANY);
    return give_text(call.mig ? call.mig->name : call.card->name, text, length);
}

int nvmlDeviceGetUUID(nvml_device device, char *text, unsigned length)
{
    ENTER(nvmlDeviceGetUUID, device, ANY);
    return give_text(call.mig ? call.mig->uuid : call.card->uuid, text, length);
}

struct pci_info_v2 {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    unsigned reserved[4];
};

static int give_pci_info(const struct call *call, struct pci_info_v3 *out)
{
    if (!out)
        return INVALID_ARGUMENT;
    struct bus_address at = address_of(call->card);
    out->domain = at.domain;
    out->bus = at.bus;
    out->device = at.device;
    snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", at.domain, at.bus, at.device);
    snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%04X:%02X:%02X.0", at.domain & 0xFFFF,
             at.bus & 0xFF, at.device & 0xFF);
    return give_pair(call, METRIC_pci_device_id, METRIC_pci_subsystem_id, &out->device_id,
                     &out->subsystem_id);
}

static int give_pci_info_v2(const struct call *call, struct pci_info_v2 *out)
{
    struct pci_info_v3 info;
    if (!out)
        return INVALID_ARGUMENT;
    int code = give_pci_info(call, &info);
    if (code == SUCCESS)
        memcpy(out, &info, offsetof(struct pci_info_v3, bus_id));
    return code;
}

int nvmlDeviceGetPciInfo(nvml_device device, struct pci_info_v2 *out)
{
    ENTER(nvmlDeviceGetPciInfo, device, ANY);
    return give_pci_info_v2(&call, out);
}

int nvmlDeviceGetPciInfo_v2(nvml_device device, struct pci_info_v2 *out)
{
    ENTER(nvmlDeviceGetPciInfo_v2, device, ANY);
    return give_pci_info_v2(&call, out);
}

int nvmlDeviceGetPciInfo_v3(nvml_device device, struct pci_info_v3 *out)
{
    ENTER(nvmlDeviceGetPciInfo_v3, device, ANY);
    return give_pci_info(&call, out);
}

struct memory_v1 {
    uint64_t total, free, used;
};

struct memory_v2 {
    unsigned version;
    uint64_t total, reserved, free, used;
};

static uint64_t left_of(uint64_t total, uint64_t taken)
{
    return taken < total ? total - taken : 0;
}

static int measure_memory(const struct call *call, struct memory_v2 *out)
{
    if (call->mig) {
        out->total = call->mig->memory_total;
        out->reserved = call->mig->memory_reserved;
        out->used = call->mig->memory_used;
    } else {
        int code = give_u64(call, METRIC_memory_total, &out->total);
        code = code ? code : give_u64(call, METRIC_memory_reserved, &out->reserved);
        code = code ? code : give_u64(call, METRIC_memory_used, &out->used);
        if (code)
            return code;
    }
    out->free = left_of(out->total, out->used + out->reserved);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct memory_v2 *out)
{
    ENTER(nvmlDeviceGetMemoryInfo_v2, device, ANY);
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != version_word(sizeof *out, 2))
        return ARGUMENT_VERSION_MISMATCH;
    return measure_memory(&call, out);
}

/* The first version knows no reserved memory and counts it as used. */
int nvmlDeviceGetMemoryInfo(nvml_device device, struct memory_v1 *out)
{
    ENTER(nvmlDeviceGetMemoryInfo, device, ANY);
    if (!out)
        return INVALID_ARGUMENT;
    struct memory_v2 memory;
    int code = measure_memory(&call, &memory);
    if (code == SUCCESS)
        *out = (struct memory_v1){memory.total, memory.free, memory.used + memory.reserved};
    return code;
}

int nvmlDeviceGetBAR1MemoryInfo(nvml_device device, struct memory_v1 *out)
{
    ENTER(nvmlDeviceGetBAR1MemoryInfo, device, ANY);
    if (!out)
        return INVALID_ARGUMENT;
    int code = give_u64(&call, METRIC_bar1_total, &out->total);
    code = code ? code : give_u64(&call, METRIC_bar1_used, &out->used);
    if (code == SUCCESS)
        out->free = left_of(out->total, out->used);
    return code;
}

struct utilization {
    unsigned gpu, memory;
};

int nvmlDeviceGetUtilizationRates(nvml_device device, struct utilization *out)
{
    ENTER(nvmlDeviceGetUtilizationRates, device, WHOLE);
    if (!out)
        return INVALID_ARGUMENT;
    return give_pair(&call, METRIC_utilization_gpu, METRIC_utilization_memory, &out->gpu,
                     &out->memory);
}

int nvmlDeviceGetTemperature(nvml_device device, unsigned sensor, unsigned *value)
{
    ENTER(nvmlDeviceGetTemperature, device, CARD);
    return sensor == 0 ? give_u32(&call, METRIC_temperature, value) : INVALID_ARGUMENT;
}

struct temperature_v1 {
    unsigned version, sensor;
    int value;
};

int nvmlDeviceGetTemperatureV(nvml_device device, struct temperature_v1 *out)
{
    ENTER(nvmlDeviceGetTemperatureV, device, CARD);
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != version_word(sizeof *out, 1))
        return ARGUMENT_VERSION_MISMATCH;
    return out->sensor == 0 ? give_i32(&call, METRIC_temperature, &out->value) : INVALID_ARGUMENT;
}

struct margin_v1 {
    unsigned version;
    int value;
};

int nvmlDeviceGetMarginTemperature(nvml_device device, struct margin_v1 *out)
{
    ENTER(nvmlDeviceGetMarginTemperature, device, CARD);
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != version_word(sizeof *out, 1))
        return ARGUMENT_VERSION_MISMATCH;
    return give_i32(&call, METRIC_temperature_margin, &out->value);
}

#define CHOSEN(function, kinds, choices)                                                    \
    int function(nvml_device device, unsigned which, unsigned *value)                       \
    {                                                                                       \
        ENTER(function, device, kinds);                                                     \
        return give_chosen(&call, choices, sizeof choices / sizeof *choices, which, value); \
    }

static const enum metric_id thresholds[] = {
    METRIC_temperature_shutdown, METRIC_temperature_slowdown, METRIC_temperature_memory_max,
    METRIC_temperature_gpu_max,  METRIC_temperature_acoustic, METRIC_temperature_acoustic,
    METRIC_temperature_acoustic,
};
static const enum metric_id clocks[] = {METRIC_clock_graphics, METRIC_clock_sm, METRIC_clock_memory,
                                        METRIC_clock_video};
static const enum metric_id clock_limits[] = {METRIC_clock_graphics_max, METRIC_clock_sm_max,
                                              METRIC_clock_memory_max, METRIC_clock_video_max};
static const enum metric_id clock_targets[] = {
    METRIC_clock_graphics_target, METRIC_clock_graphics_target, METRIC_clock_memory_target};
static const enum metric_id pcie_rates[] = {METRIC_pcie_tx, METRIC_pcie_rx};

CHOSEN(nvmlDeviceGetTemperatureThreshold, CARD, thresholds)
CHOSEN(nvmlDeviceGetClockInfo, CARD, clocks)
CHOSEN(nvmlDeviceGetMaxClockInfo, CARD, clock_limits)
CHOSEN(nvmlDeviceGetMaxCustomerBoostClock, CARD, clock_limits)
CHOSEN(nvmlDeviceGetApplicationsClock, CARD, clock_targets)
CHOSEN(nvmlDeviceGetDefaultApplicationsClock, CARD, clock_targets)
CHOSEN(nvmlDeviceGetPcieThroughput, WHOLE, pcie_rates) /* Driver gives it its 20 ms */

int nvmlDeviceGetClock(nvml_device device, unsigned type, unsigned which, unsigned *value)
{
    ENTER(nvmlDeviceGetClock, device, CARD);
    switch (which) {
    case 0:
        return give_chosen(&call, clocks, 4, type, value);
    case 1:
    case 2:
        return give_chosen(&call, clock_targets, 3, type, value);
    case 3:
        return give_chosen(&call, clock_limits, 4, type, value);
    default:
        return INVALID_ARGUMENT;
    }
}

int nvmlDeviceGetTotalEnergyConsumption(nvml_device device, uint64_t *millijoules)
{
    ENTER(nvmlDeviceGetTotalEnergyConsumption, device, CARD);
    if (!millijoules)
        return INVALID_ARGUMENT;
    double counted, consumed;
    int code = read_number(&call, METRIC_energy_counter, &counted);
    code = code ? code : read_integral(&call, METRIC_power_usage, &consumed);
    if (code == SUCCESS)
        *millijoules = (uint64_t)consumed;
    return code;
}

int nvmlDeviceGetFanSpeed_v2(nvml_device device, unsigned fan, unsigned *value)
{
    ENTER(nvmlDeviceGetFanSpeed_v2, device, CARD);
    double fans;
    if (read_number(&call, METRIC_fan_count, &fans))
        return NOT_SUPPORTED;
    return fan < fans ? give_u32(&call, METRIC_fan_speed, value) : INVALID_ARGUMENT;
}

/* The further arguments are left where the caller put them. */
#define UNSUPPORTED(function)         \
    int function(nvml_device device)  \
    {                                 \
        ENTER(function, device, ANY); \
        return NOT_SUPPORTED;         \
    }

UNSUPPORTED(nvmlDeviceGetAccountingMode)
UNSUPPORTED(nvmlDeviceGetAccountingStats)
UNSUPPORTED(nvmlDeviceGetAccountingPids)
UNSUPPORTED(nvmlDeviceGetAccountingBufferSize)
UNSUPPORTED(nvmlDeviceGetBoardPartNumber)
UNSUPPORTED(nvmlDeviceGetConfComputeMemSizeInfo)
UNSUPPORTED(nvmlDeviceGetDriverModel)
UNSUPPORTED(nvmlDeviceGetDriverModel_v2)
UNSUPPORTED(nvmlDeviceGetEncoderSessions)
UNSUPPORTED(nvmlDeviceGetEncoderStats)
UNSUPPORTED(nvmlDeviceGetFanSpeedRPM)
UNSUPPORTED(nvmlDeviceGetRunningProcessDetailList)
UNSUPPORTED(nvmlDeviceGetSamples)
UNSUPPORTED(nvmlDeviceGetViolationStatus)
