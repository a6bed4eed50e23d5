/* Calls a program through MLIR's C interface, with memref descriptors made by hand.
 *
 *     descriptors LAYER.nova
 *
 * LAYER.nova is relu(x @ w + b) for x f32[2,3], w f32[3,2] and b f32[2], made by layer.py. The
 * program prints the result as a matrix. Nothing is linked but the C library. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* memref<?xf32> and memref<?x?xf32>, as MLIR lays them out. */
typedef struct {
    float *allocated, *aligned;
    int64_t offset, sizes[1], strides[1];
} memref1;

typedef struct {
    float *allocated, *aligned;
    int64_t offset, sizes[2], strides[2];
} memref2;

typedef void layer(memref2 *result, memref2 *x, memref2 *w, memref1 *b);

int main(int argc, char **argv)
{
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    void *address = library != NULL ? dlsym(library, "_mlir_ciface_main") : NULL;
    if (address == NULL) {
        fprintf(stderr, "descriptors: %s\n", argc == 2 ? dlerror() : "descriptors LAYER.nova");
        return 1;
    }
    layer *run;
    memcpy(&run, &address, sizeof address); /* ISO C has no cast for this */

    /* x lies by columns, so its strides are (1, 2); the other two are dense. */
    float x[] = {1, 4, 2, 5, 3, 6}, w[] = {1, 0, 0, 1, 1, 2}, b[] = {0.5f, -9.5f};
    memref2 of_x = {x, x, 0, {2, 3}, {1, 2}};
    memref2 of_w = {w, w, 0, {3, 2}, {2, 1}};
    memref1 of_b = {b, b, 0, {2}, {1}};
    memref2 y;
    run(&y, &of_x, &of_w, &of_b);
    if (y.allocated == NULL) { /* nova_last_error says why: see nova/ciface.h */
        fprintf(stderr, "descriptors: the program refused the arguments\n");
        return 1;
    }
    for (int64_t i = 0; i < y.sizes[0]; i++)
        for (int64_t k = 0; k < y.sizes[1]; k++)
            printf("%g%c", (double)y.aligned[y.offset + i * y.strides[0] + k * y.strides[1]],
                   k + 1 < y.sizes[1] ? ' ' : '\n');
    free(y.allocated); /* results belong to the caller */
    return 0;
}
