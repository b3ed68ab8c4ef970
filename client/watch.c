/* Who waits for a ref: plasmon_wait() with a condition, plasmon_on_ready() with a callback. See refs.h. */
#include "client/refs.h"

static void watch_decide(struct refs *refs, struct watch *watch, plasmon_status_t status)
{
    watch->status = status;
    watch->root   = NULL;
    pl_list_remove(&watch->link);
    if (watch->waiter != NULL) {
        if (++watch->waiter->resolved == watch->waiter->need) {
            pl_cond_signal(&watch->waiter->cond);
        }
    } else {
        pl_list_add_tail(&refs->callbacks, &watch->link);
    }
}

void watch_start(struct watch *watch, struct root *root, const struct pl_box *box)
{
    watch->status = root_state(root, box, NULL);
    watch->whole  = box == NULL;
    pl_list_init(&watch->link);
    if (watch->status != PLASMON_INPROGRESS) {
        return;
    }
    if (box != NULL) {
        watch->hull = *box;
    }
    watch->root = root;
    pl_list_add_tail(&root->watches, &watch->link);
}

void watch_stop(struct watch *watch)
{
    pl_list_remove(&watch->link);
    watch->root = NULL;
    failure_release(watch->failure);
    watch->failure = NULL;
}

void root_watches_check(struct refs *refs, struct root *root, const struct pl_box *box)
{
    struct pl_list *at, *next;

    pl_list_for_each_safe(at, next, &root->watches) {
        struct watch *watch     = pl_container_of(at, struct watch, link);
        struct failure *failure = NULL;
        plasmon_status_t status;

        /*
         * What replaces a write that it waited for touches it, too. Without this a thousand parts
         * that are waited for cost a look at a million writes.
         */
        if (box != NULL && !watch->whole && !pl_box_intersects(box, &watch->hull)) {
            continue;
        }
        status = root_state(root, watch->whole ? NULL : &watch->hull, &failure);
        if (status == PLASMON_INPROGRESS) {
            continue;
        }
        if (failure != NULL && watch->waiter != NULL) {
            /* the root may go before it wakes */
            watch->failure = failure_hold(failure);
        }
        watch_decide(refs, watch, status);
    }
}

void root_watches_release(struct refs *refs, struct root *root)
{
    struct pl_list *at, *next;

    pl_list_for_each_safe(at, next, &root->watches) {
        watch_decide(refs, pl_container_of(at, struct watch, link), PLASMON_ERELEASED);
    }
}
