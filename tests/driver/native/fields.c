/* nvmlDeviceGetFieldValues: many numbers by one call. */

#include <math.h>

#include "sim.h"

union value {
    unsigned as_u32;
    uint64_t as_u64;
    int as_i32;
};

struct field_value {
    unsigned id, scope;
    int64_t timestamp, latency_us;
    unsigned type, code;
    union value value;
};

enum value_type { U32 = 1, U64 = 3, I32 = 5 };

/* A rate becomes what has flowed since the driver was loaded; by scope, that is one link's share or
 * all of it. */
enum reading { NOW, FLOWN, FLOWN_BY_LINK };

struct field {
    unsigned id;
    enum metric_id metric;
    enum metric_id gate; /* the card has the field if it has this metric */
    enum value_type type;
    enum reading reading;
    double scale;
};

#define FIELD(id, metric, type) {id, METRIC_##metric, METRIC_##metric, type, NOW, 1}
#define FLOW(id, metric, gate, reading, scale) \
    {id, METRIC_##metric, METRIC_##gate, U64, reading, scale}

static const struct field fields[] = {
    FIELD(1, ecc_mode, U32),
    FIELD(2, ecc_mode_pending, U32),
    FIELD(3, ecc_corrected_volatile, U64),
    FIELD(4, ecc_uncorrected_volatile, U64),
    FIELD(5, ecc_corrected_aggregate, U64),
    FIELD(6, ecc_uncorrected_aggregate, U64),
    FIELD(29, retired_single_bit, U64),
    FIELD(30, retired_double_bit, U64),
    FIELD(31, retired_pending, U64),
    FIELD(52, nvlink_replays, U64),
    FIELD(59, nvlink_recoveries, U64),
    FIELD(82, temperature_memory, U32),
    FLOW(83, power_usage, energy_counter, FLOWN, 1),
    FIELD(91, nvlink_count, U32),
    FIELD(94, pcie_replays, U32),
    FLOW(138, nvlink_tx, nvlink_counters, FLOWN_BY_LINK, 1),
    FLOW(139, nvlink_rx, nvlink_counters, FLOWN_BY_LINK, 1),
    FIELD(142, remapped_corrected, U32),
    FIELD(143, remapped_uncorrected, U32),
    FIELD(144, remapped_pending, U32),
    FIELD(145, remapped_failed, U32),
    FIELD(185, power_usage, U32),
    FIELD(186, power_instant, U32),
    FIELD(187, power_limit_min, U32),
    FIELD(188, power_limit_max, U32),
    FIELD(189, power_limit_default, U32),
    FIELD(190, power_limit_enforced, U32),
    FLOW(191, power_usage, energy_counter, FLOWN, 1),
    FIELD(192, power_limit, U32),
    FIELD(193, tlimit_shutdown, I32),
    FIELD(194, tlimit_slowdown, I32),
    FIELD(195, tlimit_memory_max, I32),
    FIELD(196, tlimit_gpu_max, I32),
    FLOW(197, pcie_tx, pcie_counters, FLOWN, 1000),
    FLOW(198, pcie_rx, pcie_counters, FLOWN, 1000),
    FLOW(202, nvlink_tx, nvlink5_counters, FLOWN_BY_LINK, 1024),
    FLOW(204, nvlink_rx, nvlink5_counters, FLOWN_BY_LINK, 1024),
    FIELD(230, recovery_action, U32),
};

static const struct field *find_field(unsigned id)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].id == id)
            return &fields[i];
    return NULL;
}

static int share_of_link(const struct call *call, unsigned scope, double *share)
{
    double links;
    *share = 1;
    if (scope == UINT32_MAX)
        return SUCCESS;
    int code = check_link(call, scope);
    code = code ? code : read_number(call, METRIC_nvlink_count, &links);
    if (code == SUCCESS)
        *share = 1 / links;
    return code;
}

static int read_field(const struct call *call, const struct field *field, unsigned scope,
                      double *out)
{
    double share = 1, gate;
    int code = read_number(call, field->gate, &gate);
    if (code == SUCCESS && field->reading == FLOWN_BY_LINK)
        code = share_of_link(call, scope, &share);
    if (code)
        return code;
    if (field->reading == NOW)
        return read_number(call, field->metric, out);
    code = read_integral(call, field->metric, out);
    *out = floor(*out * field->scale * share);
    return code;
}

static void put_value(union value *out, enum value_type type, double value)
{
    if (type == U32)
        out->as_u32 = (unsigned)value;
    else if (type == I32)
        out->as_i32 = (int)value;
    else
        out->as_u64 = (uint64_t)value;
}

static int answer(const struct call *call, struct field_value *out)
{
    double value;
    if (out->id < FIELDS && call->card->field_codes[out->id])
        return call->card->field_codes[out->id];
    const struct field *field = find_field(out->id);
    int code = field ? read_field(call, field, out->scope, &value) : NOT_SUPPORTED;
    if (code)
        return code;
    out->type = field->type;
    put_value(&out->value, field->type, value);
    return SUCCESS;
}

static void fill_field(const struct call *call, struct field_value *out)
{
    uint64_t started = clock_ns();
    out->value.as_u64 = 0;
    out->code = (unsigned)answer(call, out);
    out->timestamp = (int64_t)wall_us(call);
    out->latency_us = (int64_t)((clock_ns() - started) / 1000);
}

int nvmlDeviceGetFieldValues(nvml_device device, int count, struct field_value *values)
{
    ENTER(nvmlDeviceGetFieldValues, device, CARD);
    if (!values || count < 1)
        return INVALID_ARGUMENT;
    for (int i = 0; i < count; i++)
        fill_field(&call, &values[i]);
    return SUCCESS;
}
