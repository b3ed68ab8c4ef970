/*
 * The samples are constants: messages as compound literals at file scope, strings that are not set
 * stay NULL, which packs as absent. Change nothing here without a new protocol version: golden/
 * pins their bytes.
 */
#include "tests/unit/wire/samples.h"

#include <assert.h>

#include "base/base.h"

#define LIST(type, ...) ((type[]){__VA_ARGS__})
#define TEXT(text)      ((char *)(uintptr_t)(text))
#define BYTES(text)                                                   \
    {                                                                 \
        .len = sizeof(text) - 1, .data = (uint8_t *)(uintptr_t)(text) \
    }
#define MESSAGE(type, lower, ...)                                               \
    LIST(Plasmon__V1__##type,                                                   \
         {.base = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__##lower##__descriptor), \
          __VA_ARGS__})

#define HEADER(number)                                                  \
    MESSAGE(Header, header, .protocol = 1, .epoch = 0x1122334455667788, \
            .session = 0x99aabbccddeeff00, .seq = (number), .ack = 41, .credit = 4096)
#define SHAPE \
    MESSAGE(Shape, shape, .dtype = PL_F32, .n_dim = 2, .dim = LIST(uint64_t, 64, 128))
#define RANGE(from, n) MESSAGE(Range, range, .first = (from), .count = (n))
#define RANGES         LIST(Plasmon__V1__Range *, RANGE(7, 1), RANGE(9, 1000))
#define VIEW           LIST(int64_t, 0, 32, 2, 5, 3, 1)
#define BOX            LIST(int64_t, 0, 64, 0, 128)
#define SMALL_BOX      LIST(int64_t, 8, 16, 4, 2)

/* ----------------------------------------------------------------------- client -> head */

#define ARG_IN  MESSAGE(Arg, arg, .mode = 1, .ref = 17, .n_view = 6, .view = VIEW)
#define ARG_OUT MESSAGE(Arg, arg, .mode = 2, .ref = 301, .shape = SHAPE)
#define ARG_REDUCE \
    MESSAGE(Arg, arg, .mode = 4, .ref = 18, .client = 0x42, .reduce_op = 1, .relaxed = 1)
#define TASK_RUN                                                                           \
    MESSAGE(Task, task, .id = 300, .function = 0xdeadbeef, .n_args = 3,                    \
            .args = LIST(Plasmon__V1__Arg *, ARG_IN, ARG_OUT, ARG_REDUCE), .n_scalars = 2, \
            .scalars = LIST(uint64_t, 5, 0x3ff0000000000000),                              \
            .label = TEXT("gemm \xc3\xa9"), .place = 2, .retries = 3,                      \
            .time_limit_ms = 500, .submit_ns = 77, .priority = -1, .function_retries = 2)
#define TASK_PUT                                                                          \
    MESSAGE(Task, task, .id = 302, .kind = PLASMON__V1__TASK_KIND__TASK_PUT, .n_args = 1, \
            .args = LIST(Plasmon__V1__Arg *, ARG_OUT), .data = BYTES("\0\1\2three"),      \
            .put_offset = 4096, .put_donatable = 1, .put_replica = 1)
#define TASK_SNAPSHOT                                                             \
    MESSAGE(Task, task, .id = 304, .kind = PLASMON__V1__TASK_KIND__TASK_SNAPSHOT, \
            .n_args = 2, .args = LIST(Plasmon__V1__Arg *, ARG_IN, ARG_OUT))

static const Plasmon__V1__ClientFrame client_frame = {
    .base      = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__client_frame__descriptor),
    .header    = HEADER(3),
    .n_tasks   = 3,
    .tasks     = LIST(Plasmon__V1__Task *, TASK_RUN, TASK_PUT, TASK_SNAPSHOT),
    .n_release = 2,
    .release   = RANGES,
    .n_locate  = 1,
    .locate    = LIST(Plasmon__V1__Locate *,
                      MESSAGE(Locate, locate, .request = 1, .ref = 17, .client = 2,
                              .n_view = 6, .view = VIEW, .hold_ref = 305, .gather = 1)),
    .n_read    = 1,
    .read =
        LIST(Plasmon__V1__Read *, MESSAGE(Read, read, .request = 2, .ref = 17, .n_view = 6,
                                          .view = VIEW, .offset = 8, .length = 1 << 20)),
    .n_cancel       = 2,
    .cancel         = LIST(uint64_t, 300, 302),
    .n_cancel_force = 1,
    .cancel_force   = LIST(uint64_t, 304),
    .trace          = MESSAGE(Trace, trace, .request = 8, .on = 1),
    .n_put_open     = 1,
    .put_open =
        LIST(Plasmon__V1__PutOpen *,
             MESSAGE(PutOpen, put_open, .request = 3, .ref = 306, .shape = SHAPE,
                     .place = 1, .donatable = 1, .label = TEXT("weights"), .replica = 1)),
    .n_put_seal = 1,
    .put_seal =
        LIST(Plasmon__V1__PutSeal *, MESSAGE(PutSeal, put_seal, .ref = 306, .abandon = 1)),
    .n_publish = 1,
    .publish   = LIST(Plasmon__V1__Publish *, MESSAGE(Publish, publish, .request = 4,
                                                      .name = TEXT("model"), .ref = 17)),
    .n_lookup  = 1,
    .lookup    = LIST(Plasmon__V1__Lookup *,
                      MESSAGE(Lookup, lookup, .request = 5, .name = TEXT("model"),
                              .new_ref = 307, .task = 308)),
    .ping      = 99,
    .bye       = 1,

    .host_copies_heard = 2,
};
static const Plasmon__V1__ClientFrame client_hello = {
    .base   = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__client_frame__descriptor),
    .header = HEADER(0),
    .hello  = MESSAGE(Hello, hello, .protocol_min = 1, .protocol_max = 1,
                      .token = BYTES("secret"), .namespace_ = TEXT("default"),
                      .resume_session = 0x5555, .resume_ack = 12,
                      .host = TEXT("boot-1/pid-1"), .label = TEXT("train")),
};

