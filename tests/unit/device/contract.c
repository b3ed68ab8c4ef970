/* The set-up that all contract tests share. */
#include "tests/unit/device/contract.h"

#include "base/fd.h"

static void open_words(struct contract *contract, int words_fd)
{
    void *words;

    ASSERT_OK(pl_fd_map(words_fd, contract_words_bytes(), 1, &words));
    contract->words = words;
    ASSERT_OK(device_host_register(contract->device, words, contract_words_bytes()));
}

static void open_host(struct contract *contract)
{
    void *host;
    int fd;

    ASSERT_OK(pl_memfd_create("contract-host", CONTRACT_HOST_BYTES, &fd));
    ASSERT_OK(pl_fd_map(fd, CONTRACT_HOST_BYTES, 1, &host));
    pl_fd_close(&fd);
    contract->host = host;
    ASSERT_OK(device_host_register(contract->device, host, CONTRACT_HOST_BYTES));
}

static void open_memory(struct contract *contract)
{
    const struct device_info *info = device_get_info(contract->device);

    contract->chunk_bytes = pl_round_up(CONTRACT_DEVICE_BYTES, info->chunk_granularity);
    ASSERT_OK(device_range_reserve(contract->device, 2 * contract->chunk_bytes,
                                   &contract->range));
    contract->memory = contract->range;
    ASSERT_OK(
        device_chunk_create(contract->device, contract->chunk_bytes, &contract->chunk));
    ASSERT_OK(device_chunk_map(contract->device, contract->chunk, contract->chunk_bytes,
                               info->ordinal, true, contract->memory));
}

size_t contract_words_bytes(void)
{
    return 4096;
}

void contract_open_sharing(struct contract *contract, int words_fd)
{
    static struct device *kept; /* and never closed: the next test finds the context */
    struct device_config config = {.bytes_max = 256u << 20};
    struct pl_err err           = {.status = PLASMON_OK};

    _Static_assert(CONTRACT_WORDS * sizeof(uint64_t) <= 4096, "the words fit");
    if (device_count(contract_kind, &err) == 0) {
        test_skip("%s", err.text);
    }
    if (contract_kind == DEVICE_CUDA && kept == NULL &&
        device_open(contract_kind, 0, &config, &kept, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "device_open: %s", err.text);
    }
    if (device_open(contract_kind, 0, &config, &contract->device, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "device_open: %s", err.text);
    }
    open_words(contract, words_fd);
    open_host(contract);
    open_memory(contract);
    ASSERT_OK(device_stream_create(contract->device, 0, &contract->stream));
    ASSERT_OK(device_stream_create(contract->device, DEVICE_STREAM_HIGH_PRIORITY,
                                   &contract->other));
}

void contract_open(struct contract *contract)
{
    int words_fd;

    ASSERT_OK(pl_memfd_create("contract-words", contract_words_bytes(), &words_fd));
    contract_open_sharing(contract, words_fd);
    pl_fd_close(&words_fd);
}

void contract_close(struct contract *contract)
{
    device_stream_destroy(contract->stream);
    device_stream_destroy(contract->other);
    device_chunk_unmap(contract->device, contract->memory, contract->chunk_bytes);
    device_range_release(contract->device, contract->range, 2 * contract->chunk_bytes);
    pl_fd_close(&contract->chunk);
    device_host_unregister(contract->device, contract->host);
    device_host_unregister(contract->device, contract->words);
    pl_fd_unmap(contract->host, CONTRACT_HOST_BYTES);
    pl_fd_unmap(contract->words, contract_words_bytes());
    device_close(contract->device);
}

void contract_gate_open(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
    device_word_wake(word);
}

uint64_t contract_word_load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

void contract_upload(struct contract *contract, struct device_ptr dst, const void *src,
                     size_t bytes)
{
    ASSERT_TRUE(bytes <= CONTRACT_HOST_BYTES);
    memcpy(contract->host, src, bytes);
    ASSERT_OK(device_copy(contract->stream, DEVICE_COPY_HOST_TO_DEVICE, dst.addr,
                          (uintptr_t)contract->host, bytes));
    ASSERT_OK(device_stream_sync(contract->stream, NULL));
}

void contract_download(struct contract *contract, void *dst, struct device_ptr src,
                       size_t bytes)
{
    ASSERT_TRUE(bytes <= CONTRACT_HOST_BYTES);
    ASSERT_OK(device_copy(contract->stream, DEVICE_COPY_DEVICE_TO_HOST,
                          (uintptr_t)contract->host, src.addr, bytes));
    ASSERT_OK(device_stream_sync(contract->stream, NULL));
    memcpy(dst, contract->host, bytes);
}

void contract_fill_random(void *bytes, size_t count, uint64_t *io_state)
{
    uint8_t *at = bytes;

    for (size_t i = 0; i < count; i++) {
        at[i] = (uint8_t)(test_random(io_state) >> 24);
    }
}

uint8_t contract_pattern(uint64_t seed, size_t i)
{
    return (uint8_t)((seed + i) * 0x9e3779b97f4a7c15ull >> 40);
}
