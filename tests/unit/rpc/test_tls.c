/*
 * Mutual TLS between a server and a channel in one process: who gets in, who does not, and that
 * each is told why. Over TCP on loopback.
 */
#include "tests/harness/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "tests/unit/rpc/peer.h"
#include "tests/unit/trust/certificates.h"

#define PATIENCE_MS 60000u

/*
 * A channel that is destroyed while the core tries to connect leaves that handshake to a thread of
 * the core, which may not have got to it when the process ends. What trust/ itself allocates is
 * looked at in test_trust.
 */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:CRYPTO_zalloc\nleak:CRYPTO_malloc\n";
}

/* What a call was let in with. */
struct seen {
    struct pl_mutex lock;
    uint32_t roles; /* 0: none */
    char name[64];
    char name_space[64];
    int token_index;
};

struct cluster {
    struct certificates all;
    struct trust_source *server_trust;
    struct rpc_loop *loop;
    struct rpc_loop *client_loop; /* of its own, as in a process of its own */
    struct rpc_server *server;
    struct seen seen;
    char address[64];
};

static void note(struct cluster *cluster, const struct trust_identity *identity,
                 int token_index)
{
    struct seen *seen = &cluster->seen;

    pl_mutex_lock(&seen->lock);
    seen->roles       = identity != NULL ? identity->roles : 0;
    seen->token_index = token_index;
    (void)snprintf(seen->name, sizeof(seen->name), "%s",
                   identity != NULL ? identity->name : "");
    (void)snprintf(seen->name_space, sizeof(seen->name_space), "%s",
                   identity != NULL ? identity->name_space : "");
    pl_mutex_unlock(&seen->lock);
}

static void answer(void *user, struct rpc_unary *call, const uint8_t *bytes, size_t length)
{
    (void)bytes;
    (void)length;
    note(user, rpc_unary_identity(call), rpc_unary_token_index(call));
    rpc_unary_reply(call, rpc_buffer_create(0), 0);
}

static plasmon_status_t accept_stream(void *user, struct rpc_stream *stream,
                                      struct pl_err *err)
{
    note(user, rpc_stream_identity(stream), rpc_stream_token_index(stream));
    return pl_err_set(err, PLASMON_ECANCELLED, "seen");
}

static const struct rpc_method methods[] = {
    {.path = "/test.Test/Any", .unary = answer},
    {.path = "/test.Test/Host", .unary = answer, .roles = TRUST_ROLE_HOST},
    {.path = "/test.Test/HostStream", .accept = accept_stream, .roles = TRUST_ROLE_HOST},
    {.path = "/test.Test/Whole", .unary = answer, .whole_cluster = true},
};
static const char *const tokens[] = {"of-team-a", "of-team-b", NULL};
static const char *token_before;