/* ----------------------------------------------------------------------- head -> client */

#define DEVICE                                                                        \
    MESSAGE(Device, device, .index = 1, .kind = 2, .ordinal = 1, .node = TEXT("n1"),  \
            .name = TEXT("H100"), .bytes_total = 80ull << 30, .host = TEXT("boot-1"), \
            .host_device = 1, .alive = 1, .bytes_used = 1, .bytes_replica = 2,        \
            .launches = 3, .queued = 4, .restarts = 5, .largest_hole = 6,             \
            .bytes_reserved = 7, .state = PLASMON__V1__DEVICE_STATE__DEVICE_STATE_UP)
#define SPANS                                                                                \
    LIST(Plasmon__V1__SpanBatch *,                                                           \
         MESSAGE(SpanBatch, span_batch, .device = 1, .run_streams = 4, .dropped = 2,         \
                 .error_ns = 3000, .n_spans = 1,                                             \
                 .spans   = LIST(Plasmon__V1__Span *,                                        \
                                 MESSAGE(Span, span, .seq = 12, .stream = 1, .kind = 1,      \
                                         .name = TEXT("gemm"), .label = TEXT("big"),         \
                                         .client = 7, .task = 300, .submit_ns = 1000,        \
                                         .placed_ns = 1001, .enqueued_ns = 1002,             \
                                         .begin_ns = 1003, .duration_ns = 50, .bytes = 4096, \
                                         .route = 1, .peer = 2)),                            \
                 .request = 9))

#define FAILURE                                                                            \
    MESSAGE(Failure, failure, .task = 300, .status = -34, .text = TEXT("gemm: k differs"), \
            .first_task = 299, .first_client = 0x42)

static const Plasmon__V1__HeadFrame head_frame = {
    .base   = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__head_frame__descriptor),
    .header = HEADER(4),
    .welcome =
        MESSAGE(Welcome, welcome, .protocol = 1, .epoch = 3, .session = 4, .client = 5,
                .n_devices = 1, .devices = LIST(Plasmon__V1__Device *, DEVICE),
                .store_socket = TEXT("/run/plasmon/store"), .resumed_seq = 9,
                .version = TEXT("0.1.0")),
    .n_spans   = 1,
    .spans     = SPANS,
    .n_done    = 2,
    .done      = RANGES,
    .n_failed  = 1,
    .failed    = LIST(Plasmon__V1__Failure *, FAILURE),
    .n_located = 1,
    .located   = LIST(
          Plasmon__V1__Located *,
          MESSAGE(Located, located, .request = 1, .shape = SHAPE, .n_locations = 1,
                  .locations = LIST(Plasmon__V1__Location *,
                                    MESSAGE(Location, location, .buffer = 0x1000002000003,
                                            .n_box = 4, .box = SMALL_BOX, .n_frame = 4,
                                            .frame = BOX, .producer_seq = 77)))),
    .n_data      = 1,
    .data        = LIST(Plasmon__V1__Data *,
                        MESSAGE(Data, data, .request = 2, .bytes = BYTES("\xff\0\xfe"), .total = 3,
                                .shape = SHAPE)),
    .n_put_ready = 1,
    .put_ready   = LIST(Plasmon__V1__PutReady *, MESSAGE(PutReady, put_ready, .request = 3,
                                                         .buffer = 0x1000002000003)),
    .n_replies   = 1,
    .replies =
        LIST(Plasmon__V1__Reply *, MESSAGE(Reply, reply, .request = 5, .status = -33,
                                           .text = TEXT("no such name"), .pending = 1)),
    .pong = 99,

    .host_copies = 2,
    .fatal       = FAILURE,
};

/* ------------------------------------------------------------------------------ workers */

#define OPERAND                                                                     \
    MESSAGE(Operand, operand, .mode = 2, .buffer = 0x1000002000003, .fresh = 1,     \
            .consume = 1, .dtype = PL_F32, .n_frame = 4, .frame = BOX, .n_view = 6, \
            .view = VIEW, .reduce_op = 1, .writable_by_client = 1, .replica = 1)
#define PIECE                                                                         \
    MESSAGE(Piece, piece, .src = 0x2000002000003, .n_src_frame = 4, .src_frame = BOX, \
            .n_box = 4, .box = SMALL_BOX)
#define LAUNCH                                                                             \
    MESSAGE(Launch, launch, .seq = 12, .order = 34,                                        \
            .kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY, .function = 0xdeadbeef,         \
            .n_operands = 1, .operands = LIST(Plasmon__V1__Operand *, OPERAND),            \
            .n_scalars = 1, .scalars = LIST(uint64_t, 5), .n_after = 2,                    \
            .after = LIST(uint64_t, 0x1000000000007, 0x2000000000008), .n_pieces = 1,      \
            .pieces = LIST(Plasmon__V1__Piece *, PIECE), .data = BYTES("data"),            \
            .offset = 4, .length = 5, .peer = 2, .request = 6, .client = 7, .task = 300,   \
            .label = TEXT("copy"), .time_limit_ms = 250, .submit_ns = 77, .placed_ns = 78, \
            .priority = 1)

