/* The lists of multi_plan.h. */
#include "bench/graphs/multi_plan.h"

#include "base/alloc.h"

/* Cells that a parameter means: *first up to, not including, the result. */
static uint32_t cells_of(const struct graphs_plan *plan, const struct graphs_param *param,
                         uint32_t *first)
{
    *first = plan->first_cell[param->array] + (param->is_part ? param->part : 0);
    return *first +
           (param->is_part ? 1 : graphs_array_at(plan->graph, param->array)->parts);
}

static void wait_for(const struct pl_vec *list, struct graphs_operation *operation,
                     uint32_t other)
{
    uint32_t queue;

    if (other == GRAPHS_NONE) {
        return;
    }
    queue = ((const struct graphs_operation *)pl_vec_at(list, other))->queue;
    if (queue != operation->queue &&
        (operation->wait[queue] == GRAPHS_NONE || operation->wait[queue] < other)) {
        operation->wait[queue] = other;
    }
}

static void reads(const struct graphs_plan *plan, const struct pl_vec *list,
                  struct graphs_operation *operation, uint32_t cell, uint32_t device)
{
    wait_for(list, operation, plan->cells[cell].writer[device]);
}

static void writes(const struct graphs_plan *plan, const struct pl_vec *list,
                   struct graphs_operation *operation, uint32_t cell, uint32_t device)
{
    wait_for(list, operation, plan->cells[cell].writer[device]);
    for (uint32_t i = 0; i < plan->devices * GRAPHS_LANES; i++) {
        wait_for(list, operation, plan->cells[cell].reader[device][i]);
    }
}

static struct graphs_operation new_operation(uint32_t queue)
{
    struct graphs_operation operation = {.queue = queue};

    memset(operation.wait, 0xff, sizeof(operation.wait));
    return operation;
}

static uint32_t add(struct pl_vec *list, const struct graphs_operation *operation)
{
    struct graphs_operation *added = pl_vec_push(list);

    if (added == NULL) {
        bench_die("out of host memory");
    }
    *added = *operation;
    return (uint32_t)list->count - 1;
}

static void written(struct graphs_plan *plan, uint32_t cell, uint32_t device,
                    uint32_t number)
{
    plan->cells[cell].writer[device] = number;
    memset(plan->cells[cell].reader[device], 0xff,
           sizeof(plan->cells[cell].reader[device]));
}

/* Cells first .. end - 1, all valid on `from`, to `device`, as one copy. */
static void add_copy(struct graphs_plan *plan, struct pl_vec *list, uint32_t array,
                     uint32_t from, uint32_t device, uint32_t queue, uint32_t first,
                     uint32_t end)
{
    const struct graphs_array *it = graphs_array_at(plan->graph, array);
    uint64_t part                 = it->bytes / it->parts;
    struct graphs_operation copy  = new_operation(queue);
    uint32_t number;

    copy.is_copy = true;
    copy.array   = array;
    copy.from    = from;
    copy.offset  = part * (first - plan->first_cell[array]);
    copy.bytes   = part * (end - first);
    for (uint32_t i = first; i < end; i++) {
        reads(plan, list, &copy, i, from);
        writes(plan, list, &copy, i, device);
    }
    number = add(list, &copy);
    for (uint32_t i = first; i < end; i++) {
        plan->cells[i].reader[from][queue] = number;
        written(plan, i, device, number);
        plan->cells[i].valid[device] = true;
    }
}

uint32_t graphs_plan_source(const struct graphs_plan *plan, uint32_t cell)
{
    for (uint32_t i = 0; i < plan->devices; i++) {
        if (plan->cells[cell].valid[i]) {
            return i;
        }
    }
    return GRAPHS_NONE;
}

/* What `param` reads is on its way to `device`; neighbouring cells from one device go together. */
static void fetch(struct graphs_plan *plan, struct pl_vec *list,
                  const struct graphs_param *param, uint32_t device, uint32_t queue)
{
    uint32_t first, end = cells_of(plan, param, &first);

    while (first < end) {
        uint32_t from = plan->cells[first].valid[device] ? GRAPHS_NONE
                                                         : graphs_plan_source(plan, first);
        uint32_t last = first + 1;

        if (from != GRAPHS_NONE) {
            while (last < end && !plan->cells[last].valid[device] &&
                   graphs_plan_source(plan, last) == from) {
                last++;
            }
            add_copy(plan, list, param->array, from, device, queue, first, last);
        }
        first = last;
    }
}

/* What the launch does to a parameter's cells, as waits (note false), then as a fact. */
static void use_cells(struct graphs_plan *plan, const struct pl_vec *list,
                      struct graphs_operation *launch, const struct graphs_param *param,
                      bool note, uint32_t number)
{
    uint32_t device = launch->queue / GRAPHS_LANES, first,
             end    = cells_of(plan, param, &first);
    bool is_read    = param->mode == PLASMON_IN;

    for (uint32_t i = first; i < end; i++) {
        struct graphs_cell *cell = &plan->cells[i];

        if (!note && is_read) {
            reads(plan, list, launch, i, device);
        } else if (!note) {
            writes(plan, list, launch, i, device);
        } else if (is_read) {
            cell->reader[device][launch->queue] = number;
        } else {
            memset(cell->valid, 0, sizeof(cell->valid));
            cell->valid[device] = true;
            written(plan, i, device, number);
        }
    }
}

