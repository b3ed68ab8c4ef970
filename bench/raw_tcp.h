/* Raw TCP as a yardstick: see raw_tcp.c. All exit when something fails. */
#ifndef BENCH_RAW_TCP_H
#define BENCH_RAW_TCP_H

#include "bench/bench.h"

/* "ADDRESS:PORT"; never returns. */
_Noreturn void bench_raw_tcp_serve(const char *address);
/* A child that serves on the loopback, and ends with us. Before the first gRPC object of this process. */
void bench_must_fork_raw_tcp(char out_address[64]);
int bench_must_connect_raw_tcp(const char *address);
/* Seconds until the other side has all the bytes (put), or we do. */
double bench_must_raw_tcp(int fd, bool put, uint8_t *data, uint64_t bytes);
/* The same there, as iperf3 does it: out of one small buffer and into one. */
double bench_must_raw_tcp_stream(int fd, uint64_t bytes);

#endif
