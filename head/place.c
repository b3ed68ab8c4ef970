/*
 * Placement: on which device does a task run? Decided when the task is submitted, from where its
 * inputs are or will be; they need not exist yet. A policy can never change results.
 *
 *   auto         least of: weighted time to bring the missing input bytes there + estimated work
 *                already queued there + a penalty that grows when its memory fills up. The queue is
 *                in the sum, so locality alone does not pile everything on one device.
 *   locality     most input bytes there; ties by load
 *   round-robin  the next device
 *   pinned       device 0 (the first that will do), so that only hints place anything elsewhere
 *
 * A queue is waited for where the inputs are part of an array that is dealt over the devices
 * (dealt.c), unless it is very long.
 *
 * Where nothing lies yet, the parts of an array are dealt in blocks, by their place in it
 * (home_of): so parts at the same place of arrays that are cut alike lie together, whoever makes
 * them and in whatever order, and neighbours are neighbours.
 *
 * What a task overwrites without reading it need not be brought: that it lies elsewhere decides
 * among devices that are otherwise alike.
 *
 * Within a host bandwidths are round figures (bytes a nanosecond); only their ratios matter: peer
 * copies within a GPU host, the staged route, host memory. What workers measure there holds the
 * wait for who makes the bytes, and would say that copies behind long work are slow. Between hosts
 * the time is that of rates.h: connections are measured while they are busy, and networks differ by
 * a hundred.
 */
#include "head/core_int.h"

#include <string.h>

#define COPY_NS  UINT64_C(10000) /* what a copy costs before its first byte */
#define PIECE_NS UINT64_C(10000) /* another piece of an array to know of */

/*
 * What is brought takes the link from others, and memory; and a queue that looks long now is even
 * when the tasks that follow have gone to the others: of a program that does the same for each part
 * of an array, each part should stay where it lies.
 */
#define BRING_WEIGHT 4u
/*
 * Of a part of an array that is dealt over the devices, for each part of the device's share: what
 * is done with one will be done with all.
 */
#define DEALT_WEIGHT    64u
#define DEALT_PARTS_MAX 1024u

enum { PEER_BYTES_PER_NS = 350, HOST_ROUTE_BYTES_PER_NS = 50, CPU_BYTES_PER_NS = 8 };

/* Of the device's own memory; a launch costs something, too. */
enum { GPU_WORK_BYTES_PER_NS = 4000, CPU_WORK_BYTES_PER_NS = 4, LAUNCH_NS = 2000 };

uint64_t head_work_ns(const struct head_device *device, uint64_t bytes)
{
    return LAUNCH_NS +
           bytes / (device->kind == 1 ? CPU_WORK_BYTES_PER_NS : GPU_WORK_BYTES_PER_NS);
}

/* Of what a task wants, one after the other: what of it lies together, in an array that exists. */
struct part {
    const struct head_fragment *fragment;
    const struct head_want *want;
    uint64_t bytes;
};

/* What is to be placed. The parts are looked for once, and not again for each device. */
struct placing {
    struct head_core *core;
    const struct head_function *function; /* that a client defined; NULL */
    const struct head_want *wants;
    size_t count;
    struct pl_vec parts; /* struct part */
    struct pl_vec ends;  /* uint32_t, a want each: where those of the next one begin */
};

static void parts_find(struct placing *placing, const struct head_want *want)
{
    uint64_t element = pl_dtype_bytes(want->array->shape.dtype);
    const struct head_fragment *fragment;

    for (fragment = head_array_meet(want->array, &want->box); fragment != NULL;
         fragment = fragment->met) {
        uint64_t elements = (uint64_t)pl_box_common(&fragment->box, &want->box);
        struct part *part;

        if (elements == 0) {
            continue;
        }
        part = pl_vec_push(&placing->parts);
        PL_CHECK(part != NULL);
        *part =
            (struct part){.fragment = fragment, .want = want, .bytes = elements * element};
    }
}