static const Plasmon__V1__WorkerCommand worker_command = {
    .base    = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_command__descriptor),
    .header  = HEADER(5),
    .welcome = MESSAGE(WorkerWelcome, worker_welcome, .epoch = 3, .session = 4, .device = 1,
                       .host_device_count = 8, .resumed_seq = 2),
    .n_launches     = 1,
    .launches       = LIST(Plasmon__V1__Launch *, LAUNCH),
    .n_free         = 1,
    .free           = LIST(uint64_t, 0x1000002000003),
    .n_retire       = 1,
    .retire         = LIST(uint64_t, 0x1000003000001),
    .n_cancel       = 1,
    .cancel         = LIST(uint64_t, 12),
    .n_starve       = 1,
    .starve         = LIST(uint64_t, 13),
    .stats_request  = 1,
    .stop           = 1,
    .n_cancel_force = 1,
    .cancel_force   = LIST(uint64_t, 14),
    .trace          = MESSAGE(Trace, trace, .request = 9, .on = 1),
    .n_relief       = 1,
    .relief =
        LIST(Plasmon__V1__Relief *,
             MESSAGE(Relief, relief, .seq = 13, .request = 10, .buffer = 0x1000003000001,
                     .host_buffer = 3, .offset = 4096, .launch = 15)),
};
static const Plasmon__V1__WorkerFrame worker_frame = {
    .base   = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_frame__descriptor),
    .header = HEADER(6),
    .hello  = MESSAGE(
         WorkerHello, worker_hello, .token = BYTES("secret"), .host = TEXT("boot-1"),
         .node = TEXT("n1"), .host_device = 1, .kind = 2, .ordinal = 1, .name = TEXT("H100"),
         .bytes_total = 80ull << 30, .enqueued = 20, .n_unfinished = 2, .unfinished = RANGES,
         .incarnation = 2, .peer_capable = 1, .resume_session = 4, .resume_ack = 5,
         .received = 6, .memory = 0x7777, .n_held = 1, .held = LIST(uint32_t, 3)),
    .n_done    = 2,
    .done      = RANGES,
    .n_failed  = 1,
    .failed    = LIST(Plasmon__V1__LaunchFailure *,
                      MESSAGE(LaunchFailure, launch_failure, .seq = 12, .status = -5,
                              .text = TEXT("illegal address"))),
    .n_starved = 1,
    .starved =
        LIST(Plasmon__V1__Starved *,
             MESSAGE(Starved, starved, .seq = 13, .bytes = 1 << 20, .largest_hole = 4096)),
    .n_data = 1,
    .data   = LIST(Plasmon__V1__WorkerData *,
                   MESSAGE(WorkerData, worker_data, .request = 6, .bytes = BYTES("bytes"))),
    .stats  = MESSAGE(
         WorkerStats, worker_stats, .request = 1, .bytes_used = 2, .bytes_reserved = 3,
         .bytes_replica = 4, .largest_hole = 5, .launches = 6, .cpu_ns = 7, .driver_ns = 8,
         .n_pairs  = 1,
         .pairs    = LIST(Plasmon__V1__PairStats *,
                          MESSAGE(PairStats, pair_stats, .route = 2, .from = 1, .to = 3,
                                  .transfers = 4, .bytes = 5, .busy_ns = 6, .stalls = 7,
                                  .retries = 8, .relays = 9, .sent = 1, .written_bytes = 10)),
         .n_routes = 1,
         .routes =
             LIST(Plasmon__V1__RouteStats *,
                  MESSAGE(RouteStats, route_stats, .route = 1, .copies = 2, .bytes = 3))),
    .n_spans     = 1,
    .spans       = SPANS,
    .n_condemned = 1,
    .condemned   = LIST(Plasmon__V1__Condemned *,
                        MESSAGE(Condemned, condemned, .seq = 14, .status = -41,
                                .text = TEXT("too long"), .fence = 1)),
};

/* ------------------------------------------------------------------------------- stores */

static const Plasmon__V1__NodeFrame node_frame = {
    .base   = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__node_frame__descriptor),
    .header = HEADER(7),
    .hello =
        MESSAGE(NodeHello, node_hello, .token = BYTES("secret"), .host = TEXT("boot-1"),
                .node = TEXT("n1"), .store_socket = TEXT("/run/plasmon/store"),
                .devices = 8, .memory = 0x7777, .spill_memory = 1 << 30,
                .spill_files = 1ull << 40, .spill_life = 0x55, .spill_slab = 0x66,
                .spill_write_back = 75, .spill_on_demand = 1),
    .n_down       = 1,
    .down         = LIST(Plasmon__V1__WorkerDown *,
                         MESSAGE(WorkerDown, worker_down, .host_device = 1, .incarnation = 2,
                                 .wait_status = 9, .text = TEXT("killed"), .quarantined = 1,
                                 .status = -5)),
    .beat         = 5,
    .leave        = MESSAGE(NodeLeave, node_leave, .deadline_ms = 20000),
    .n_spill_done = 1,
    .spill_done   = LIST(Plasmon__V1__SpillDone *,
                         MESSAGE(SpillDone, spill_done, .id = 7, .status = -20,
                                 .host_buffer = 0x99, .text = TEXT("the disk is full"))),
};
static const Plasmon__V1__NodeCommand node_command = {
    .base    = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__node_command__descriptor),
    .header  = HEADER(8),
    .welcome = MESSAGE(NodeWelcome, node_welcome, .epoch = 3, .cluster = TEXT("cluster-1")),
    .stop    = 1,
    .n_fence = 2,
    .fence   = LIST(uint32_t, 0, 3),
    .n_fence_incarnation = 2,
    .fence_incarnation   = LIST(uint32_t, 1, 7),
    .left    = MESSAGE(NodeLeft, node_left, .objects_left = 2, .bytes_left = 4096,
                       .text = TEXT("no room")),
    .n_spill = 1,
    .spill   = LIST(Plasmon__V1__SpillOp *,
                    MESSAGE(SpillOp, spill_op, .id = 7, .kind = 2, .host_buffer = 0x99,
                            .offset = 4096, .bytes = 8192, .file = 7)),
};

