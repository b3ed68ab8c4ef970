/* The reliable link against a network that loses the tail, repeats and reconnects: exactly once, in order. */
#include "tests/harness/test.h"

#include <stdlib.h>

#include "tests/unit/wire/samples.h"

#define FRAMES 2000
#define WINDOW 64

struct frame {
    uint64_t seq, value, ack;
};

/* One side: a link, the queue of frames on their way to the other side, and what has been delivered. */
struct side {
    struct wire_link link;
    struct frame wire[8 * FRAMES];
    size_t wire_head, wire_tail;
    uint64_t sent, delivered;
};

static void side_put(void *user, const uint8_t *bytes, size_t length)
{
    struct side *side = user;

    ASSERT_EQ(length, sizeof(struct frame));
    ASSERT_TRUE(side->wire_tail < PL_COUNT(side->wire));
    memcpy(&side->wire[side->wire_tail++], bytes, length);
}

static void side_send(struct side *side)
{
    struct frame frame = {.value = side->sent + 1};

    frame.seq = wire_link_next_seq(&side->link);
    frame.ack = wire_link_ack(&side->link);
    ASSERT_OK(wire_link_sent(&side->link, frame.seq, (uint8_t *)&frame, sizeof(frame)));
    side->sent++;
    side_put(side, (uint8_t *)&frame, sizeof(frame));
}

static void side_deliver_one(struct side *from, struct side *to)
{
    struct frame frame = from->wire[from->wire_head++];
    int take           = wire_link_receive(&to->link, frame.seq);

    ASSERT_TRUE(take >= 0); /* a network that keeps order never shows a gap */
    if (take == 1 && frame.seq != 0) {
        ASSERT_EQ(frame.value, to->delivered + 1);
        to->delivered++;
    }
    wire_link_acked(&to->link, frame.ack);
}

/* The connection breaks: what is in flight is lost. Each side then resends from what the other has. */
static void reconnect(struct side *a, struct side *b)
{
    a->wire_head = a->wire_tail = 0;
    b->wire_head = b->wire_tail = 0;
    wire_link_acked(&a->link, b->link.in_seq);
    wire_link_acked(&b->link, a->link.in_seq);
    wire_link_resend(&a->link, b->link.in_seq, side_put, a);
    wire_link_resend(&b->link, a->link.in_seq, side_put, b);
}

/* Frames that were delivered come a second time, as after a resume from an old acknowledgement. */
static void repeat_some(struct side *from, struct side *to)
{
    size_t last = from->wire_head;

    for (size_t i = last < 5 ? 0 : last - 5; i < last; i++) {
        if (from->wire[i].seq != 0) { /* an ack alone is outside the sequence */
            ASSERT_EQ(wire_link_receive(&to->link, from->wire[i].seq), 0);
        }
    }
}

static void simulate(uint64_t seed)
{
    struct side *side = calloc(2, sizeof(*side));

    for (int i = 0; i < 2; i++) {
        wire_link_init(&side[i].link, WINDOW * sizeof(struct frame));
    }
    while (side[0].delivered < FRAMES || side[1].delivered < FRAMES) {
        uint64_t r      = test_random(&seed);
        int i           = (int)(r >> 32 & 1);
        struct side *me = &side[i], *other = &side[1 - i];

        if (r % 100 < 45) {
            if (me->sent < FRAMES && me->link.out_seq - me->link.out_acked < WINDOW) {
                side_send(me);
            } else if (wire_link_owes_ack(&me->link)) {
                struct frame ack = {.ack = wire_link_ack(&me->link)};

                side_put(me, (uint8_t *)&ack, sizeof(ack));
            }
        } else if (r % 100 < 97) {
            if (me->wire_head < me->wire_tail) {
                side_deliver_one(me, other);
            }
        } else if (r % 100 < 98) {
            reconnect(me, other);
        } else {
            repeat_some(me, other);
        }
        if (me->wire_tail > 4 * FRAMES) {
            reconnect(me, other);
        }
    }
    for (int i = 0; i < 2; i++) {
        ASSERT_EQ(side[i].delivered, FRAMES);
        wire_link_finish(&side[i].link);
    }
    free(side);
}