/* The parts of all wants, in place of those of an earlier task. */
static void parts_find_all(struct placing *placing)
{
    pl_vec_clear(&placing->parts);
    pl_vec_clear(&placing->ends);
    for (size_t i = 0; i < placing->count; i++) {
        const struct head_want *want = &placing->wants[i];
        uint32_t *end;

        if (want->at == NULL && want->array != NULL) {
            parts_find(placing, want);
        }
        end = pl_vec_push(&placing->ends);
        PL_CHECK(end != NULL);
        *end = (uint32_t)placing->parts.count;
    }
}

static const struct part *parts_of(const struct placing *placing, size_t want,
                                   size_t *out_count)
{
    const uint32_t *ends = placing->ends.items;
    size_t first         = want > 0 ? ends[want - 1] : 0;

    *out_count = ends[want] - first;
    return *out_count > 0 ? pl_vec_at(&placing->parts, first) : NULL;
}

static bool lies_somewhere(const struct head_want *want)
{
    return want->array != NULL || want->at != NULL;
}

static bool is_input(const struct head_want *want)
{
    return lies_somewhere(want) && !want->overwritten;
}

/*
 * What has to be brought to a device for a task: copies within its host go one behind the other,
 * those from elsewhere each take their time.
 */
struct missing {
    uint64_t near_copies; /* one an argument */
    uint64_t near_bytes;
    uint64_t far_ns;
};

static void missing_add(const struct head_core *core, struct missing *missing,
                        const struct head_device *from, const struct head_device *to,
                        uint64_t bytes)
{
    if (!head_device_apart(from, to)) {
        missing->near_bytes += bytes;
    } else {
        missing->far_ns += head_rates_ns(core, from, to, bytes);
    }
}

/* Boxes of which each meets each have something in common. */
static bool meets(const struct head_instance *instance, const struct part *part)
{
    return pl_box_intersects(&instance->box, &part->want->box) &&
           pl_box_intersects(&instance->box, &part->fragment->box);
}

/*
 * Where it would come from: a device of the same host if there is one, else the one from which it
 * takes least. NULL: it is there.
 */
static const struct head_device *source_of(const struct head_core *core,
                                           const struct part *part,
                                           const struct head_device *to)
{
    const struct head_device *best = to; /* no copy yet: nobody knows better */
    uint64_t best_ns               = UINT64_MAX;
    struct pl_list *pos;

    pl_list_for_each(pos, &part->fragment->tile->instances) {
        const struct head_instance *instance =
            pl_container_of(pos, struct head_instance, tile_link);
        const struct head_device *from = instance->buffer->device;
        uint64_t ns;

        if (from == to && meets(instance, part)) {
            return NULL;
        }
        ns = head_device_apart(from, to) ? head_rates_ns(core, from, to, part->bytes) : 0;
        if (ns < best_ns) {
            best    = from;
            best_ns = ns;
        }
    }
    return best;
}

static void missing_of(const struct placing *placing, size_t number,
                       const struct head_device *device, struct missing *io_missing)
{
    const struct head_want *want = &placing->wants[number];
    const struct part *parts;
    size_t count;

    if (want->at != NULL) {
        if (want->at != device) {
            missing_add(placing->core, io_missing, want->at, device, want->bytes);
        }
        return;
    }
    parts = parts_of(placing, number, &count);
    for (size_t i = 0; i < count; i++) {
        const struct head_device *from = source_of(placing->core, &parts[i], device);

        if (from != NULL) {
            missing_add(placing->core, io_missing, from, device, parts[i].bytes);
        }
    }
}

