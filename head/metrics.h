/*
 * The head's figures for Prometheus over HTTP: GET /metrics at an address of its own, off by default.
 *
 * It has a thread of its own, with which slow and hostile peers have to do: the head's loop is
 * asked for a status at most once a second, whoever and how many they are that want one, and makes
 * no text of it. What is told is what `plasmon metrics` tells: no token, no key, no content of
 * objects; names of nodes and namespaces are in it. It asks for no token and does not encrypt: who
 * may see those figures is decided by who reaches the address.
 */
#ifndef HEAD_METRICS_H
#define HEAD_METRICS_H

#include "base/base.h"
#include "base/str.h"

struct head_metrics;

struct head_metrics_config {
    /* "9464", ":9464": of 127.0.0.1; "host:port", "[::]:9464". Port 0: any that is free. */
    const char *address;
    /*
     * Status is wanted: head_metrics_answer() follows, soon, from any thread, or does not. On the
     * thread of the listener.
     */
    void (*ask)(void *user);
    void *user;
    uint32_t request_ms; /* how long a request may take to come; 0: 5 s */
    uint32_t answer_ms;  /* .. the head to answer; 0: 5 s */
    uint32_t send_ms;    /* .. the peer to take that; 0: 10 s */
    uint32_t fresh_ms;   /* an answer is good for so long; 0: 1 s */
    uint32_t peers_max;  /* connections at a time; 0: 32 */
};

/* Listens. EINVAL: no such address. EADDRINUSE and others name it. */
plasmon_status_t head_metrics_create(const struct head_metrics_config *config,
                                     struct head_metrics **out_metrics,
                                     struct pl_err *err) PL_MUST_CHECK;
void head_metrics_destroy(struct head_metrics *metrics); /* NULL is fine */
uint16_t head_metrics_port(const struct head_metrics *metrics);
/* A packed StatusReply, with waits; taken (pl_free). NULL: there is none. Any thread. */
void head_metrics_answer(struct head_metrics *metrics, uint8_t *reply, size_t length);

#endif
