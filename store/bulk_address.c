/*
 * On which address of this machine its workers take objects of other machines. Nothing is sent to
 * find out: connecting a datagram socket asks the routing table only.
 */
#include "store/bulk_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/ports.h"

/* Stands for "any machine elsewhere": a documentation address, which nobody has. */
#define ELSEWHERE "192.0.2.1"

/* The address that packets to `host` leave from. */
static bool address_towards(const char *host, char *out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    struct addrinfo *found;
    struct sockaddr_storage own;
    socklen_t bytes = sizeof(own);
    bool ok         = false;
    int fd;

    if (getaddrinfo(host, "9", &hints, &found) != 0) {
        return false;
    }
    fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
        getsockname(fd, (struct sockaddr *)&own, &bytes) == 0) {
        ok = getnameinfo((struct sockaddr *)&own, bytes, out, STORE_BULK_ADDRESS_BYTES,
                         NULL, 0, NI_NUMERICHOST) == 0;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    freeaddrinfo(found);
    return ok;
}

/* A peer on this machine alone. */
static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/*
 * Towards the first head of the list that is on a network. false: none is. out_here: one is reached
 * on this machine; of a name that nobody knows yet nothing is known.
 */
static bool address_towards_head(const char *heads, char *out, bool *out_here)
{
    char host[256];

    *out_here = strncmp(heads, "unix:", 5) == 0;
    if (*out_here) {
        return false;
    }

    for (const char *at = heads; at != NULL; at = strchr(at, ',')) {
        size_t length;

        at += *at == ',';
        length = strcspn(at, ",");
        while (length > 0 && at[length - 1] != ':') {
            length--;
        }
        if (length < 2 || length > sizeof(host)) {
            continue;
        }
        (void)snprintf(host, sizeof(host), "%.*s", (int)length - 1, at);
        if (host[0] == '[' && strlen(host) > 2) {
            host[strlen(host) - 1] = '\0';
            memmove(host, host + 1, strlen(host));
        }
        if (address_towards(host, out)) {
            if (!is_loopback(out)) {
                return true;
            }
            *out_here = true;
        }
    }
    return false;
}

static bool is_link_local(const struct sockaddr *address)
{
    const struct sockaddr_in *v4  = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;

    return address->sa_family == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 16 == 0xa9fe
                                         : IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) != 0;
}

/* How many addresses of a family networks have here; out: the last one's. */
static uint32_t addresses_of(const struct ifaddrs *all, sa_family_t family, char *out)
{
    socklen_t bytes =
        family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    uint32_t count = 0;

    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        if (one->ifa_addr != NULL && one->ifa_addr->sa_family == family &&
            (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0 &&
            !is_link_local(one->ifa_addr)) {
            count += getnameinfo(one->ifa_addr, bytes, out, STORE_BULK_ADDRESS_BYTES, NULL,
                                 0, NI_NUMERICHOST) == 0;
        }
    }
    return count;
}

/* A cluster's network often has no default route. */
static bool only_address(char *out)
{
    struct ifaddrs *all;
    uint32_t count;

    if (getifaddrs(&all) != 0) {
        return false;
    }
    count = addresses_of(all, AF_INET, out);
    count = count == 0 ? addresses_of(all, AF_INET6, out) : count;
    freeifaddrs(all);
    return count == 1;
}

const char *store_bulk_address(const char *option, const char *head, char *out)
{
    bool here;

    if (option != NULL && strcmp(option, "auto") != 0 && strcmp(option, "default") != 0) {
        return option;
    }
    if (option != NULL && strcmp(option, "default") == 0) {
        return (address_towards(ELSEWHERE, out) && !is_loopback(out)) || only_address(out)
                   ? out
                   : "none";
    }
    return address_towards_head(head, out, &here) ? out : "none";
}