static bool reachable(const struct placing *placing, size_t number,
                      const struct head_device *device)
{
    const struct part *parts;
    struct pl_list *pos;
    size_t count;

    if (placing->wants[number].at != NULL) {
        return head_move_possible(placing->wants[number].at, device);
    }
    parts = parts_of(placing, number, &count);
    for (size_t i = 0; i < count; i++) {
        const struct pl_list *instances = &parts[i].fragment->tile->instances;
        bool found                      = pl_list_empty(instances);

        for (pos = instances->next; !found && pos != instances; pos = pos->next) {
            const struct head_instance *instance =
                pl_container_of(pos, struct head_instance, tile_link);

            found = head_move_possible(instance->buffer->device, device);
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

/* Within a host everything can be reached. */
static bool one_host(const struct head_core *core)
{
    return core->hosts.count == 1;
}

static bool usable(const struct placing *placing, const struct head_device *device)
{
    return !device->gone && device->joined &&
           (!device->draining || (placing->count > 0 && placing->wants[0].drained_too));
}

/* May the task run there at all? */
static bool feasible(const struct placing *placing, const struct head_device *device)
{
    if (!usable(placing, device) ||
        (placing->function != NULL && !head_function_runs_on(placing->function, device))) {
        return false;
    }
    for (size_t i = 0; i < placing->count; i++) {
        const struct head_want *want = &placing->wants[i];

        if (want->bytes > device->bytes_total ||
            (want->host != NULL && strcmp(want->host, device->host) != 0) ||
            (is_input(want) && !one_host(placing->core) &&
             !reachable(placing, i, device))) {
            return false;
        }
    }
    return true;
}

/* So many copies within a host, of so many bytes together. */
static uint64_t near_ns(const struct head_core *core, const struct head_device *device,
                        uint64_t copies, uint64_t bytes)
{
    return copies * COPY_NS + bytes / (device->kind == 1 ? CPU_BYTES_PER_NS
                                       : core->config.transfer == HEAD_TRANSFER_HOST
                                           ? HOST_ROUTE_BYTES_PER_NS
                                           : PEER_BYTES_PER_NS);
}

static uint64_t transfer_ns(const struct placing *placing, const struct head_device *device)
{
    struct missing missing = {0};
    uint64_t pieces        = 0;

    for (size_t i = 0; i < placing->count; i++) {
        if (is_input(&placing->wants[i])) {
            uint64_t near_bytes = missing.near_bytes;

            missing_of(placing, i, device, &missing);
            missing.near_copies += missing.near_bytes > near_bytes;
        } else if (placing->wants[i].overwritten && lies_somewhere(&placing->wants[i])) {
            struct missing old = {0};

            missing_of(placing, i, device, &old);
            pieces += old.near_bytes + old.far_ns > 0;
        }
    }
    return pieces * PIECE_NS + missing.far_ns +
           near_ns(placing->core, device, missing.near_copies, missing.near_bytes);
}

/* ------------------------------------------------------------------- where parts belong */

/* Together less than this part of what is written inputs decide nothing. */
#define INPUTS_SMALL 8u

static bool is_written(const struct placing *placing, size_t number)
{
    size_t parts;

    (void)parts_of(placing, number, &parts);
    return placing->wants[number].at != NULL || parts > 0;
}

/*
 * The largest part that is to be written, if that is for the first time, and inputs are small
 * beside it. NULL: none.
 */
static const struct head_want *part_that_decides(const struct placing *placing)
{
    const struct head_want *wants = placing->wants;
    size_t largest                = placing->count;
    uint64_t inputs               = 0;

    for (size_t i = 0; i < placing->count; i++) {
        if (is_input(&wants[i])) {
            inputs += wants[i].bytes;
        } else if (wants[i].part_of != NULL &&
                   (largest == placing->count || wants[i].bytes > wants[largest].bytes)) {
            largest = i;
        }
    }
    return largest < placing->count && inputs < wants[largest].bytes / INPUTS_SMALL &&
                   !is_written(placing, largest)
               ? &wants[largest]
               : NULL;
}

/*
 * How far into its array the part is, 0 up to 1, in C order of parts that are all like it;
 * negative: it is the whole array.
 */
static double place_in_array(const struct head_want *part)
{
    double number = 0;
    double parts  = 1;

    for (uint32_t d = 0; d < part->box.ndim; d++) {
        int64_t dim   = part->part_of->dim[d];
        int64_t count = part->box.count[d];
        int64_t all   = count > 0 ? (dim + count / 2) / count : 1;
        double middle = (double)part->box.start[d] + (double)count / 2;

        number =
            number * (double)all + (double)(int64_t)(middle / (double)dim * (double)all);
        parts *= (double)all;
    }
    return parts > 1 ? number / parts : -1;
}

/* Device number `number` of those of one kind that can do it; *out_count: how many they are. */
static const struct head_device *pick(const struct placing *placing, bool gpus,
                                      uint32_t number, uint32_t *out_count)
{
    const struct head_device *picked = NULL;

    *out_count = 0;
    for (uint32_t i = 0; i < placing->core->devices.count; i++) {
        const struct head_device *device = head_device_at(placing->core, i);

        if ((device->kind != 1) == gpus && feasible(placing, device) &&
            (*out_count)++ == number) {
            picked = device;
        }
    }
    return picked;
}

/* Where what the task makes belongs, *out_bytes of it: among GPUs, if there are any. NULL: anywhere. */
static const struct head_device *home_of(const struct placing *placing, uint64_t *out_bytes)
{
    const struct head_want *part = part_that_decides(placing);
    double place                 = part != NULL ? place_in_array(part) : -1;
    uint32_t devices;
    bool gpus;

    if (place < 0) {
        return NULL;
    }
    (void)pick(placing, true, 0, &devices);
    gpus = devices > 0;
    if (!gpus) {
        (void)pick(placing, false, 0, &devices);
    }
    *out_bytes = part->bytes;
    return pick(placing, gpus, (uint32_t)(place * devices), &devices);
}

/* What it will cost to have it elsewhere: others that read it with what lies at its home will bring it. */
static uint64_t away_ns(const struct head_core *core, const struct head_device *home,
                        const struct head_device *device, uint64_t bytes)
{
    return home == NULL || home == device ? 0 : near_ns(core, device, 1, bytes);
}

static uint64_t memory_ns(const struct head_device *device, const struct head_want *wants,
                          size_t count)
{
    uint64_t wanted = device->bytes_planned;
    uint64_t limit  = device->bytes_total - device->bytes_total / 10;

    for (size_t i = 0; i < count; i++) {
        wanted += is_input(&wants[i]) ? 0 : wants[i].bytes;
    }
    return wanted <= limit
               ? 0
               : 1000000 + (wanted - limit) /
                               16; /* as if what does not fit had to be staged out and in */
}

/* The input with the most bytes; NULL: none. */
static const struct head_want *largest_input(const struct placing *placing)
{
    const struct head_want *largest = NULL;

    for (size_t i = 0; i < placing->count; i++) {
        const struct head_want *want = &placing->wants[i];

        if (is_input(want) && (largest == NULL || want->bytes > largest->bytes)) {
            largest = want;
        }
    }
    return largest;
}

/* What a policy weighs, of a device that will do. */
struct offer {
    struct head_device *device;
    uint64_t bring_ns;
    uint64_t wait_ns; /* its queue, and memory that is hard to come by */
};

/* By which least is to be brought; of equals the one with the least load. */
static const struct offer *nearest_of(const struct pl_vec *offers)
{
    const struct offer *nearest = offers->items;

    for (size_t i = 1; i < offers->count; i++) {
        const struct offer *offer = pl_vec_at(offers, i);

        if (offer->bring_ns < nearest->bring_ns ||
            (offer->bring_ns == nearest->bring_ns &&
             offer->device->load_ns < nearest->device->load_ns)) {
            nearest = offer;
        }
    }
    return nearest;
}

/* Bringing counted `weight` times; of equals the first. */
static struct head_device *least_sum(const struct pl_vec *offers, uint64_t weight)
{
    struct head_device *best = NULL;
    uint64_t best_ns         = 0;

    for (size_t i = 0; i < offers->count; i++) {
        const struct offer *offer = pl_vec_at(offers, i);
        uint64_t ns               = weight * offer->bring_ns + offer->wait_ns;

        if (best == NULL || ns < best_ns) {
            best    = offer->device;
            best_ns = ns;
        }
    }
    return best;
}

/* Ties go round. */
static struct head_device *choose_auto(const struct placing *placing)
{
    static _Thread_local struct pl_vec offers = {.item_bytes = sizeof(struct offer)};
    struct head_core *core                    = placing->core;
    const struct head_want *input             = largest_input(placing);
    const struct head_device *home, *nearest;
    struct head_device *best;
    uint64_t home_bytes = 0;
    uint64_t parts;

    home = home_of(placing, &home_bytes);
    core->round_robin++;
    pl_vec_clear(&offers);
    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device =
            head_device_at(core, (core->round_robin + i) % (uint32_t)core->devices.count);
        struct offer *offer;

        if (!feasible(placing, device)) {
            continue;
        }
        offer = pl_vec_push(&offers);
        PL_CHECK(offer != NULL);
        offer->device = device;
        offer->bring_ns =
            transfer_ns(placing, device) + away_ns(core, home, device, home_bytes);
        offer->wait_ns =
            device->load_ns + memory_ns(device, placing->wants, placing->count);
    }
    if (offers.count == 0) {
        return NULL;
    }
    best    = least_sum(&offers, BRING_WEIGHT);
    nearest = nearest_of(&offers)->device;
    if (best == nearest || input == NULL) {
        return best;
    }
    parts = head_dealt(placing->core, input, nearest, (uint32_t)offers.count);
    return parts > 0 ? least_sum(&offers, DEALT_WEIGHT * pl_min_u64(parts, DEALT_PARTS_MAX))
                     : best;
}

static struct head_device *choose_locality(const struct placing *placing)
{
    struct head_core *core         = placing->core;
    struct head_device *best       = NULL;
    uint64_t best_missing          = 0;
    uint64_t home_bytes            = 0;
    const struct head_device *home = home_of(placing, &home_bytes);

    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device = head_device_at(core, i);
        uint64_t missing;

        if (!feasible(placing, device)) {
            continue;
        }
        missing = transfer_ns(placing, device) + away_ns(core, home, device, home_bytes);
        if (best == NULL || missing < best_missing ||
            (missing == best_missing && device->load_ns < best->load_ns)) {
            best         = device;
            best_missing = missing;
        }
    }
    return best;
}

static struct head_device *choose_round_robin(const struct placing *placing)
{
    struct head_core *core = placing->core;

    for (uint32_t i = 0; i < core->devices.count; i++) {
        struct head_device *device =
            head_device_at(core, ++core->round_robin % (uint32_t)core->devices.count);

        if (feasible(placing, device)) {
            return device;
        }
    }
    return NULL;
}

/* Who places everything by hints wants nothing else to move. */
static struct head_device *choose_pinned(const struct placing *placing)
{
    for (uint32_t i = 0; i < placing->core->devices.count; i++) {
        struct head_device *device = head_device_at(placing->core, i);

        if (feasible(placing, device)) {
            return device;
        }
    }
    return NULL;
}

struct head_policy {
    const char *name;
    struct head_device *(*choose)(const struct placing *placing);
};
static const struct head_policy policies[] = {
    {"auto", choose_auto},
    {"locality", choose_locality},
    {"round-robin", choose_round_robin},
    {"pinned", choose_pinned},
};

const char *head_policy_name(const struct head_policy *policy)
{
    return policy->name;
}

const struct head_policy *head_policy_find(const char *name)
{
    for (size_t i = 0; i < PL_COUNT(policies); i++) {
        if (strcmp(policies[i].name, name) == 0) {
            return &policies[i];
        }
    }
    return NULL;
}

/* One of a host that nothing comes to from others. */
static const struct head_device *without_bulk(const struct head_core *core)
{
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (!device->gone && device->joined && device->bulk_address[0] == '\0') {
            return device;
        }
    }
    return NULL;
}

