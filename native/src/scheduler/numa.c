#define _POSIX_C_SOURCE 200809L /* pread, O_CLOEXEC */

#include "scheduler/numa.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "scheduler/cpu_affinity.h"

enum { TEXT = 4096, MAX_NODE_NUMBER = 1023 };

/* --- slots ------------------------------------------------------------------------------------ */

void nova_topology_span(const nova_topology *topology, uint32_t slot, uint32_t workers,
                        uint32_t *begin, uint32_t *end)
{
    *begin = 0;
    *end = workers;
    uint32_t cpus = topology->node_end[topology->node_count - 1];
    if (topology->node_count == 1 || cpus == 0)
        return;
    /* With more threads than CPUs, each CPU has so many neighbouring slots. */
    uint32_t slots_per_cpu = (workers + cpus - 1) / cpus, first = 0;
    for (uint32_t i = 0; i < topology->node_count; i++) {
        uint32_t last = topology->node_end[i] * slots_per_cpu;
        if (slot < last) {
            *begin = first;
            *end = last < workers ? last : workers;
            return;
        }
        first = last;
    }
}

void nova_topology_bind(const nova_topology *topology, uint32_t slot, uint32_t workers, bool pin)
{
    if (topology->simulated || topology->node_count == 1) {
        if (pin)
            nova_cpus_bind(slot);
        return;
    }
    uint32_t cpus = topology->node_end[topology->node_count - 1], begin, end;
    uint32_t slots_per_cpu = (workers + cpus - 1) / cpus;
    if (pin) {
        nova_cpus_bind_list(&topology->cpus[slot / slots_per_cpu % cpus], 1);
        return;
    }
    nova_topology_span(topology, slot, workers, &begin, &end);
    /* All CPUs of the node, also those that have no slot. */
    for (uint32_t i = 0, first = 0; i < topology->node_count; first = topology->node_end[i++])
        if (first * slots_per_cpu == begin)
            nova_cpus_bind_list(&topology->cpus[first], topology->node_end[i] - first);
}

/* --- nodes ------------------------------------------------------------------------------------ */

/* The text of a small file; "" if it cannot be read. */
static void numa_read_file(const char *folder, const char *name, char *text)
{
    char path[512];
    text[0] = '\0';
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof path)
        return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    ssize_t count = pread(file, text, TEXT - 1, 0);
    text[count > 0 ? count : 0] = '\0';
    (void)close(file);
}

static const char *numa_read_number(const char *text, uint32_t *number)
{
    const char *c = text;
    for (*number = 0; *c >= '0' && *c <= '9' && *number < 1000000; c++)
        *number = 10 * *number + (uint32_t)(*c - '0');
    return c == text ? NULL : c;
}

/* The next range of a list such as "0-3,8"; NULL at its end. */
static const char *numa_read_range(const char *text, uint32_t *first, uint32_t *last)
{
    if (*text == ',')
        text++;
    text = numa_read_number(text, first);
    if (text == NULL)
        return NULL;
    *last = *first;
    return *text == '-' ? numa_read_number(text + 1, last) : text;
}

/* Adds the CPUs of a node that the process may use. */
static void numa_add_node(nova_topology *topology, const char *folder, uint32_t node)
{
    char name[64], list[TEXT];
    (void)snprintf(name, sizeof name, "node%u/cpulist", node);
    numa_read_file(folder, name, list);
    uint32_t count = topology->node_count > 0 ? topology->node_end[topology->node_count - 1] : 0;
    uint32_t before = count, first, last;
    for (const char *c = list; (c = numa_read_range(c, &first, &last)) != NULL;)
        for (uint32_t cpu = first; cpu <= last && cpu <= UINT16_MAX; cpu++)
            if (count < NOVA_MAX_WORKERS && nova_cpus_allows(cpu))
                topology->cpus[count++] = (uint16_t)cpu;
    if (count > before)
        topology->node_end[topology->node_count++] = count;
}

void nova_topology_read(nova_topology *topology, const char *folder)
{
    memset(topology, 0, sizeof *topology);
    char online[TEXT];
    numa_read_file(folder, "online", online);
    uint32_t first, last;
    topology->node_count = 1;
    if (strchr(online, '-') == NULL && strchr(online, ',') == NULL)
        return; /* of one node, there is nothing to know */
    topology->node_count = 0;
    for (const char *c = online; (c = numa_read_range(c, &first, &last)) != NULL;)
        for (uint32_t node = first; node <= last && node <= MAX_NODE_NUMBER; node++)
            if (topology->node_count < NOVA_MAX_NODES)
                numa_add_node(topology, folder, node);
    if (topology->node_count == 0)
        topology->node_count = 1;
}

nova_status nova_topology_simulate(nova_topology *topology, const unsigned *sizes, unsigned count)
{
    if (count == 0 || count > NOVA_MAX_NODES)
        return NOVA_OUT_OF_RANGE;
    memset(topology, 0, sizeof *topology);
    topology->simulated = true;
    uint32_t end = 0;
    for (unsigned i = 0; i < count; i++) {
        if (sizes[i] == 0 || sizes[i] > NOVA_MAX_WORKERS - end)
            return NOVA_OUT_OF_RANGE;
        end += sizes[i];
        topology->node_end[topology->node_count++] = end;
    }
    return NOVA_OK;
}
