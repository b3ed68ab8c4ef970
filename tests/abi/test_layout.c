/*
 * Sizes and offsets of what programs pass by pointer, on 64-bit Linux. Fields may be added at the
 * end of a struct that begins with its size: then the size here grows, and nothing else may change.
 */
#include "plasmon/plasmon.h"
#include "tests/harness/test.h"

#define EXPECT_AT(type, field, offset) ASSERT_EQ(offsetof(struct type, field), offset)

TEST(structs_have_the_layout_that_programs_were_compiled_with)
{
    ASSERT_EQ(sizeof(struct plasmon_shape), 72);
    EXPECT_AT(plasmon_shape, ndim, 4);
    EXPECT_AT(plasmon_shape, dim, 8);

    ASSERT_EQ(sizeof(struct plasmon_options), 168);
    EXPECT_AT(plasmon_options, size, 0);
    EXPECT_AT(plasmon_options, address, 8);
    EXPECT_AT(plasmon_options, token, 16);
    EXPECT_AT(plasmon_options, name_space, 24);
    EXPECT_AT(plasmon_options, label, 32);
    EXPECT_AT(plasmon_options, cpu_devices, 40);
    EXPECT_AT(plasmon_options, gpus, 48);
    EXPECT_AT(plasmon_options, device_memory, 56);
    EXPECT_AT(plasmon_options, transfer, 64);
    EXPECT_AT(plasmon_options, policy, 72);
    EXPECT_AT(plasmon_options, connect_timeout_ms, 80);
    EXPECT_AT(plasmon_options, bin_dir, 88);
    EXPECT_AT(plasmon_options, check_functions, 96);
    EXPECT_AT(plasmon_options, library_dir, 104);
    EXPECT_AT(plasmon_options, host_memory, 112);
    EXPECT_AT(plasmon_options, tls_ca, 120);
    EXPECT_AT(plasmon_options, tls_cert, 128);
    EXPECT_AT(plasmon_options, tls_key, 136);
    EXPECT_AT(plasmon_options, spill_memory, 144);
    EXPECT_AT(plasmon_options, spill_dirs, 152);
    EXPECT_AT(plasmon_options, write_back, 160);
    EXPECT_AT(plasmon_options, no_prefetch, 164);

    ASSERT_EQ(sizeof(struct plasmon_put_options), 32);
    EXPECT_AT(plasmon_put_options, device, 8);
    EXPECT_AT(plasmon_put_options, donatable, 12);
    EXPECT_AT(plasmon_put_options, label, 16);
    EXPECT_AT(plasmon_put_options, replica, 24);

    ASSERT_EQ(sizeof(struct plasmon_arg), 32);
    EXPECT_AT(plasmon_arg, ref, 8);
    EXPECT_AT(plasmon_arg, shape, 16);
    EXPECT_AT(plasmon_arg, reduce_op, 24);
    EXPECT_AT(plasmon_arg, relaxed, 28);

    ASSERT_EQ(sizeof(struct plasmon_call), 104);
    EXPECT_AT(plasmon_call, function, 8);
    EXPECT_AT(plasmon_call, args, 16);
    EXPECT_AT(plasmon_call, arg_count, 24);
    EXPECT_AT(plasmon_call, scalars, 32);
    EXPECT_AT(plasmon_call, scalar_count, 40);
    EXPECT_AT(plasmon_call, label, 48);
    EXPECT_AT(plasmon_call, device, 56);
    EXPECT_AT(plasmon_call, retries, 60);
    EXPECT_AT(plasmon_call, grid, 64);
    EXPECT_AT(plasmon_call, block, 76);
    EXPECT_AT(plasmon_call, shared_bytes, 88);
    EXPECT_AT(plasmon_call, time_limit_ms, 92);
    EXPECT_AT(plasmon_call, priority, 96);
    EXPECT_AT(plasmon_call, function_retries, 100);

    ASSERT_EQ(sizeof(struct plasmon_graph_binding), 16);
    EXPECT_AT(plasmon_graph_binding, ref, 8);
    ASSERT_EQ(sizeof(struct plasmon_graph_scalar), 24);
    EXPECT_AT(plasmon_graph_scalar, call, 8);
    EXPECT_AT(plasmon_graph_scalar, position, 12);
    EXPECT_AT(plasmon_graph_scalar, value, 16);
    ASSERT_EQ(sizeof(struct plasmon_index_view), 384);
    EXPECT_AT(plasmon_index_view, count, 64);
    EXPECT_AT(plasmon_index_view, step, 128);
    EXPECT_AT(plasmon_index_view, step_of, 192);
    ASSERT_EQ(sizeof(struct plasmon_collective_options), 40);
    EXPECT_AT(plasmon_collective_options, devices, 8);
    EXPECT_AT(plasmon_collective_options, into, 16);
    EXPECT_AT(plasmon_collective_options, label, 24);
    EXPECT_AT(plasmon_collective_options, way, 32);
    ASSERT_EQ(sizeof(struct plasmon_index_space), 48);
    EXPECT_AT(plasmon_index_space, ndim, 8);
    EXPECT_AT(plasmon_index_space, count, 12);
    EXPECT_AT(plasmon_index_space, views, 24);
    EXPECT_AT(plasmon_index_space, scalar_steps, 32);
    EXPECT_AT(plasmon_index_space, spread, 40);

    ASSERT_EQ(sizeof(struct plasmon_device_info), 184);
    EXPECT_AT(plasmon_device_info, kind, 4);
    EXPECT_AT(plasmon_device_info, name, 8);
    EXPECT_AT(plasmon_device_info, node, 104);
    EXPECT_AT(plasmon_device_info, bytes_total, 168);
    EXPECT_AT(plasmon_device_info, same_host, 176);
    ASSERT_EQ(sizeof(struct plasmon_span), 112);
    EXPECT_AT(plasmon_span, end_ns, 32);
    EXPECT_AT(plasmon_span, device, 72);
    EXPECT_AT(plasmon_span, function, 96);
    ASSERT_EQ(sizeof(struct plasmon_timeline_options), 16);
    ASSERT_EQ(sizeof(struct plasmon_function_info), 24);
    ASSERT_EQ(sizeof(plasmon_scalar_t), 8);

    ASSERT_EQ(sizeof(struct plasmon_source_options), 32);
    EXPECT_AT(plasmon_source_options, c_text, 8);
    EXPECT_AT(plasmon_source_options, nvrtc_options, 16);
    EXPECT_AT(plasmon_source_options, entry, 24);
}

TEST(numbers_of_statuses_and_dtypes_are_frozen)
{
    ASSERT_EQ(PLASMON_INPROGRESS, 1);
    ASSERT_EQ(PLASMON_ENOMEM, -1);
    ASSERT_EQ(PLASMON_ECANCELLED, -22);
    ASSERT_EQ(PLASMON_EINTERNAL, -37);
    ASSERT_EQ(PLASMON_EGRAPH, -38);
    ASSERT_EQ(PLASMON_EHEADLOST, -39);
    ASSERT_EQ(PLASMON_ECOMPILE, -40);
    ASSERT_EQ(PLASMON_ETIMELIMIT, -41);
    ASSERT_EQ(PLASMON_ESINGULAR, -42);
    ASSERT_EQ(PLASMON_EBUSY, -43);
    ASSERT_EQ(PLASMON_ENOTREBUILDABLE, -44);
    ASSERT_EQ(PLASMON_BOOL, 1);
    ASSERT_EQ(PLASMON_F32, 12);
    ASSERT_EQ(PLASMON_C128, 15);
    ASSERT_EQ(PLASMON_INOUT, PLASMON_IN | PLASMON_OUT);
}

TEST_MAIN()