static void add_step(struct graphs_plan *plan, struct pl_vec *list, uint32_t number)
{
    const struct graphs_step *step = graphs_step_at(plan->graph, number);
    uint32_t device = graphs_device_of(plan->graph, step->place, plan->devices), at;
    struct graphs_operation launch =
        new_operation(device * GRAPHS_LANES + step->place % GRAPHS_LANES);

    for (uint32_t i = 0; i < step->param_count; i++) {
        if (step->param[i].kind == GRAPHS_TENSOR &&
            (step->param[i].mode == PLASMON_IN || step->param[i].mode == PLASMON_INOUT)) {
            fetch(plan, list, &step->param[i], device, launch.queue);
        }
    }
    launch.step = number;
    for (uint32_t i = 0; i < step->param_count; i++) {
        if (step->param[i].kind == GRAPHS_TENSOR) {
            use_cells(plan, list, &launch, &step->param[i], false, 0);
        }
    }
    at = add(list, &launch);
    for (uint32_t i = 0; i < step->param_count; i++) {
        if (step->param[i].kind == GRAPHS_TENSOR) {
            use_cells(plan, list, &launch, &step->param[i], true, at);
        }
    }
}

uint32_t graphs_plan_wait(const struct graphs_plan *plan,
                          const struct graphs_operation *operation, uint32_t queue,
                          uint32_t run)
{
    uint32_t half = (uint32_t)plan->flight.count / 2, other = operation->wait[queue];
    bool is_last_run = other < half; /* the run before this one */

    if (other == GRAPHS_NONE || (is_last_run && run == 0)) {
        return GRAPHS_NONE;
    }
    return other % half + (is_last_run ? (run + 1) % 2 : run % 2) * half;
}

static void add_steps(struct graphs_plan *plan, struct pl_vec *list, uint32_t first,
                      uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        add_step(plan, list, i);
    }
}

/* Steps first .. end - 1 as a list; nothing of an earlier list is under way. */
static void add_list(struct graphs_plan *plan, struct pl_vec *list, uint32_t first,
                     uint32_t end, uint32_t cells)
{
    *list = PL_VEC_INIT(struct graphs_operation);
    for (uint32_t i = 0; i < cells; i++) {
        memset(plan->cells[i].writer, 0xff, sizeof(plan->cells[i].writer));
        memset(plan->cells[i].reader, 0xff, sizeof(plan->cells[i].reader));
    }
    add_steps(plan, list, first, end);
}

/* A wait that an earlier operation of the queue had is not said again. */
static void finish_list(const struct graphs_plan *plan, struct pl_vec *list)
{
    uint32_t seen[GRAPHS_QUEUES_MAX][GRAPHS_QUEUES_MAX];

    memset(seen, 0xff, sizeof(seen));
    for (uint32_t i = 0; i < list->count; i++) {
        struct graphs_operation *it = pl_vec_at(list, i);

        for (uint32_t q = 0; q < plan->devices * GRAPHS_LANES; q++) {
            uint32_t last = seen[it->queue][q];

            if (it->wait[q] == GRAPHS_NONE) {
                continue;
            }
            if (last != GRAPHS_NONE && last >= it->wait[q]) {
                it->wait[q] = GRAPHS_NONE;
                continue;
            }
            seen[it->queue][q] = it->wait[q];
            ((struct graphs_operation *)pl_vec_at(list, it->wait[q]))->is_awaited = true;
        }
    }
}

/* --------------------------------------------------------------------------------- life */

void graphs_plan_make(struct graphs_plan *plan, const struct graphs_graph *graph,
                      uint32_t devices)
{
    uint32_t cells = 0, steps = (uint32_t)graph->steps.count;

    *plan = (struct graphs_plan){
        .graph = graph, .devices = (uint32_t)pl_min_u64(devices, GRAPHS_DEVICES_MAX)};
    plan->first_cell = bench_must_alloc(graph->arrays.count * sizeof(*plan->first_cell));
    for (uint32_t i = 0; i < graph->arrays.count; i++) {
        plan->first_cell[i] = cells;
        cells += graphs_array_at(graph, i)->parts;
    }
    plan->cells = bench_must_alloc(cells * sizeof(*plan->cells));
    for (uint32_t i = 0; i < graph->arrays.count; i++) {
        const struct graphs_array *array = graphs_array_at(graph, i);

        for (uint32_t c = 0; c < array->parts;
             c++) { /* all devices have inputs, and zeros */
            memset(plan->cells[plan->first_cell[i] + c].valid,
                   array->role == GRAPHS_INPUT || array->role == GRAPHS_STATE,
                   sizeof(plan->cells->valid));
        }
    }
    add_list(plan, &plan->init, 0, graph->init_steps, cells);
    add_list(plan, &plan->first, graph->init_steps, steps, cells);
    add_list(plan, &plan->again, graph->init_steps, steps, cells);
    add_list(plan, &plan->flight, graph->init_steps, steps, cells);
    add_steps(plan, &plan->flight, graph->init_steps, steps);
    finish_list(plan, &plan->init);
    finish_list(plan, &plan->first);
    finish_list(plan, &plan->again);
    finish_list(plan, &plan->flight);
}

void graphs_plan_finish(struct graphs_plan *plan)
{
    pl_vec_finish(&plan->init);
    pl_vec_finish(&plan->first);
    pl_vec_finish(&plan->again);
    pl_vec_finish(&plan->flight);
    pl_free(plan->cells);
    pl_free(plan->first_cell);
}
