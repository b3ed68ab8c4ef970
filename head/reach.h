/*
 * Ways between hosts by which nothing gets through (reach.c).
 */
#ifndef HEAD_REACH_H
#define HEAD_REACH_H

#include "head/device.h"

#define HEAD_REACH_WAIT_MS 60000u
/*
 * Who cannot get what it reads is run again so often, elsewhere if it can be; and so often an
 * answer is looked for anew.
 */
#define HEAD_APART_MAX 2u

/* What one worker reports of one pair. Transfers may fail by it: call head_rebuild() afterwards. */
void head_reach_take(struct head_core *core, const Plasmon__V1__PairStats *pair);
/* The device's worker is another one, and its launches come again: before them, what it is to let go of. */
void head_reach_tell_again(struct head_device *device);
/* .. and what was known of the ways from it was known by the one before. */
void head_reach_forget(struct head_core *core, const struct head_device *from);
/* It is gone: nothing is known of the ways from it and to it. */
void head_reach_gone(struct head_core *core, const struct head_device *device);
/*
 * A half of a transfer is over, says its worker; before head_task_ended(). If bytes came, the two
 * hosts are not apart.
 */
void head_reach_came(struct head_core *core, const struct head_task *receive);
/*
 * Nothing gets from one to the other now, or from the one's host to the other's, as far as is
 * known: not to be chosen where there is a choice.
 */
bool head_reach_apart(const struct head_core *core, const struct head_device *from,
                      const struct head_device *to);
/* .. and why. NULL: all is well */
const char *head_reach_why(const struct head_core *core, const struct head_device *from,
                           const struct head_device *to);
/*
 * For people, who are told once: the same for all devices of two hosts that are apart, in one
 * direction. NULL: they are not, though two of their devices may be.
 */
void *head_reach_hosts(const struct head_core *core, const struct head_device *from,
                       const struct head_device *to);
/* As a checkpoint has it; why "": nothing is noted. */
void head_reach_restore(struct head_core *core, struct head_way *way, const char *why,
                        bool alone);
void head_reach_check(const struct head_core *core);
void head_reach_destroy(struct head_core *core);

#endif
