#include "api/enclosing_file.h"

bool nova_enclosing_file(nova_mapped *mapped)
{
    (void)mapped;
    return false;
}