/* ------------------------------------------------------ recorded graphs, index launches */

#define GRAPH_SCALAR                                                               \
    LIST(Plasmon__V1__GraphScalar *, MESSAGE(GraphScalar, graph_scalar, .task = 7, \
                                             .position = 1, .value = 0x4000000000000000))
#define TASK_RECORDED                                                   \
    MESSAGE(Task, task, .id = 400, .function = 0xdeadbeef, .n_args = 2, \
            .args = LIST(Plasmon__V1__Arg *, ARG_IN, ARG_OUT), .graph = 9)
#define TASK_GRAPH_END                                                             \
    MESSAGE(Task, task, .id = 401, .kind = PLASMON__V1__TASK_KIND__TASK_GRAPH_END, \
            .n_args = 1, .args = LIST(Plasmon__V1__Arg *, ARG_OUT), .graph = 9)
#define TASK_GRAPH_LAUNCH                                                                   \
    MESSAGE(Task, task, .id = 402, .kind = PLASMON__V1__TASK_KIND__TASK_GRAPH_LAUNCH,       \
            .graph = 9, .n_bind = 1,                                                        \
            .bind  = LIST(Plasmon__V1__GraphBinding *,                                      \
                          MESSAGE(GraphBinding, graph_binding, .recorded = 17, .ref = 19)), \
            .n_set = 1, .set = GRAPH_SCALAR)
#define ARG_INDEXED                                                                     \
    MESSAGE(Arg, arg, .mode = 2, .ref = 302, .shape = SHAPE, .n_view = 6, .view = VIEW, \
            .n_index_step = 4, .index_step = LIST(int64_t, 0, 16, -8, 0))
#define TASK_INDEXED                                                                      \
    MESSAGE(Task, task, .id = 403, .function = 0xdeadbeef, .n_args = 1,                   \
            .args = LIST(Plasmon__V1__Arg *, ARG_INDEXED), .n_scalars = 1,                \
            .scalars = LIST(uint64_t, 5),                                                 \
            .index   = MESSAGE(Index, index, .n_count = 2, .count = LIST(uint64_t, 3, 5), \
                               .spread = 1, .n_scalar_step = 2,                           \
                               .scalar_step = LIST(uint64_t, 1, 0), .float_scalars = 1))

static const Plasmon__V1__ClientFrame client_graph = {
    .base    = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__client_frame__descriptor),
    .header  = HEADER(4),
    .n_tasks = 4,
    .tasks   = LIST(Plasmon__V1__Task *, TASK_RECORDED, TASK_GRAPH_END, TASK_GRAPH_LAUNCH,
                    TASK_INDEXED),
    .n_graph_release = 2,
    .graph_release   = LIST(uint64_t, 8, 9),
};

static const Plasmon__V1__ClientFrame client_compact = {
    .base     = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__client_frame__descriptor),
    .header   = HEADER(5),
    .n_locate = 1,
    .locate   = LIST(Plasmon__V1__Locate *,
                     MESSAGE(Locate, locate, .request = 9, .ref = 17, .n_view = 6,
                             .view = VIEW, .hold_ref = 307, .compact = 1)),
};

#define NODE_OPERAND                                                                 \
    MESSAGE(Operand, operand, .mode = 1, .dtype = PL_F32, .n_view = 6, .view = VIEW, \
            .graph_operand = 1)
#define NODE_TEMPORARY                                                                \
    MESSAGE(Operand, operand, .mode = 2, .dtype = PL_F32, .n_frame = 4, .frame = BOX, \
            .n_view = 6, .view = VIEW, .graph_offset = 4096)
#define NODE                                                                             \
    MESSAGE(GraphNode, graph_node,                                                       \
            .launch = MESSAGE(                                                           \
                Launch, launch, .function = 0xdeadbeef, .n_operands = 2,                 \
                .operands  = LIST(Plasmon__V1__Operand *, NODE_OPERAND, NODE_TEMPORARY), \
                .n_scalars = 1, .scalars = LIST(uint64_t, 5), .label = TEXT("step")),    \
            .n_after = 2, .after = LIST(uint32_t, 3, 99), .branch = 1)

static const Plasmon__V1__WorkerCommand worker_graph = {
    .base       = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_command__descriptor),
    .header     = HEADER(6),
    .n_graphs   = 1,
    .graphs     = LIST(Plasmon__V1__GraphPart *,
                       MESSAGE(GraphPart, graph_part, .id = 3, .first = 100, .n_nodes = 1,
                               .nodes = LIST(Plasmon__V1__GraphNode *, NODE), .operands = 2,
                               .branches = 2, .bytes = 65536, .last = 1)),
    .n_launches = 1,
    .launches =
        LIST(Plasmon__V1__Launch *,
             MESSAGE(Launch, launch, .seq = 13, .order = 35,
                     .kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_GRAPH, .n_operands = 1,
                     .operands = LIST(Plasmon__V1__Operand *, OPERAND), .graph = 3,
                     .n_set = 1, .set = GRAPH_SCALAR)),
    .n_graph_free = 2,
    .graph_free   = LIST(uint64_t, 1, 2),
};

/* -------------------------------------------------------------------------- host memory */

#define TASK_PUT_HOST                                                             \
    MESSAGE(Task, task, .id = 305, .kind = PLASMON__V1__TASK_KIND__TASK_PUT_HOST, \
            .n_args = 1, .args = LIST(Plasmon__V1__Arg *, ARG_OUT),               \
            .host_buffer = 0x8877665544332211, .host_offset = 4096)
#define TASK_GET_HOST                                                             \
    MESSAGE(Task, task, .id = 306, .kind = PLASMON__V1__TASK_KIND__TASK_GET_HOST, \
            .n_args = 1, .args = LIST(Plasmon__V1__Arg *, ARG_IN), .host_buffer = 7)