static struct head_failure *nowhere(struct head_core *core, const struct head_want *wants,
                                    size_t count)
{
    uint64_t largest    = 0;
    uint64_t device_max = 0;
    uint32_t alive      = 0;
    const struct head_device *closed;
    char want_text[32], max_text[32];

    for (size_t i = 0; i < count; i++) {
        largest = pl_max_u64(largest, wants[i].bytes);
    }
    for (uint32_t i = 0; i < core->devices.count; i++) {
        const struct head_device *device = head_device_at(core, i);

        if (!device->gone && device->joined && !device->draining) {
            alive++;
            device_max = pl_max_u64(device_max, device->bytes_total);
        }
    }
    if (alive == 0) {
        return head_failure_create(PLASMON_EWORKER, 0, 0,
                                   "the cluster has no device for new work (those that are "
                                   "being drained take none); "
                                   "start a store with `plasmon start --address`");
    }
    if (largest > device_max) {
        return head_failure_create(PLASMON_ETOOBIG, 0, 0,
                                   "an argument of %s is larger than every device (the "
                                   "largest has %s); split it into "
                                   "blocks",
                                   pl_format_bytes(largest, want_text),
                                   pl_format_bytes(device_max, max_text));
    }
    for (size_t i = 0; i < count; i++) {
        if (wants[i].host != NULL) {
            return head_failure_create(
                PLASMON_EUNREACHABLE, 0, 0,
                "no device of the client's host can be used; copy from or to host memory "
                "needs one, plasmon_put() and plasmon_get() do not");
        }
    }
    for (size_t i = 0; i < count; i++) {
        struct head_failure *stranded =
            is_input(&wants[i]) && wants[i].array != NULL
                ? head_spill_stranded(wants[i].array, &wants[i].box)
                : NULL;

        if (stranded != NULL) {
            return stranded;
        }
    }
    closed = without_bulk(core);
    if (closed != NULL) {
        return head_failure_create(
            PLASMON_ENOTSUP, 0, 0,
            "the inputs lie on different hosts, and %s takes no part in transfers between "
            "hosts: start its store with --bulk-address, an address by which others reach "
            "it, or place the tasks that make the inputs on one host",
            closed->node);
    }
    return head_failure_create(PLASMON_ENOTSUP, 0, 0,
                               "the inputs lie on different hosts, and there is no route "
                               "between them; place the tasks that make them on one host");
}

