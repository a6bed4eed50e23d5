/* Selects the code of a file for a device, by the rules of CUDA's compute capabilities. */
#include <stdbool.h>
#include <string.h>

#include "nova/file.h"

/* A name such as "sm_90a": its number, and whether it is for that capability only. */
typedef struct {
    int number;
    bool is_exact;
} architecture;

static bool select_read_architecture(const char *text, architecture *result)
{
    if (strncmp(text, "sm_", 3) != 0)
        return false;
    const char *digit = text + 3;
    int number = 0;
    for (; *digit >= '0' && *digit <= '9' && number < 1000; digit++)
        number = 10 * number + (*digit - '0');
    if (number < 10 || number > 999)
        return false;
    /* Code with the suffix "f" runs on later members of a family, which differ by driver; so it is
     * used for its exact number only. */
    *result = (architecture){.number = number, .is_exact = *digit == 'a' || *digit == 'f'};
    return digit[result->is_exact ? 1 : 0] == '\0';
}

/* How good an image is for a device: -1 for one that it does not run. */
static int select_rank(const nova_device_code *image, int capability)
{
    architecture of;
    if (!select_read_architecture(image->arch, &of))
        return -1;
    bool is_cubin = image->kind == NOVA_CUBIN;
    if (of.number > capability || ((is_cubin || of.is_exact) && of.number != capability))
        return -1;
    return 4 * of.number + 2 * is_cubin + of.is_exact;
}

size_t nova_device_choose(const nova_device_code *images, size_t count, int major, int minor)
{
    size_t best = count;
    int best_rank = -1;
    for (size_t i = 0; i < count; i++) {
        int rank_here = select_rank(&images[i], 10 * major + minor);
        if (rank_here > best_rank) {
            best_rank = rank_here;
            best = i;
        }
    }
    return best;
}
