/* plasmon-store without its link to the head: what would be reported goes to standard error as lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/log.h"
#include "store/daemon.h"
#include "store/process.h"

static plasmon_status_t start(void *user, const char *node, const char *store_socket,
                              uint32_t devices, uint64_t memory, uint64_t *session)
{
    (void)memory;
    (void)session;
    (void)user;
    (void)fprintf(stderr, "up: node %s devices %u socket %s\n", node, devices,
                  store_socket[0] != '\0' ? store_socket : "-");
    return PLASMON_OK;
}

static void worker_down(void *user, const struct store_uplink_down *down)
{
    (void)user;
    (void)fprintf(stderr, "down: device %u incarnation %u status %d quarantined %d: %s\n",
                  down->host_device, down->incarnation, (int)down->wait_status,
                  down->quarantined, down->text);
}

static void give_fd(void *user, int fd)
{
    (void)user;
    (void)fd;
}

/* FAKE_HEAD=slow: there is a head that never answers. */
static bool leave(void *user, uint32_t deadline_ms)
{
    const char *head = getenv("FAKE_HEAD");

    (void)user;
    (void)deadline_ms;
    return head != NULL && strcmp(head, "slow") == 0;
}

static void ending(void *user)
{
    (void)user;
}

static enum store_uplink_event next(void *user, uint32_t *out_host_device,
                                    uint32_t *out_incarnation)
{
    (void)user;
    *out_host_device = 0;
    *out_incarnation = 0;
    return STORE_UPLINK_NONE;
}

int main(int argc, char **argv)
{
    struct store_options options;
    struct store_uplink uplink = {.start       = start,
                                  .worker_down = worker_down,
                                  .give_fd     = give_fd,
                                  .leave       = leave,
                                  .ending      = ending,
                                  .next        = next};
    struct pl_err err;

    if (store_options_parse(argc, argv, &options, &err) != PLASMON_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 2;
    }
    store_process_prepare(&options);
    pl_log_set_level(PL_LOG_DEBUG);
    pl_log_set_sink(pl_log_stderr, NULL);
    uplink.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return store_daemon_run(&options, "", &uplink);
}
