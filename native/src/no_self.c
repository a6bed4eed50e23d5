#include "self.h"

bool nova_self(nova_mapped *mapped)
{
    (void)mapped;
    return false;
}
