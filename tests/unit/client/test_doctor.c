/*
 * What doctor says of a status that the test makes up: where chains end that go through copies for
 * spilling, and devices that have no worker.
 */
#include "client/client_int.h"
#include "client/doctor.h"
#include "tests/harness/test.h"
#include "wire/wire.h"

enum { TASKS = 4 };

static Plasmon__V1__StatusReply reply;
static Plasmon__V1__Waits waits;
static Plasmon__V1__Device device, *devices[] = {&device};
static Plasmon__V1__TaskWait task[TASKS], *tasks[TASKS];
static Plasmon__V1__LaunchWait launch, *launches[] = {&launch};
static struct pl_str text;

static char *words(const char *literal)
{
    return (char *)(uintptr_t)literal;
}

/*
 * Device 0 has launches 1 to 4: a kernel, a spill, a restore and the copy that wants it; the first
 * alone was sent.
 */
static void begin(void)
{
    plasmon__v1__status_reply__init(&reply);
    plasmon__v1__waits__init(&waits);
    plasmon__v1__device__init(&device);
    plasmon__v1__launch_wait__init(&launch);
    for (uint32_t i = 0; i < TASKS; i++) {
        plasmon__v1__task_wait__init(&task[i]);
        tasks[i]       = &task[i];
        task[i].seq    = i + 1;
        task[i].what   = words("copy");
        task[i].age_ms = 1000u * (i + 1);
    }
    task[0].task  = 7;
    task[0].sent  = true;
    task[1].what  = words("spill");
    task[1].node  = words("n1");
    task[1].bytes = 3 << 20;
    task[2].what  = words("restore");
    task[2].node  = words("n1");
    task[2].bytes = 1 << 20;
    task[3].task  = 9;

    launch.seq      = 1;
    launch.stream   = 1;
    launch.why      = PLASMON__V1__WAIT_WHY__WAIT_RUNS;
    launch.function = words("spin");
    launch.since_ms = 4200;

    device.alive     = true;
    device.state     = PLASMON__V1__DEVICE_STATE__DEVICE_STATE_UP;
    reply.waits      = &waits;
    reply.devices    = devices;
    reply.n_devices  = 1;
    waits.tasks      = tasks;
    waits.n_tasks    = TASKS;
    waits.launches   = launches;
    waits.n_launches = 1;
}

static const char *said(bool json)
{
    pl_str_finish(&text);
    pl_str_init(&text);
    (json ? doctor_json : doctor_text)(&reply, &text);
    return pl_str_text(&text);
}

TEST(a_spill_that_is_not_sent_is_what_those_behind_it_wait_for)
{
    begin();
    task[1].hold      = PLASMON__V1__TASK_HOLD__HOLD_SLAB;
    task[1].hold_text = words("16.0 GiB are to be made");
    ASSERT_CONTAINS(
        said(false),
        "task 9 copy on device 0 has waited 4.0 s for launch 2 spill of 3.0 MiB "
        "to host memory of n1 on device 0, which waits until its host's store "
        "has made the memory for spilling, for 2.0 s (16.0 GiB are to be made)");
    ASSERT_CONTAINS(pl_str_text(&text),
                    "spills and restores, the oldest\n  not sent: launch 2 "
                    "spill of 3.0 MiB to host memory of n1 on device 0 ");
    ASSERT_CONTAINS(said(true), "\"cause\":\"slab\"");
    ASSERT_CONTAINS(pl_str_text(&text), "\"bytes\":3145728,\"node\":\"n1\"");
    pl_str_finish(&text);
}

TEST(what_waits_for_its_place_or_its_file_says_so)
{
    begin();
    task[1].sent = true;
    task[2].hold = PLASMON__V1__TASK_HOLD__HOLD_FILE;
    ASSERT_CONTAINS(said(false),
                    "restore of 1.0 MiB from host memory of n1 on device 0, which "
                    "waits for its host's store, which is at its bytes");
    ASSERT_CONTAINS(pl_str_text(&text), "  sent: launch 2 spill of 3.0 MiB");
    waits.n_launches = 0; /* its worker has said nothing of it */
    ASSERT_CONTAINS(said(false),
                    "spill of 3.0 MiB to host memory of n1 on device 0 its worker has "
                    "not come to, and has nothing else to do, for 2.0 s");
    task[2].hold = PLASMON__V1__TASK_HOLD__HOLD_PLACE;
    ASSERT_CONTAINS(said(false),
                    "waits for a place in the host memory for spilling, for 3.0 s");
    pl_str_finish(&text);
}

/* It waits for another copy's place, or for its turn: that, and not it, is the cause. */
TEST(what_waits_for_another_launch_is_followed_to_it)
{
    uint64_t first = wire_point(0, 2);

    begin();
    task[1].hold    = PLASMON__V1__TASK_HOLD__HOLD_PLACE;
    task[2].hold    = PLASMON__V1__TASK_HOLD__HOLD_QUEUE;
    task[2].after   = &first;
    task[2].n_after = 1;
    ASSERT_EQ(doctor_find(&reply, &task[2]).end.seq, 2);
    ASSERT_STR(doctor_find(&reply, &task[3]).cause->name, "place");

    task[1].hold = PLASMON__V1__TASK_HOLD__HOLD_NONE;
    task[1].sent = true;
    task[2].hold = PLASMON__V1__TASK_HOLD__HOLD_TURN;
    ASSERT_EQ(doctor_find(&reply, &task[2]).end.seq, 1);
    ASSERT_STR(doctor_find(&reply, &task[3]).cause->name, "runs");
}

static unsigned lines_with(const char *said, const char *words)
{
    unsigned count = 0;

    for (const char *at = strstr(said, words); at != NULL; at = strstr(at + 1, words)) {
        count++;
    }
    return count;
}

