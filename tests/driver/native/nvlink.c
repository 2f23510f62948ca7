/* NVLink, link by link. */

#include "sim.h"

#include <stdio.h>

enum { MOST_LINKS = 18 };

int check_link(const struct call *call, unsigned link)
{
    double links;
    if (link >= MOST_LINKS)
        return INVALID_ARGUMENT;
    if (read_number(call, METRIC_nvlink_count, &links))
        return NOT_SUPPORTED;
    return link < links ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkState(nvml_device device, unsigned link, unsigned *active)
{
    ENTER(nvmlDeviceGetNvLinkState, device, CARD);
    unsigned down;
    if (!active)
        return INVALID_ARGUMENT;
    int code = check_link(&call, link);
    code = code ? code : give_u32(&call, METRIC_nvlink_down, &down);
    if (code == SUCCESS)
        *active = !(down >> link & 1);
    return code;
}

int nvmlDeviceGetNvLinkVersion(nvml_device device, unsigned link, unsigned *version)
{
    ENTER(nvmlDeviceGetNvLinkVersion, device, CARD);
    int code = check_link(&call, link);
    return code ? code : give_u32(&call, METRIC_nvlink_version, version);
}

/* The card that a link ends in; NULL for a switch. */
static const struct card *end_of(const struct call *call, unsigned link)
{
    const struct card *ends[CARDS];
    unsigned count = 0, peers;
    if (give_u32(call, METRIC_nvlink_peers, &peers))
        return NULL;
    for (unsigned i = 0; i < call->sim->card_count; i++)
        if (peers >> i & 1 && call->sim->order[i] != call->slot)
            ends[count++] = &call->sim->cards[call->sim->order[i]];
    return count ? ends[link % count] : NULL;
}

/* Links end in one switch, which is how an HGX board looks, if the card has no peers. */
int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device device, unsigned link, struct pci_info_v3 *out)
{
    ENTER(nvmlDeviceGetNvLinkRemotePciInfo_v2, device, CARD);
    if (!out)
        return INVALID_ARGUMENT;
    int code = check_link(&call, link);
    if (code)
        return code;
    const struct card *end = end_of(&call, link);
    struct bus_address at = end ? address_of(end) : (struct bus_address){.bus = 0xFE};
    *out = (struct pci_info_v3){.domain = at.domain, .bus = at.bus, .device = at.device};
    snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", at.domain, at.bus, at.device);
    snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%04X:%02X:%02X.0", at.domain & 0xFFFF,
             at.bus & 0xFF, at.device & 0xFF);
    return SUCCESS;
}