static const Plasmon__V1__ClientFrame client_host = {
    .base    = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__client_frame__descriptor),
    .header  = HEADER(8),
    .n_tasks = 2,
    .tasks   = LIST(Plasmon__V1__Task *, TASK_PUT_HOST, TASK_GET_HOST),
};

static const Plasmon__V1__WorkerCommand worker_host = {
    .base       = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_command__descriptor),
    .header     = HEADER(8),
    .n_launches = 2,
    .launches =
        LIST(Plasmon__V1__Launch *,
             MESSAGE(Launch, launch, .seq = 14, .order = 36,
                     .kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_PUT_HOST, .n_operands = 1,
                     .operands = LIST(Plasmon__V1__Operand *, OPERAND), .offset = 4096,
                     .host_buffer = 0x8877665544332211),
             MESSAGE(Launch, launch, .seq = 15, .order = 37,
                     .kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_GET_HOST, .n_operands = 1,
                     .operands = LIST(Plasmon__V1__Operand *, OPERAND), .host_buffer = 7)),
};

/* -------------------------------------------------------------------- defined functions */

#define DEFINE_SOURCE                                                                      \
    MESSAGE(                                                                               \
        FunctionDefine, function_define, .id = WIRE_FUNCTION_FIRST + 2,                    \
        .name      = TEXT("saxpy"),                                                        \
        .signature = TEXT("saxpy(inout f32[n] y, in f32[n] x, f32 a)"),                    \
        .cuda_text = BYTES("__global__ void saxpy(float *y, const float *x, float a) {}"), \
        .c_text    = BYTES("void saxpy(float *y, const float *x, float a) {}"),            \
        .options = TEXT("-use_fast_math"), .entry = TEXT("saxpy"),                         \
        .hash = BYTES("\x7d\x5e\xbb\xd5\x7f\xde\x58\xec\x7e\x3e\x4d\xd6\x60\xe3\x4e\xcb"   \
                      "\x2b\x33\x05\x1f\x2e\xc6\x21\x6c\xa3\xc2\x07\x88\x23\xf7\x0d\xe3"))
#define DEFINE_LIBRARY                                                                   \
    MESSAGE(FunctionDefine, function_define, .id = WIRE_FUNCTION_FIRST + 3,              \
            .name = TEXT("solve"), .signature = TEXT("solve(inout f64[n,n] a)"),         \
            .library = TEXT("libsolve.so"), .symbol = TEXT("solve_entry"),               \
            .hash =                                                                      \
                BYTES("\x17\xe4\xc2\xac\xde\x90\x6d\x35\x0d\x47\xf3\xc9\x0b\x17\x86\x9d" \
                      "\x85\x82\x3e\xda\xe0\xeb\x81\xce\xf1\x2b\xd8\xcb\x7e\x3e\xd2\x35"))
#define DEFINES    LIST(Plasmon__V1__FunctionDefine *, DEFINE_SOURCE, DEFINE_LIBRARY)
#define GRID_BLOCK LIST(uint32_t, 132, 1, 1, 256, 1, 1, 65536)
#define ARG_DENSE  MESSAGE(Arg, arg, .mode = 1, .ref = 17, .dense = 1)

static const Plasmon__V1__ClientFrame client_function = {
    .base            = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__client_frame__descriptor),
    .header          = HEADER(5),
    .n_define        = 2,
    .define          = DEFINES,
    .n_tasks         = 1,
    .tasks           = LIST(Plasmon__V1__Task *,
                            MESSAGE(Task, task, .id = 404, .function = WIRE_FUNCTION_FIRST + 2,
                                    .n_args = 1, .args = LIST(Plasmon__V1__Arg *, ARG_DENSE),
                                    .n_launch_shape = 7, .launch_shape = GRID_BLOCK)),
    .n_function_wait = 1,
    .function_wait =
        LIST(Plasmon__V1__FunctionWait *, MESSAGE(FunctionWait, function_wait, .request = 6,
                                                  .function = WIRE_FUNCTION_FIRST + 2)),
};

