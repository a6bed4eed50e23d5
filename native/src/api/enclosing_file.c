/* Only for the runtime inside of .nova files: Nova's linker defines these symbols. */
#include "api/enclosing_file.h"

#define HIDDEN __attribute__((visibility("hidden")))

/* Begin and end of a section are equal where the file has none. */
extern const char nova_image_start[] HIDDEN;
extern const char nova_section_manifest_begin[] HIDDEN, nova_section_manifest_end[] HIDDEN;
extern const char nova_section_tables_begin[] HIDDEN, nova_section_tables_end[] HIDDEN;
extern const char nova_section_const_begin[] HIDDEN, nova_section_const_end[] HIDDEN;
/* Not hidden: their addresses are read from memory, as weights may be far from the code. */
extern const char nova_section_weights_begin[], nova_section_weights_end[];
extern const char nova_section_device_begin[], nova_section_device_end[];

static size_t enclosing_file_distance(const char *begin, const char *end)
{
    return (size_t)((uintptr_t)end - (uintptr_t)begin);
}

bool nova_enclosing_file(nova_mapped *mapped)
{
    *mapped = (nova_mapped){
        .start = nova_image_start,
        .manifest = nova_section_manifest_begin,
        .manifest_size =
            enclosing_file_distance(nova_section_manifest_begin, nova_section_manifest_end),
        .tables = nova_section_tables_begin,
        .tables_size = enclosing_file_distance(nova_section_tables_begin, nova_section_tables_end),
        .constants = nova_section_const_begin,
        .constants_size = enclosing_file_distance(nova_section_const_begin, nova_section_const_end),
        .weights = nova_section_weights_begin,
        .weights_size =
            enclosing_file_distance(nova_section_weights_begin, nova_section_weights_end),
        .device = nova_section_device_begin,
        .device_size = enclosing_file_distance(nova_section_device_begin, nova_section_device_end),
    };
    return true;
}
