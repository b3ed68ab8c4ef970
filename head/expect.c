/*
 * Devices that are expected: the last host with devices is gone, and somebody needs what it took along.
 *
 * What was lost is planned for devices of the same host and of the same kind that nobody has seen
 * yet: new numbers, to which no worker belongs. Launches on them are numbered as on any device that
 * is not connected, nothing is sent, and futures stay open. The wait ends in one of these ways:
 *
 *   its worker comes    from another store of that host. It is that device then, and gets the launches
 *   another one comes   of another host, or in its place one that the plan does not fit: the
 *                       expected device is gone, and what was planned for it is made again
 *                       elsewhere, as for any device that is lost
 *   HEAD_EXPECT_MS      are over: it is gone, and what was planned for it fails with what happened
 *                       to the host
 *
 * So there is no state but devices and launches, which clients, drains, cancels and losses treat as
 * they always do. A host that was being drained was to leave: none of its devices is expected. With
 * nothing lost that somebody needs none is, either: there is no reason to let new work wait.
 */

#include "head/core_int.h"

#include <stdio.h>
#include <string.h>

static bool usable(const struct head_device *device)
{
    return device->joined && !device->gone && !device->draining;
}

static bool some_usable_but(struct head_core *core, const struct head_device *but)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (device != but && usable(device)) {
            return true;
        }
    }
    return false;
}

static void expect(struct head_core *core, const struct head_device *lost)
{
    struct head_device *device =
        head_device_restore(core, lost->host, lost->node, lost->host_device);

    if (device == NULL) {
        return; /* there are no numbers left */
    }
    pl_free(device->name);
    device->name         = head_strdup(lost->name);
    device->death        = head_strdup(lost->death);
    device->kind         = lost->kind;
    device->ordinal      = lost->ordinal;
    device->bytes_total  = lost->bytes_total;
    device->peer_capable = lost->peer_capable;
    device->runs         = lost->runs;
    device->joined       = true;
    device->expected_ms  = core->now_ms + HEAD_EXPECT_MS;
    pl_warn("head",
            "no device is left: what device %u on %s took along waits for another one, at "
            "most %d s; start a store with `plasmon start --address`",
            lost->index, lost->node, HEAD_EXPECT_MS / 1000);
}

void head_expect(struct head_core *core, const struct pl_vec *lost)
{
    const struct head_lineage *lineage = &core->lineage;

    if (core->config.lineage_bytes == 0 ||
        lineage->lost.count + lineage->again.count == 0 || some_usable_but(core, NULL)) {
        return;
    }
    for (size_t i = 0; i < lost->count; i++) {
        expect(core, *(struct head_device *const *)pl_vec_at(lost, i));
    }
}

static void give_up(struct head_core *core, struct head_device *device, const char *why)
{
    char text[512];

    (void)snprintf(text, sizeof(text), "%.300s%s%s",
                   device->death != NULL ? device->death : "",
                   device->death != NULL ? ", and " : "", why);
    head_device_gone(core, device, text);
    if (device->announced) { /* its worker is on its way, and gets another number */
        (void)head_device_restore(core, device->host, device->node, device->host_device);
    }
}

void head_expect_announced(struct head_core *core, const char *host, uint32_t devices)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        if (device->expected_ms == 0 || strcmp(device->host, host) != 0) {
            continue;
        }
        device->announced = device->host_device < devices;
        if (!device->announced && some_usable_but(core, device)) {
            give_up(core, device, "the store that came has fewer devices");
        }
    }
    head_rebuild(core);
}

bool head_expect_fits(const struct head_device *device,
                      const Plasmon__V1__WorkerHello *hello)
{
    return hello->kind == device->kind && hello->bytes_total >= device->bytes_total &&
           hello->peer_capable == device->peer_capable && hello->runs == device->runs &&
           hello->enqueued == 0;
}

void head_expect_replaced(struct head_core *core, struct head_device *device)
{
    device->announced = false; /* this is its worker */
    give_up(core, device, "another kind of device took its place");
}

void head_expect_joined(struct head_core *core, const struct head_device *joined)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        if (device->expected_ms != 0 && strcmp(device->host, joined->host) != 0) {
            give_up(core, device, "a device of another host came first");
        }
    }
}

void head_expect_tick(struct head_core *core)
{
    bool over = false;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);
        char why[64];

        if (device->expected_ms != 0 && core->now_ms >= device->expected_ms) {
            (void)snprintf(why, sizeof(why), "no other device came within %d s",
                           HEAD_EXPECT_MS / 1000);
            give_up(core, device, why);
            over = true;
        }
    }
    if (over) {
        head_rebuild(core);
    }
}

void head_core_restarted(struct head_core *core, uint64_t now_ms)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);

        if (device->expected_ms != 0) {
            device->expected_ms = now_ms + HEAD_EXPECT_MS;
        }
    }
}
