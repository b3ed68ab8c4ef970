#include "worker/pair_news.h"

bool worker_pair_news(struct worker_core *core, const struct transfer_pair_news *news,
                      struct worker_pair_report *out_report)
{
    const struct worker_pair_key key = {.peer     = news->key.peer,
                                        .receives = news->key.receives,
                                        .epoch    = news->key.epoch,
                                        .team     = news->key.team};

    *out_report = (struct worker_pair_report){
        .key = key, .chunk = news->first_chunk, .text = news->text};
    switch (news->event) {
    case TRANSFER_PAIR_OPENED:
        worker_core_pair_opened(core, &key, news->status, news->text, news->bytes);
        return false;
    case TRANSFER_PAIR_CLOSED:
        worker_core_pair_closed(core, &key);
        return false;
    case TRANSFER_PAIR_ENDED:
        worker_core_pair_ended(core, &key);
        return false;
    case TRANSFER_PAIR_QUIET:
        worker_core_pair_quiet(core, &key);
        return false;
    case TRANSFER_PAIR_MADE:
        out_report->event = PLASMON__V1__PAIR_EVENT__PAIR_MADE;
        out_report->id    = news->id;
        return true;
    case TRANSFER_PAIR_STALLED:
        out_report->event = PLASMON__V1__PAIR_EVENT__PAIR_STALLED;
        return true;
    case TRANSFER_PAIR_TROUBLE:
        out_report->event = PLASMON__V1__PAIR_EVENT__PAIR_TROUBLE;
        return true;
    case TRANSFER_PAIR_TURN:
        break;
    }
    return false;
}
