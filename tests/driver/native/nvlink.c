/* NVLink, link by link. */

#include "sim.h"

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

/* All links of a simulated card end in one switch, which is how an HGX board looks. */
int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device device, unsigned link, struct pci_info_v3 *out)
{
    ENTER(nvmlDeviceGetNvLinkRemotePciInfo_v2, device, CARD);
    if (!out)
        return INVALID_ARGUMENT;
    int code = check_link(&call, link);
    if (code == SUCCESS)
        *out = (struct pci_info_v3){
            .bus_id_legacy = "0000:FE:00.0", .bus = 0xFE, .bus_id = "00000000:FE:00.0"};
    return code;
}