/*
 * Where no task of a client is among the oldest, the head's own launches are told, and spills have
 * a part of their own.
 */
TEST(a_spill_is_listed_once)
{
    begin();
    task[0].task = 0;
    task[3].task = 0;
    ASSERT_EQ(lines_with(said(false), "  launch 1 "), 1);
    ASSERT_EQ(lines_with(pl_str_text(&text), "launch 2 spill of 3.0 MiB to host memory of "
                                             "n1 on device 0 has waited"),
              1);
    ASSERT_EQ(lines_with(pl_str_text(&text), "launch 3 restore of 1.0 MiB from host memory "
                                             "of n1 on device 0 has waited"),
              1);
    tasks[0]      = &task[1];
    waits.n_tasks = 1;
    ASSERT_CONTAINS(said(false), "tasks\n  none but spills and restores (below)\n");
    tasks[0] = &task[0];
    pl_str_finish(&text);
}

TEST(a_client_that_was_killed_is_none_that_does_not_read)
{
    static Plasmon__V1__PeerWait peer, *peers[] = {&peer};

    begin();
    plasmon__v1__peer_wait__init(&peer);
    peer.client    = 0x17;
    peer.name      = words("producer");
    peer.silent_ms = 1900;
    peer.bytes     = 106;
    waits.peers    = peers;
    waits.n_peers  = 1;
    ASSERT_CONTAINS(said(false),
                    "client 0000000000000017 (producer) has no connection, and "
                    "has said nothing for 1.9 s: it was killed, or ");
    peer.connected = true;
    ASSERT_CONTAINS(said(false),
                    "(producer) has not read for 1.9 s, 106 B are kept for it");
    pl_str_finish(&text);
}

TEST(who_is_advised_to_end_a_function_is_one_who_can)
{
    begin();
    task[0].function = 1;
    ASSERT_CONTAINS(said(false), "runs, for 4.2 s: a kernel that does not end?");
    launch.since_ms = 900; /* that is nothing to end it for */
    ASSERT_CONTAINS(said(false), "runs, for 0.9 s");
    ASSERT_NULL(strstr(pl_str_text(&text), "does not end?"));
    launch.since_ms = 4200;
    task[0].task    = 0; /* nobody has a ref to it */
    ASSERT_CONTAINS(said(false), "which runs, for 4.2 s: its client has ended");
    ASSERT_NULL(strstr(pl_str_text(&text), "does not end?"));
    pl_str_finish(&text);
}

TEST(a_device_without_a_worker_says_since_when_and_why)
{
    begin();
    device.alive     = false;
    device.state     = PLASMON__V1__DEVICE_STATE__DEVICE_STATE_DOWN;
    device.down_ms   = 3200;
    device.death     = words("killed by signal 9");
    waits.n_launches = 0;
    ASSERT_CONTAINS(said(false),
                    "task 7 copy on device 0 has no worker now, for 3.2 s (of the "
                    "last one: killed by signal 9): its store starts another");
    ASSERT_CONTAINS(pl_str_text(&text),
                    "  0 down, nothing to do, has no worker, for 3.2 s");
    ASSERT_CONTAINS(said(true), "\"down_ms\":3200");
    pl_str_finish(&text);
}

TEST(pairs_that_go_one_way_for_one_reason_are_one_line)
{
    static Plasmon__V1__RoutePlan plan[6], *plans[6];

    begin();
    for (uint32_t i = 0; i < 6; i++) { /* 0 to 1, 0 to 2, 1 to 0, .. */
        plasmon__v1__route_plan__init(&plan[i]);
        plans[i]      = &plan[i];
        plan[i].from  = i / 2;
        plan[i].to    = i % 2 + (i % 2 >= i / 2 ? 1 : 0);
        plan[i].route = 1;
        plan[i].why   = words("one host");
    }
    plan[3].route  = 2; /* 1 to 2 */
    plan[3].why    = words("no peer access");
    waits.routes   = plans;
    waits.n_routes = 6;
    reply.transfer = words("auto");
    ASSERT_CONTAINS(said(false), "routes between devices (transfer auto)\n"
                                 "  0 to 1, 2; 1 to 0; 2 to 0, 1: peer, because: one host\n"
                                 "  1 to 2: host, because: no peer access\n");
    ASSERT_CONTAINS(said(true), "{\"from\":1,\"to\":2,\"route\":\"host\"");
    pl_str_finish(&text);
}

TEST(a_gpu_whose_worker_or_memory_is_elsewhere_is_told)
{
    static Plasmon__V1__NumaPlace far, *places[] = {&far};

    begin();
    plasmon__v1__numa_place__init(&far);
    far.device     = 3;
    far.node       = 2;
    far.nodes      = 2;
    far.processors = 16;
    far.pages      = 256;
    far.pages_near = 64;
    waits.numa     = places;
    waits.n_numa   = 1;
    ASSERT_CONTAINS(said(false), "\nNUMA nodes of GPUs\n  3: at node 1; none of the 16 "
                                 "processors of its worker is there");
    ASSERT_CONTAINS(pl_str_text(&text), "75 % of its pinned memory is not");
    ASSERT_CONTAINS(said(true),
                    "\"numa\":[{\"device\":3,\"node\":1,\"nodes\":2,\"processors\":16,"
                    "\"processors_near\":0,\"pages\":256,\"pages_near\":64}]");
    far.near       = 8;
    far.pages_near = 256;
    ASSERT_CONTAINS(said(false), "  3: at node 1; 8 of the 16 processors of its worker are "
                                 "there, and its pinned memory is\n");
    pl_str_finish(&text);
}

TEST_MAIN()