static const Plasmon__V1__WorkerCommand worker_bulk = {
    .base         = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_command__descriptor),
    .header       = HEADER(7),
    .n_bulk_peers = 2,
    .bulk_peers =
        LIST(Plasmon__V1__BulkPeer *,
             MESSAGE(BulkPeer, bulk_peer, .device = 3, .address = TEXT("[fe80::1]:7071"),
                     .secret = BYTES("sixteen bytes !!")),
             MESSAGE(BulkPeer, bulk_peer, .device = 4, .gone = 1)),
    .n_bulk_give_up = 1,
    .bulk_give_up =
        LIST(Plasmon__V1__BulkGiveUp *, MESSAGE(BulkGiveUp, bulk_give_up, .device = 5,
                                                .receives = 1, .first = 77, .count = 3)),
};
static const Plasmon__V1__WorkerFrame worker_bulk_hello = {
    .base   = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_frame__descriptor),
    .header = HEADER(6),
    .hello  = MESSAGE(WorkerHello, worker_hello, .host = TEXT("boot-1"), .node = TEXT("n1"),
                      .memory = 0x7777, .kind = 2, .name = TEXT("H100"), .incarnation = 1,
                      .bulk_address = TEXT("10.0.0.1:7071"),
                      .bulk_secret  = BYTES("sixteen bytes !!")),
};
/* Clients of other hosts that use the bulk channel. */
static const Plasmon__V1__WorkerFrame worker_bulk_tls_hello = {
    .base   = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_frame__descriptor),
    .header = HEADER(6),
    .hello  = MESSAGE(WorkerHello, worker_hello, .host = TEXT("boot-1"), .node = TEXT("n1"),
                      .memory = 0x7777, .kind = 2, .name = TEXT("H100"), .incarnation = 1,
                      .bulk_address = TEXT("10.0.0.1:7071"),
                      .bulk_secret = BYTES("sixteen bytes !!"), .bulk_tls = 1,
                      .bulk_clock_ms = 123456789),
};
static const Plasmon__V1__WorkerFrame worker_rates = {
    .base   = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_frame__descriptor),
    .header = HEADER(9),
    .stats  = MESSAGE(WorkerStats, worker_stats, .request = 7, .n_pairs = 1,
                      .pairs = LIST(Plasmon__V1__PairStats *,
                                    MESSAGE(PairStats, pair_stats, .route = 2, .to = 3,
                                            .retries = 1, .sent = 1, .rate = 1200000000,
                                            .unreached_ms = 61000, .unreached_last = 79,
                                            .unreached_why = TEXT("10.0.0.2:7100: x")))),
};
static const Plasmon__V1__ClientFrame client_bulk = {
    .base     = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__client_frame__descriptor),
    .header   = HEADER(7),
    .n_locate = 1,
    .locate   = LIST(Plasmon__V1__Locate *, MESSAGE(Locate, locate, .request = 9, .ref = 17,
                                                    .hold_ref = 305, .bulk = 1)),
    .n_put_open = 1,
    .put_open =
        LIST(Plasmon__V1__PutOpen *, MESSAGE(PutOpen, put_open, .request = 3, .ref = 306,
                                             .shape = SHAPE, .place = 1, .bulk = 1)),
};
#define GRANT(tls_)                                                                    \
    MESSAGE(BulkGrant, bulk_grant, .address = TEXT("10.0.0.1:7071"),                   \
            .ticket = BYTES("a ticket of 64 bytes, of which nobody but the worker can" \
                            " tell .."),                                               \
            .tls    = tls_)
static const Plasmon__V1__HeadFrame head_bulk = {
    .base      = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__head_frame__descriptor),
    .header    = HEADER(8),
    .n_located = 1,
    .located   = LIST(
          Plasmon__V1__Located *,
          MESSAGE(Located, located, .request = 9, .shape = SHAPE, .n_locations = 1,
                  .locations = LIST(Plasmon__V1__Location *,
                                    MESSAGE(Location, location, .buffer = 0x1000002000003,
                                            .n_box = 4, .box = SMALL_BOX, .n_frame = 4,
                                            .frame = BOX, .bulk = GRANT(0))))),
    .n_put_ready = 1,
    .put_ready =
        LIST(Plasmon__V1__PutReady *, MESSAGE(PutReady, put_ready, .request = 3,
                                              .buffer = 0x1000002000003, .bulk = GRANT(1))),
};
static const Plasmon__V1__WorkerFrame worker_begun = {
    .base   = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_frame__descriptor),
    .header = HEADER(6),
    .hello  = MESSAGE(WorkerHello, worker_hello, .host = TEXT("boot-1"), .node = TEXT("n1"),
                      .memory = 0x7777, .kind = 1, .name = TEXT("CPU"), .incarnation = 2,
                      .enqueued = 20, .n_unfinished = 2, .unfinished = RANGES,
                      .n_untouched = 2, .untouched = RANGES),
};
static const Plasmon__V1__WorkerFrame worker_waits = {
    .base   = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_frame__descriptor),
    .header = HEADER(6),
    .stats  = MESSAGE(
         WorkerStats, worker_stats, .request = 1, .n_waits = 2,
         .waits =
             LIST(Plasmon__V1__LaunchWait *,
                  MESSAGE(LaunchWait, launch_wait, .seq = 12, .stream = 0,
                          .why = PLASMON__V1__WAIT_WHY__WAIT_MEMORY, .since_ms = 1200,
                          .function = TEXT("gemm"), .label = TEXT("step 3"), .client = 7,
                          .task = 17, .text = TEXT("it needs 4 MiB"), .behind = 3),
                  MESSAGE(LaunchWait, launch_wait, .seq = 11, .stream = 2,
                          .why = PLASMON__V1__WAIT_WHY__WAIT_HALF, .function = TEXT("send"),
                          .point = 1ull << 48 | 5, .peer = 2))),
};
static const Plasmon__V1__WorkerFrame worker_numa = {
    .base   = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_frame__descriptor),
    .header = HEADER(6),
    .stats  = MESSAGE(WorkerStats, worker_stats, .request = 1,
                      .numa = MESSAGE(NumaPlace, numa_place, .node = 2, .nodes = 2,
                                      .processors = 32, .near = 16, .pages = 256,
                                      .pages_near = 255)),
};
static const Plasmon__V1__WorkerCommand worker_function = {
    .base            = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_command__descriptor),
    .header          = HEADER(7),
    .n_functions     = 2,
    .functions       = DEFINES,
    .n_launches      = 1,
    .launches        = LIST(Plasmon__V1__Launch *,
                            MESSAGE(Launch, launch, .seq = 14, .order = 36,
                                    .function = WIRE_FUNCTION_FIRST + 2, .n_launch_shape = 7,
                                    .launch_shape = GRID_BLOCK)),
    .n_function_free = 2,
    .function_free   = LIST(uint32_t, WIRE_FUNCTION_FIRST, WIRE_FUNCTION_FIRST + 1),
};

static const Plasmon__V1__WorkerFrame worker_report = {
    .base        = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_frame__descriptor),
    .header      = HEADER(8),
    .n_functions = 1,
    .functions =
        LIST(Plasmon__V1__FunctionReport *,
             MESSAGE(FunctionReport, function_report, .id = WIRE_FUNCTION_FIRST + 2,
                     .status = -40, .text = TEXT("saxpy(3): error: expected a \";\""))),
};