TEST(frames_arrive_exactly_once_in_order_over_broken_connections)
{
    uint64_t seed = test_seed();

    for (int round = 0; round < 20; round++) {
        simulate(test_random(&seed));
    }
}

/* A connection takes some frames and no more for now; then it breaks, and the other side has none of them. */
TEST(frames_that_were_sent_stay_kept_until_they_are_acknowledged)
{
    struct side *me = calloc(1, sizeof(*me));

    wire_link_init(&me->link, WINDOW * sizeof(struct frame));
    for (int i = 0; i < 5; i++) {
        side_send(me);
    }
    me->wire_tail = 0;
    wire_link_resend(&me->link, 3, side_put, me); /* the rest of what it had not taken */
    ASSERT_EQ(me->wire_tail, 2);
    ASSERT_EQ(me->wire[0].seq, 4);
    me->wire_tail = 0;
    wire_link_resend(&me->link, 0, side_put, me);
    ASSERT_EQ(me->wire_tail, 5);
    ASSERT_EQ(me->wire[0].seq, 1);
    wire_link_finish(&me->link);
    free(me);
}

TEST(a_gap_is_seen)
{
    struct wire_link link;

    wire_link_init(&link, 100);
    ASSERT_EQ(wire_link_receive(&link, 1), 1);
    ASSERT_EQ(wire_link_receive(&link, 3), -1);
    ASSERT_EQ(wire_link_receive(&link, 2), 1);
    ASSERT_EQ(wire_link_receive(&link, 2), 0);
    ASSERT_EQ(wire_link_receive(&link, 0), 1);
    ASSERT_EQ(link.in_seq, 2);
    wire_link_finish(&link);
}

TEST(what_is_kept_is_bounded_and_freed_by_acks)
{
    uint8_t bytes[40] = {0};
    struct wire_link link;

    wire_link_init(&link, 100);
    ASSERT_OK(wire_link_sent(&link, wire_link_next_seq(&link), bytes, 40));
    ASSERT_OK(wire_link_sent(&link, wire_link_next_seq(&link), bytes, 40));
    ASSERT_STATUS(wire_link_sent(&link, wire_link_next_seq(&link), bytes, 40),
                  PLASMON_ELIMIT);
    ASSERT_EQ(link.kept_bytes, 80);

    wire_link_acked(&link, 999); /* of frames that never were */
    ASSERT_EQ(link.kept_bytes, 80);
    wire_link_acked(&link, 1);
    ASSERT_EQ(link.kept_bytes, 40);
    wire_link_acked(&link, 1);
    ASSERT_EQ(link.kept_bytes, 40);
    wire_link_acked(&link, 2);
    ASSERT_EQ(link.kept_bytes, 0);
    ASSERT_NULL(link.kept_first);
    ASSERT_NULL(link.kept_last);
    wire_link_finish(&link);
}

TEST(an_ack_is_owed_until_it_is_told)
{
    struct wire_link link;

    wire_link_init(&link, 100);
    ASSERT_TRUE(!wire_link_owes_ack(&link));
    (void)wire_link_receive(&link, 1);
    ASSERT_TRUE(wire_link_owes_ack(&link));
    ASSERT_EQ(wire_link_ack(&link), 1);
    ASSERT_TRUE(!wire_link_owes_ack(&link));
    wire_link_finish(&link);
}

TEST(one_frame_waits_for_a_frame_back_to_acknowledge_it_and_many_do_not)
{
    struct wire_link link;
    uint64_t seq = 0;

    wire_link_init(&link, 100);
    do {
        ASSERT_TRUE(!wire_link_owes_many(&link));
        ASSERT_EQ(wire_link_receive(&link, ++seq), 1);
    } while (seq < 8);
    ASSERT_TRUE(wire_link_owes_many(&link));
    ASSERT_EQ(wire_link_ack(&link), 8);
    ASSERT_TRUE(!wire_link_owes_many(&link));
    ASSERT_EQ(wire_link_receive(&link, 9), 1);
    ASSERT_TRUE(!wire_link_owes_many(&link));
    wire_link_finish(&link);
}

TEST_MAIN()
