/* One macro for the C tests: prints the failed condition and its line, and ends the test with
 * status 1. */
#ifndef NOVA_TESTS_CHECK_H
#define NOVA_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