plasmon_status_t store_bulk_check_ports(const struct store_options *options,
                                        uint32_t devices, struct pl_err *err)
{
    uint16_t first, last;

    if (!pl_parse_ports(options->bulk_ports, &first, &last)) {
        return pl_err_set(
            err, PLASMON_EINVAL,
            "--bulk-ports is A-B, each from 1 to 65535 and A not above B, and not "
            "\"%s\"",
            options->bulk_ports);
    }
    if (options->bulk_ports != NULL && last - first + 1u < devices) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "--bulk-ports %s: the worker of each device listens on a port of "
                          "its own, and this machine brings %u",
                          options->bulk_ports, devices);
    }
    return PLASMON_OK;
}

/* Else each worker would find out, one incarnation after the other. */
static plasmon_status_t check_own(const char *address, struct pl_err *err)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    bool ok;
    int fd;

    if (getaddrinfo(address, "0", &hints, &found) != 0) {
        return pl_err_set(err, PLASMON_EINVAL,
                          "--bulk-address is auto, default, none or a numeric address of "
                          "this machine, and not \"%s\"",
                          address);
    }
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ok = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0;
    if (!ok) {
        (void)pl_err_set(err, PLASMON_EINVAL,
                         "--bulk-address %s cannot be listened on here (%s): give one of "
                         "those that `ip address` shows, or none if no object has to "
                         "leave this machine",
                         address, strerror(errno));
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    freeaddrinfo(found);
    return ok ? PLASMON_OK : PLASMON_EINVAL;
}

/* Not a word for one that is found out. */
static bool is_given(const char *option)
{
    return option != NULL && strcmp(option, "auto") != 0 &&
           strcmp(option, "default") != 0 && strcmp(option, "none") != 0;
}

plasmon_status_t store_bulk_check(const struct store_options *options, struct pl_err *err)
{
    bool tls =
        options->tls_cert != NULL || options->tls_key != NULL || options->tls_ca != NULL;
    char room[STORE_BULK_ADDRESS_BYTES];
    const char *address;
    plasmon_status_t status = store_bulk_check_ports(options, 1, err);

    if (status == PLASMON_OK && is_given(options->bulk_address)) {
        status = check_own(options->bulk_address, err);
    }
    if (status == PLASMON_OK && is_given(options->bulk_address) &&
        is_loopback(options->bulk_address) && !options->embedded &&
        strcmp(store_bulk_address(NULL, options->head, room), "none") != 0) {
        status = pl_err_set(err, PLASMON_EINVAL,
                            "--bulk-address %s is of this machine alone, and the head is "
                            "reached from %s: others could send nothing here; give an "
                            "address of a network, or none if no object has to come or "
                            "leave",
                            options->bulk_address, room);
    }
    if (status != PLASMON_OK) {
        return status;
    }
    if (tls || options->embedded || options->bulk_plain) {
        return PLASMON_OK;
    }
    address = store_bulk_address(options->bulk_address, options->head, room);
    if (strcmp(address, "none") == 0 || is_loopback(address)) {
        return PLASMON_OK;
    }
    return pl_err_set(err, PLASMON_EPERM,
                      "objects would cross the network of %s unencrypted. Give --tls-cert, "
                      "--tls-key and --tls-ca; or --bulk-plain if that network is private; "
                      "or --bulk-address none if no object has to leave this machine",
                      address);
}

void store_bulk_settle(struct store_options *options)
{
    char room[STORE_BULK_ADDRESS_BYTES];
    bool is_auto =
        options->bulk_address == NULL || strcmp(options->bulk_address, "auto") == 0;
    bool here;

    if (is_auto && !options->embedded && options->head != NULL &&
        (options->bulk_plain || options->tls_cert != NULL) &&
        !address_towards_head(options->head, room, &here) && here) {
        options->bulk_address = "default";
    }
}

void store_bulk_tell(const struct store_options *options)
{
    char room[STORE_BULK_ADDRESS_BYTES];

    if (options->bulk_address != NULL && strcmp(options->bulk_address, "default") == 0 &&
        strcmp(store_bulk_address("default", options->head, room), "none") == 0) {
        pl_warn(
            "store",
            "no object of another machine comes here, and none leaves: this machine has "
            "no default route, and not one address that would be taken without one; give "
            "--bulk-address, one of those that `ip address` shows");
    }
}