#define PAIR_ID                                                              \
    BYTES("an id of a pair is whatever NCCL makes of it; this one fills its" \
          " 128 bytes with words: .........................................")
#define TASK_COLLECTIVE                                                               \
    MESSAGE(Task, task, .id = 306, .kind = PLASMON__V1__TASK_KIND__TASK_COLLECTIVE,   \
            .n_args = 3, .args = LIST(Plasmon__V1__Arg *, ARG_IN, ARG_IN, ARG_OUT),   \
            .label      = TEXT("sum"),                                                \
            .collective = MESSAGE(                                                    \
                Collective, collective, .kind = PLASMON__V1__COLLECTIVE_KIND__REDUCE, \
                .op = 5, .way = 1, .n_place = 1, .place = LIST(uint32_t, 3), .root = 1))
static const Plasmon__V1__ClientFrame client_collective = {
    .base    = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__client_frame__descriptor),
    .header  = HEADER(4),
    .n_tasks = 1,
    .tasks   = LIST(Plasmon__V1__Task *, TASK_COLLECTIVE),
};
/* A piece that comes to lie elsewhere than in its source. */
static const Plasmon__V1__WorkerCommand worker_collective = {
    .base       = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_command__descriptor),
    .header     = HEADER(6),
    .n_launches = 1,
    .launches   = LIST(
          Plasmon__V1__Launch *,
          MESSAGE(
              Launch, launch, .seq = 13, .order = 35,
              .kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_COPY, .n_operands = 1,
              .operands = LIST(Plasmon__V1__Operand *,
                               MESSAGE(Operand, operand, .mode = 2, .buffer = 0x1000002000003,
                                       .fresh = 1, .dtype = PL_F32, .n_frame = 4,
                                       .frame = LIST(int64_t, 0, 64, 0, 128))),
              .n_pieces = 1,
              .pieces   = LIST(Plasmon__V1__Piece *,
                               MESSAGE(Piece, piece, .src = 0x2000002000003, .n_src_frame = 4,
                                       .src_frame = LIST(int64_t, -100, 200, 0, 128),
                                       .n_box = 4, .box = LIST(int64_t, 8, 16, 4, 2))))),
};
static const Plasmon__V1__WorkerCommand worker_pairs = {
    .base    = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_command__descriptor),
    .header  = HEADER(9),
    .n_pairs = 3,
    .pairs   = LIST(
          Plasmon__V1__PairOrder *,
          MESSAGE(PairOrder, pair_order, .peer = 3, .receives = 1, .epoch = 2, .id = PAIR_ID),
          MESSAGE(PairOrder, pair_order, .peer = 3, .epoch = 1,
                  .state = PLASMON__V1__PAIR_STATE__PAIR_BROKEN),
          MESSAGE(PairOrder, pair_order, .peer = 3, .epoch = 1,
                  .state = PLASMON__V1__PAIR_STATE__PAIR_STAGED)),
    .n_sent     = 2,
    .sent       = LIST(uint64_t, 17, 18),
    .n_launches = 2,
    .launches =
        LIST(Plasmon__V1__Launch *,
             MESSAGE(Launch, launch, .seq = 15, .order = 37, .peer = 3,
                     .kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN, .length = 1, .pair = 2),
             MESSAGE(Launch, launch, .seq = 16, .order = 38, .peer = 3,
                     .kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_CLOSE, .pair = 1)),
};
static const Plasmon__V1__WorkerFrame worker_pair_reports = {
    .base   = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_frame__descriptor),
    .header = HEADER(9),
    .hello  = MESSAGE(WorkerHello, worker_hello, .host = TEXT("boot-1"), .node = TEXT("n1"),
                      .memory = 0x7777, .kind = 2, .name = TEXT("H100"), .incarnation = 1,
                      .comm_version = 22809, .comm_plain = 1, .comm_missing = TEXT("")),
    .n_pairs = 3,
    .pairs =
        LIST(Plasmon__V1__PairReport *,
             MESSAGE(PairReport, pair_report, .peer = 3, .epoch = 2, .id = PAIR_ID),
             MESSAGE(PairReport, pair_report, .peer = 3, .receives = 1, .epoch = 2,
                     .event = PLASMON__V1__PAIR_EVENT__PAIR_OPENED, .bytes = 150u << 20),
             MESSAGE(PairReport, pair_report, .peer = 3, .epoch = 1, .chunk = 77,
                     .event = PLASMON__V1__PAIR_EVENT__PAIR_TROUBLE,
                     .text  = TEXT("the other side is gone"))),
};

static const Plasmon__V1__WorkerCommand worker_teams = {
    .base    = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_command__descriptor),
    .header  = HEADER(9),
    .n_pairs = 2,
    .pairs   = LIST(
          Plasmon__V1__PairOrder *,
          MESSAGE(PairOrder, pair_order, .team = 2, .receives = 1, .epoch = 3, .id = PAIR_ID),
          MESSAGE(PairOrder, pair_order, .team = 1, .epoch = 4,
                  .state = PLASMON__V1__PAIR_STATE__PAIR_BROKEN)),
    .n_launches = 1,
    .launches   = LIST(Plasmon__V1__Launch *,
                       MESSAGE(Launch, launch, .seq = 14, .order = 36, .team = 2, .ranks = 4,
                               .kind = PLASMON__V1__LAUNCH_KIND__LAUNCH_OPEN, .length = 3,
                               .pair = 3)),
};
static const Plasmon__V1__WorkerFrame worker_team_reports = {
    .base    = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__worker_frame__descriptor),
    .header  = HEADER(9),
    .n_pairs = 1,
    .pairs   = LIST(Plasmon__V1__PairReport *,
                    MESSAGE(PairReport, pair_report, .team = 2, .receives = 1, .epoch = 3,
                            .event = PLASMON__V1__PAIR_EVENT__PAIR_STALLED, .chunk = 36)),
};