static struct head_failure *no_such_device(const struct head_core *core,
                                           const struct head_device *device, uint32_t index)
{
    if (device == NULL) {
        return head_failure_create(
            PLASMON_EINVAL, 0, 0,
            "placement hint: there is no device %u; the cluster has %zu", index,
            core->devices.count);
    }
    if (device->gone) {
        return head_failure_create(
            PLASMON_EWORKER, 0, 0, "placement hint: device %u on %s is gone: %s", index,
            device->node, device->death != NULL ? device->death : "its host left");
    }
    if (device->draining) {
        return head_failure_create(
            PLASMON_EWORKER, 0, 0,
            "placement hint: device %u on %s is being drained and takes nothing new; name "
            "another one, or none",
            index, device->node);
    }
    return head_failure_create(PLASMON_EAGAIN, 0, 0,
                               "placement hint: device %u on %s has not come up yet", index,
                               device->node);
}

struct head_device *head_place(struct head_core *core, const struct head_want *wants,
                               size_t count, uint32_t hint,
                               struct head_failure **out_failure)
{
    return head_place_function(core, NULL, wants, count, hint, out_failure);
}

struct head_device *head_place_function(struct head_core *core,
                                        const struct head_function *function,
                                        const struct head_want *wants, size_t count,
                                        uint32_t hint, struct head_failure **out_failure)
{
    static _Thread_local struct placing placing = {
        .parts = {.item_bytes = sizeof(struct part)},
        .ends  = {.item_bytes = sizeof(uint32_t)},
    };
    struct head_device *device;

    placing.core     = core;
    placing.function = function;
    placing.wants    = wants;
    placing.count    = count;
    if (hint == 0 || !one_host(core)) { /* else nobody asks for them */
        parts_find_all(&placing);
    }
    if (hint != 0) {
        device = head_device_at(core, hint - 1);
        if (device == NULL || !usable(&placing, device)) {
            *out_failure = no_such_device(core, device, hint - 1);
            return NULL;
        }
        if (feasible(&placing, device)) {
            return device;
        }
        device = NULL;
    } else {
        device = core->policy->choose(&placing);
    }
    if (device == NULL) {
        *out_failure = function != NULL ? head_function_nowhere(core, function) : NULL;
        if (*out_failure == NULL && hint != 0 && function != NULL &&
            !head_function_runs_on(function, head_device_at(core, hint - 1))) {
            *out_failure = head_failure_create(PLASMON_ENOTSUP, 0, 0,
                                               "placement hint: device %u has no variant "
                                               "of this function, or may not run it",
                                               hint - 1);
        }
        if (*out_failure == NULL) {
            *out_failure = nowhere(core, wants, count);
        }
    }
    return device;
}