static void cluster_start(struct cluster *cluster, const char *certificate, bool tls)
{
    const char *addresses[]         = {"127.0.0.1:0", NULL};
    struct rpc_server_config config = {.addresses    = addresses,
                                       .token        = "secret",
                                       .token_before = token_before,
                                       .tokens       = tokens,
                                       .methods      = methods,
                                       .method_count = PL_COUNT(methods),
                                       .user         = cluster};
    struct trust_files files;
    struct pl_err err = {0};

    if (tls) {
        files = certificates_files(&cluster->all, certificate);
        ASSERT_OK(trust_source_create(&files, TRUST_ROLE_HEAD | TRUST_ROLE_HOST,
                                      &cluster->server_trust, &err));
        config.tls = cluster->server_trust;
    }
    /* c-ares, which is the default, leaks a few bytes when it resolves "localhost". */
    ASSERT_EQ(setenv("GRPC_DNS_RESOLVER", "native", 1), 0);
    rpc_init();
    ASSERT_OK(pl_mutex_init(&cluster->seen.lock, PL_RANK_LEAF));
    ASSERT_OK(rpc_loop_create(&cluster->loop));
    if (rpc_server_create(cluster->loop, &config, &cluster->server, &err) != PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
    ASSERT_OK(rpc_loop_start(cluster->loop, "server"));
    ASSERT_OK(rpc_loop_create(&cluster->client_loop));
    ASSERT_OK(rpc_loop_start(cluster->client_loop, "client"));
    (void)snprintf(cluster->address, sizeof(cluster->address), "127.0.0.1:%d",
                   rpc_server_port(cluster->server, 0));
}

static void cluster_init(struct cluster *cluster)
{
    *cluster = (struct cluster){.server = NULL};
    certificates_begin(&cluster->all);
    certificates_issue(&cluster->all,
                       &(struct trust_request){.name  = "head",
                                               .roles = TRUST_ROLE_HEAD,
                                               .hosts = {"localhost", "127.0.0.1"}});
    certificates_issue(&cluster->all,
                       &(struct trust_request){.name = "me", .roles = TRUST_ROLE_CLIENT});
}

/* Adds one file to another, which is made for us alone. */
static void file_append(const char *from, const char *to)
{
    int in  = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    char bytes[16384];
    ssize_t length;

    ASSERT_TRUE(in >= 0 && out >= 0);
    length = read(in, bytes, sizeof(bytes));
    ASSERT_TRUE(length > 0 && length < (ssize_t)sizeof(bytes));
    ASSERT_EQ(write(out, bytes, (size_t)length), length);
    ASSERT_EQ(close(in), 0);
    ASSERT_EQ(close(out), 0);
}

static void server_end(void *user)
{
    rpc_server_destroy(user);
}

static void cluster_stop(struct cluster *cluster)
{
    rpc_loop_stop(cluster->client_loop);
    rpc_loop_destroy(cluster->client_loop);
    peer_run_on(cluster->loop, server_end, cluster->server);
    rpc_loop_stop(cluster->loop);
    rpc_loop_destroy(cluster->loop);
    trust_source_destroy(cluster->server_trust);
    pl_mutex_finish(&cluster->seen.lock);
    rpc_finish();
    certificates_end(&cluster->all);
}

/* One call, or one stream, of a fresh channel. files NULL: without TLS. */
struct caller {
    const char *target;
    const char *token;
    const char *path;
    bool stream;
};

static plasmon_status_t call_with(struct cluster *cluster, const struct trust_files *files,
                                  const struct caller *caller, struct pl_err *err)
{
    struct rpc_channel_config config = {
        .target = caller->target != NULL ? caller->target : cluster->address,
        .token  = caller->token != NULL ? caller->token : "secret"};
    struct rpc_channel *channel;
    struct peer_end end;
    uint8_t *bytes = NULL;
    size_t length;
    plasmon_status_t status;

    if (files != NULL) {
        ASSERT_OK(trust_source_create(files, UINT32_MAX, &config.tls, err));
    }
    ASSERT_OK(rpc_channel_create(cluster->client_loop, &config, &channel));
    if (caller->stream) {
        peer_end_init(&end);
        ASSERT_OK(rpc_stream_open(channel, caller->path, PATIENCE_MS, &peer_ops, &end,
                                  &end.stream));
        peer_end_wait(&end, &end.closed, 1, PATIENCE_MS);
        status = pl_err_set(err, end.status, "%s", end.why);
        peer_end_finish(&end);
    } else {
        status = rpc_unary_call(channel, caller->path, NULL, 0, PATIENCE_MS, &bytes,
                                &length, err);
        pl_free(bytes);
    }
    rpc_channel_destroy(channel);
    trust_source_destroy(config.tls);
    return status;
}

static plasmon_status_t call_as(struct cluster *cluster, const char *name,
                                const struct caller *caller, struct pl_err *err)
{
    struct trust_files files = certificates_files(&cluster->all, name);

    return call_with(cluster, &files, caller, err);
}

TEST(who_has_a_certificate_gets_in_and_is_known)
{
    static const char *const targets[] = {NULL, "localhost"};
    struct cluster cluster;
    struct pl_err err = {0};

    cluster_init(&cluster);
    certificates_issue(&cluster.all, &(struct trust_request){.name  = "b",
                                                             .roles = TRUST_ROLE_CLIENT,
                                                             .name_space = "team-b",
                                                             .algorithm  = TRUST_ED25519});
    cluster_start(&cluster, "head", true);
    for (size_t i = 0; i < PL_COUNT(targets); i++) {
        char target[96];

        (void)snprintf(target, sizeof(target), "%s%s",
                       targets[i] != NULL ? targets[i] : "127.0.0.1",
                       strrchr(cluster.address, ':'));
        if (call_as(&cluster, "me",
                    &(struct caller){.target = target, .path = "/test.Test/Any"},
                    &err) != PLASMON_OK) {
            test_fail(__FILE__, __LINE__, "%s: %s", target, err.text);
        }
        ASSERT_EQ(cluster.seen.roles, TRUST_ROLE_CLIENT);
        ASSERT_STR(cluster.seen.name, "me");
        ASSERT_EQ(cluster.seen.token_index, RPC_TOKEN_CLUSTER);
    }
    ASSERT_OK(call_as(&cluster, "b",
                      &(struct caller){.path = "/test.Test/Any", .token = "of-team-b"},
                      &err));
    ASSERT_STR(cluster.seen.name_space, "team-b");
    ASSERT_EQ(cluster.seen.token_index, 1);
    cluster_stop(&cluster);
}

TEST(a_role_that_does_not_fit_is_refused_by_the_server)
{
    struct cluster cluster;
    struct pl_err err = {0};

    cluster_init(&cluster);
    certificates_issue(&cluster.all,
                       &(struct trust_request){.name = "n1", .roles = TRUST_ROLE_HOST});
    cluster_start(&cluster, "head", true);
    ASSERT_STATUS(
        call_as(&cluster, "me", &(struct caller){.path = "/test.Test/Host"}, &err),
        PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "the certificate of 'me'");
    ASSERT_CONTAINS(err.text, "is for client, and /test.Test/Host is for host");
    ASSERT_STATUS(call_as(&cluster, "me",
                          &(struct caller){.path = "/test.Test/HostStream", .stream = true},
                          &err),
                  PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "--role");
    ASSERT_EQ(cluster.seen.roles, 0); /* nobody was asked */
    ASSERT_OK(call_as(&cluster, "n1", &(struct caller){.path = "/test.Test/Host"}, &err));
    ASSERT_STATUS(call_as(&cluster, "n1",
                          &(struct caller){.path = "/test.Test/HostStream", .stream = true},
                          &err),
                  PLASMON_ECANCELLED);
    ASSERT_EQ(cluster.seen.roles, TRUST_ROLE_HOST);
    cluster_stop(&cluster);
}

TEST(a_token_of_a_namespace_is_not_one_of_the_cluster)
{
    struct cluster cluster;
    struct pl_err err = {0};

    cluster_init(&cluster);
    certificates_issue(&cluster.all, &(struct trust_request){.name       = "a",
                                                             .roles      = TRUST_ROLE_HOST,
                                                             .name_space = "team-a"});
    cluster_start(&cluster, "head", true);
    ASSERT_OK(call_as(&cluster, "me", &(struct caller){.path = "/test.Test/Whole"}, &err));
    ASSERT_STATUS(
        call_as(&cluster, "me",
                &(struct caller){.path = "/test.Test/Whole", .token = "of-team-a"}, &err),
        PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "is one namespace's");
    ASSERT_STATUS(
        call_as(&cluster, "a", &(struct caller){.path = "/test.Test/Whole"}, &err),
        PLASMON_EAUTH);
    ASSERT_STATUS(call_as(&cluster, "me",
                          &(struct caller){.path = "/test.Test/Any", .token = "of-team-"},
                          &err),
                  PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "is not one of this cluster");
    cluster_stop(&cluster);
}

TEST(strangers_are_told_what_is_wrong_soon)
{
    struct certificates strangers;
    struct trust_files files, mixed;
    struct cluster cluster;
    struct pl_err err             = {0};
    const struct caller as_stream = {.path = "/test.Test/HostStream", .stream = true};
    char both[160], from[160];

    cluster_init(&cluster);
    certificates_begin(&strangers);
    certificates_issue(&strangers,
                       &(struct trust_request){.name = "me", .roles = TRUST_ROLE_CLIENT});
    cluster_start(&cluster, "head", true);

    files = certificates_files(&strangers, "me"); /* we do not know its CA */
    ASSERT_STATUS(call_with(&cluster, &files, &as_stream, &err), PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "not good by our CA");

    (void)snprintf(both, sizeof(both), "%s/both.crt", strangers.dir);
    (void)snprintf(from, sizeof(from), "%s/ca.crt", strangers.dir);
    file_append(from, both);
    (void)snprintf(from, sizeof(from), "%s/ca.crt", cluster.all.dir);
    file_append(from, both);
    mixed    = files; /* and here it does not know ours */
    mixed.ca = both;
    ASSERT_STATUS(call_with(&cluster, &mixed, &as_stream, &err), PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "our certificate 'me'");
    ASSERT_EQ(unlink(both), 0);

    ASSERT_STATUS(call_with(&cluster, NULL, &as_stream, &err), PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "speaks TLS: give PLASMON_TLS_CA");

    certificates_end(&strangers);
    cluster_stop(&cluster);
}

TEST(a_head_by_another_name_is_not_taken)
{
    struct cluster cluster;
    struct pl_err err = {0};

    cluster_init(&cluster);
    certificates_issue(&cluster.all,
                       &(struct trust_request){.name  = "far",
                                               .roles = TRUST_ROLE_HEAD,
                                               .hosts = {"far.example", "10.1.2.3"}});
    cluster_start(&cluster, "far", true);
    ASSERT_STATUS(call_as(&cluster, "me",
                          &(struct caller){.path = "/test.Test/HostStream", .stream = true},
                          &err),
                  PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "is for far.example, 10.1.2.3, and not for 127.0.0.1");
    ASSERT_CONTAINS(err.text, "--host 127.0.0.1");
    cluster_stop(&cluster);
}

/* Of several, as where a head stands by, the one at 127.0.0.1 is there. */
static plasmon_status_t call_several(struct cluster *cluster,
                                     const struct trust_request *is, bool first,
                                     bool stream, struct pl_err *err)
{
    char list[96];
    const char *port;

    cluster_init(cluster);
    certificates_issue(&cluster->all, is);
    cluster_start(cluster, is->name, true);
    port = strrchr(cluster->address, ':') + 1;
    (void)snprintf(list, sizeof(list), "127.0.0.%d:%s,127.0.0.%d:%s", first ? 1 : 2, port,
                   first ? 2 : 1, port);
    return call_as(
        cluster, "me",
        &(struct caller){.target = list,
                         .path   = stream ? "/test.Test/HostStream" : "/test.Test/Any",
                         .stream = stream},
        err);
}

TEST(of_several_heads_each_is_taken_by_its_own_name)
{
    const struct trust_request one = {
        .name = "one", .roles = TRUST_ROLE_HEAD, .hosts = {"127.0.0.1"}};

    for (int first = 0; first < 2; first++) { /* and the one that stands by */
        struct cluster cluster;
        struct pl_err err = {0};

        ASSERT_OK(call_several(&cluster, &one, first, false, &err));
        ASSERT_EQ(cluster.seen.roles, TRUST_ROLE_CLIENT);
        cluster_stop(&cluster);
    }
}

TEST(but_none_by_a_name_that_is_not_in_the_list)
{
    struct cluster cluster;
    struct pl_err err = {0};

    ASSERT_STATUS(
        call_several(&cluster,
                     &(struct trust_request){.name  = "far",
                                             .roles = TRUST_ROLE_HEAD,
                                             .hosts = {"far.example", "10.1.2.3"}},
                     false, true, &err),
        PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "is for far.example, 10.1.2.3, and not for 127.0.0.1");
    ASSERT_EQ(cluster.seen.roles, 0);
    cluster_stop(&cluster);
}

TEST(nor_somebody_else_of_the_cluster_in_its_place)
{
    struct cluster cluster;
    struct pl_err err = {0};

    ASSERT_STATUS(call_several(&cluster,
                               &(struct trust_request){.name  = "store",
                                                       .roles = TRUST_ROLE_HOST,
                                                       .hosts = {"127.0.0.1", "127.0.0.2"}},
                               true, true, &err),
                  PLASMON_EAUTH);
    ASSERT_EQ(cluster.seen.roles, 0);
    cluster_stop(&cluster);
}

TEST(a_head_that_expired_is_told_from_a_stranger)
{
    struct cluster cluster;
    struct pl_err err        = {0};
    struct trust_request old = {.name     = "soon",
                                .roles    = TRUST_ROLE_HEAD,
                                .hosts    = {"127.0.0.1"},
                                .begins_s = -3600,
                                .ends_s   = 2};
    plasmon_status_t status;

    cluster_init(&cluster);
    certificates_issue(&cluster.all, &old);
    certificates_issue(&cluster.all,
                       &(struct trust_request){.name = "n1", .roles = TRUST_ROLE_HOST});
    cluster_start(&cluster, "soon", true);
    while (
        (status = call_as(&cluster, "n1",
                          &(struct caller){.path = "/test.Test/HostStream", .stream = true},
                          &err)) == PLASMON_ECANCELLED) { /* it has two seconds yet */
    }
    ASSERT_EQ(status, PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "expired on 20");
    ASSERT_CONTAINS(err.text, "plasmon cert renew");
    cluster_stop(&cluster);
}

TEST(somebody_else_of_the_cluster_is_no_head)
{
    struct cluster cluster;
    struct pl_err err = {0};

    cluster_init(&cluster);
    certificates_issue(&cluster.all, &(struct trust_request){.name  = "n1",
                                                             .roles = TRUST_ROLE_HOST,
                                                             .hosts = {"127.0.0.1"}});
    cluster_start(&cluster, "n1", true);
    ASSERT_STATUS(call_as(&cluster, "me",
                          &(struct caller){.path = "/test.Test/HostStream", .stream = true},
                          &err),
                  PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "'n1', which is for host and not for a head");
    ASSERT_EQ(cluster.seen.roles, 0);
    cluster_stop(&cluster);
}

TEST(a_head_without_tls_is_told_from_one_with)
{
    struct cluster cluster;
    struct pl_err err = {0};

    cluster_init(&cluster);
    cluster_start(&cluster, NULL, false);
    ASSERT_STATUS(call_as(&cluster, "me",
                          &(struct caller){.path = "/test.Test/HostStream", .stream = true},
                          &err),
                  PLASMON_EAUTH);
    ASSERT_CONTAINS(err.text, "does not speak TLS");
    ASSERT_OK(call_with(&cluster, NULL, &(struct caller){.path = "/test.Test/Host"}, &err));
    ASSERT_EQ(cluster.seen.roles, 0); /* none was shown: roles are for TLS */
    cluster_stop(&cluster);
}

TEST(new_certificates_are_taken_without_a_restart)
{
    struct certificates next;
    struct cluster cluster;
    struct pl_err err                = {0};
    static const char *const names[] = {"ca.crt", "head.crt", "head.key"};
    struct trust_files files;
    char from[160], fresh[160], to[160];

    cluster_init(&cluster);
    cluster_start(&cluster, "head", true);
    ASSERT_OK(call_as(&cluster, "me", &(struct caller){.path = "/test.Test/Any"}, &err));

    certificates_begin(&next); /* another CA altogether */
    certificates_issue(&next, &(struct trust_request){.name  = "head",
                                                      .roles = TRUST_ROLE_HEAD,
                                                      .hosts = {"127.0.0.1"}});
    certificates_issue(&next,
                       &(struct trust_request){.name = "new", .roles = TRUST_ROLE_CLIENT});
    test_expect_log(); /* between two of the three they do not belong together */
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        (void)snprintf(from, sizeof(from), "%s/%s", next.dir, names[i]);
        (void)snprintf(fresh, sizeof(fresh), "%s/.new", cluster.all.dir);
        (void)snprintf(to, sizeof(to), "%s/%s", cluster.all.dir, names[i]);
        file_append(from, fresh);
        ASSERT_EQ(rename(fresh, to), 0);
    }
    files = certificates_files(&next, "new");
    if (call_with(&cluster, &files, &(struct caller){.path = "/test.Test/Any"}, &err) !=
        PLASMON_OK) {
        test_fail(__FILE__, __LINE__, "%s", err.text);
    }
    ASSERT_STR(cluster.seen.name, "new");
    certificates_end(&next);
    cluster_stop(&cluster);
}

TEST(the_token_of_before_is_taken_while_it_is_given_and_an_empty_one_never)
{
    static const struct {
        const char *before, *token;
        plasmon_status_t status;
    } calls[] = {{"until-now", "until-now", PLASMON_OK},
                 {"until-now", "secret", PLASMON_OK},
                 {"until-now", "until-no", PLASMON_EAUTH},
                 {"until-now", "", PLASMON_EAUTH},
                 {"", "", PLASMON_EAUTH},
                 {NULL, "until-now", PLASMON_EAUTH}};

    for (size_t i = 0; i < PL_COUNT(calls); i++) {
        struct cluster cluster;
        struct pl_err err = {0};

        cluster_init(&cluster);
        token_before = calls[i].before;
        cluster_start(&cluster, "head", true);
        ASSERT_STATUS(
            call_as(&cluster, "me",
                    &(struct caller){.path = "/test.Test/Whole", .token = calls[i].token},
                    &err),
            calls[i].status);
        if (calls[i].status == PLASMON_OK) {
            ASSERT_EQ(cluster.seen.token_index, RPC_TOKEN_CLUSTER);
        }
        cluster_stop(&cluster);
    }
    token_before = NULL;
}

TEST_MAIN()