/* ---------------------------------------------------------------------------- the table */

#define DECODE(function, type)                                                            \
    static plasmon_status_t sample_##function(struct wire_arena *arena,                   \
                                              const uint8_t *bytes, size_t length,        \
                                              ProtobufCMessage **out, struct pl_err *err) \
    {                                                                                     \
        Plasmon__V1__##type *frame = NULL;                                                \
        plasmon_status_t status =                                                         \
            wire_decode_##function(arena, bytes, length, &frame, err);                    \
                                                                                          \
        *out = frame == NULL ? NULL : &frame->base;                                       \
        return status;                                                                    \
    }
DECODE(client_frame, ClientFrame)
DECODE(head_frame, HeadFrame)
DECODE(worker_frame, WorkerFrame)
DECODE(worker_command, WorkerCommand)
DECODE(node_frame, NodeFrame)
DECODE(node_command, NodeCommand)

/* head_frame twice: once as it is, once as what a fresh session sees first. */
static const Plasmon__V1__HeadFrame head_ack = {
    .base   = PROTOBUF_C_MESSAGE_INIT(&plasmon__v1__head_frame__descriptor),
    .header = HEADER(0),
};

static const struct wire_sample sample_table[WIRE_SAMPLE_COUNT] = {
    {"client_frame", &client_frame.base, sample_client_frame},
    {"client_hello", &client_hello.base, sample_client_frame},
    {"head_frame", &head_frame.base, sample_head_frame},
    {"head_ack", &head_ack.base, sample_head_frame},
    {"worker_frame", &worker_frame.base, sample_worker_frame},
    {"worker_command", &worker_command.base, sample_worker_command},
    {"node_frame", &node_frame.base, sample_node_frame},
    {"node_command", &node_command.base, sample_node_command},
    {"client_graph", &client_graph.base, sample_client_frame},
    {"worker_graph", &worker_graph.base, sample_worker_command},
    {"client_host", &client_host.base, sample_client_frame},
    {"worker_host", &worker_host.base, sample_worker_command},
    {"client_function", &client_function.base, sample_client_frame},
    {"worker_function", &worker_function.base, sample_worker_command},
    {"worker_bulk", &worker_bulk.base, sample_worker_command},
    {"worker_bulk_hello", &worker_bulk_hello.base, sample_worker_frame},
    {"worker_report", &worker_report.base, sample_worker_frame},
    {"client_compact", &client_compact.base, sample_client_frame},
    {"worker_pairs", &worker_pairs.base, sample_worker_command},
    {"worker_teams", &worker_teams.base, sample_worker_command},
    {"client_collective", &client_collective.base, sample_client_frame},
    {"worker_collective", &worker_collective.base, sample_worker_command},
    {"worker_pair_reports", &worker_pair_reports.base, sample_worker_frame},
    {"worker_team_reports", &worker_team_reports.base, sample_worker_frame},
    {"client_bulk", &client_bulk.base, sample_client_frame},
    {"head_bulk", &head_bulk.base, sample_head_frame},
    {"worker_rates", &worker_rates.base, sample_worker_frame},
    {"worker_bulk_tls_hello", &worker_bulk_tls_hello.base, sample_worker_frame},
    {"worker_begun", &worker_begun.base, sample_worker_frame},
    {"worker_waits", &worker_waits.base, sample_worker_frame},
    {"worker_numa", &worker_numa.base, sample_worker_frame},
};

const struct wire_sample *wire_samples(void)
{
    return sample_table;
}

static Plasmon__V1__Task *sample_task(struct wire_arena *arena, uint64_t id)
{
    Plasmon__V1__Task *task = wire_arena_alloc(arena, sizeof(*task));
    Plasmon__V1__Arg *arg   = wire_arena_alloc(arena, 2 * sizeof(*arg));
    Plasmon__V1__Arg **args = wire_arena_alloc(arena, 2 * sizeof(*args));
    uint64_t *scalars       = wire_arena_alloc(arena, 2 * sizeof(*scalars));

    assert(task != NULL && arg != NULL && args != NULL && scalars != NULL);

    plasmon__v1__task__init(task);
    for (size_t i = 0; i < 2; i++) {
        plasmon__v1__arg__init(&arg[i]);
        arg[i].mode = i == 0 ? PLASMON__V1__MODE__MODE_IN : PLASMON__V1__MODE__MODE_INOUT;
        arg[i].ref  = id / 2 + i + 1;
        args[i]     = &arg[i];
        scalars[i]  = id * 3 + i;
    }
    task->id        = id;
    task->function  = pl_hash_name("axpy");
    task->n_args    = 2;
    task->args      = args;
    task->n_scalars = 2;
    task->scalars   = scalars;
    return task;
}

Plasmon__V1__ClientFrame *wire_sample_tasks(struct wire_arena *arena, size_t count)
{
    Plasmon__V1__ClientFrame *frame = wire_arena_alloc(arena, sizeof(*frame));
    Plasmon__V1__Header *header     = wire_arena_alloc(arena, sizeof(*header));
    Plasmon__V1__Task **tasks       = wire_arena_alloc(arena, count * sizeof(*tasks));

    assert(frame != NULL && header != NULL && tasks != NULL);

    plasmon__v1__client_frame__init(frame);
    plasmon__v1__header__init(header);
    header->protocol = WIRE_PROTOCOL;
    header->seq      = 1;
    for (size_t i = 0; i < count; i++) {
        tasks[i] = sample_task(arena, 1000 + i);
    }
    frame->header  = header;
    frame->n_tasks = count;
    frame->tasks   = tasks;
    return frame;
}
