/*
 * What a call can answer. One list: the enum, the names and the texts grow from it. Numbers are
 * frozen: they cross the wire and are compiled into programs.
 */
#ifndef PLASMON_STATUS_H
#define PLASMON_STATUS_H

#define PLASMON_STATUS_MAP(XX)                                                    \
    XX(OK, 0, "success")                                                          \
    XX(INPROGRESS, 1, "still in progress")                                        \
    XX(ENOMEM, -1, "out of host memory")                                          \
    XX(EDEVMEM, -2, "out of device memory")                                       \
    XX(ELOST, -3, "every copy of the object is gone")                             \
    XX(ETIMEDOUT, -4, "timed out")                                                \
    XX(EDEVICE, -5, "device error")                                               \
    XX(EINVAL, -6, "invalid argument")                                            \
    XX(ESHAPE, -7, "shape does not fit")                                          \
    XX(EDTYPE, -8, "dtype does not fit")                                          \
    XX(EARITY, -9, "wrong number of arguments")                                   \
    XX(ENOFUNCTION, -10, "no such function")                                      \
    XX(ERELEASED, -11, "ref was released or never existed")                       \
    XX(EFOREIGN, -12, "ref belongs to another client")                            \
    XX(ERANGE, -13, "view is out of range")                                       \
    XX(ETOOBIG, -14, "larger than any device")                                    \
    XX(EMALFORMED, -15, "malformed message or file")                              \
    XX(EVERSION, -16, "versions do not match")                                    \
    XX(EAUTH, -17, "not authorised")                                              \
    XX(EADDRINUSE, -18, "address in use")                                         \
    XX(ECONNECT, -19, "cannot connect")                                           \
    XX(ECLOSED, -20, "connection or cluster is closed")                           \
    XX(EFORKED, -21, "handle was inherited over fork")                            \
    XX(ECANCELLED, -22, "cancelled")                                              \
    XX(EDEPENDENCY, -23, "a task that this one depends on failed")                \
    XX(ECONSUMED, -24, "input was consumed by donation and cannot be read again") \
    XX(EWORKER, -25, "worker died while the task ran")                            \
    XX(ENOLIB, -26, "library not found")                                          \
    XX(EPERM, -27, "permission denied")                                           \
    XX(ENOSPC, -28, "disk is full")                                               \
    XX(EIO, -29, "input or output error")                                         \
    XX(ENOTSUP, -30, "not supported here")                                        \
    XX(EAGAIN, -31, "try again")                                                  \
    XX(EEXIST, -32, "exists already")                                             \
    XX(ENOENT, -33, "does not exist")                                             \
    XX(EFUNCTION, -34, "function reported an error")                              \
    XX(ELIMIT, -35, "a limit was reached")                                        \
    XX(EUNREACHABLE, -36, "memory, or another host, cannot be reached")           \
    XX(EINTERNAL, -37, "internal error")                                          \
    XX(EGRAPH, -38, "recorded graph cannot be used so")                           \
    XX(EHEADLOST, -39, "the head does not know this session any more")            \
    XX(ECOMPILE, -40, "source text does not compile")                             \
    XX(ETIMELIMIT, -41, "ran longer than its time limit")                         \
    XX(ESINGULAR, -42, "matrix is singular or not positive definite")             \
    XX(EBUSY, -43, "memory is in use by a copy on its way")                       \
    XX(ENOTREBUILDABLE, -44, "lost, and it cannot be made again")                 \
    XX(EQUOTA, -45, "over the namespace's quota")

typedef enum {
#define XX(name, value, text) PLASMON_##name = (value),
    PLASMON_STATUS_MAP(XX)
#undef XX
} plasmon_status_t;

#endif
