/* run_sizes FILE: runs a program (x[B, 24], w[24]) -> y[B, 24] with several numbers of rows, from
 * two threads, and prints the sums of the results. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "nova.h"

enum { COLUMNS = 24, ROWS = 80 };

static nova_model *model;

static double run_rows(int64_t rows)
{
    nova_error error;
    nova_model *sized;
    const int64_t extents[] = {rows, COLUMNS, COLUMNS};
    if (nova_open_sizes(model, extents, &sized, &error) != NOVA_OK) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    float *x = malloc((size_t)rows * COLUMNS * sizeof *x + 1);
    float *y = malloc((size_t)nova_output(sized, 0)->nbytes + 1);
    float w[COLUMNS];
    for (int64_t i = 0; i < rows * COLUMNS; i++)
        x[i] = (float)(i % 7);
    for (int i = 0; i < COLUMNS; i++)
        w[i] = (float)i;
    void *arguments[] = {x, w}, *outputs[] = {y};
    if (nova_run(sized, arguments, outputs, NULL, &error) != NOVA_OK) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    double total = 0;
    for (int64_t i = 0; i < rows * COLUMNS; i++)
        total += y[i];
    free(x);
    free(y);
    nova_close(sized);
    return total;
}

static void *run_all(void *sums)
{
    for (int round = 0; round < 3; round++)
        for (int64_t rows = 0; rows < ROWS; rows++)
            ((double *)sums)[rows] = run_rows(rows);
    return NULL;
}

int main(int argc, char **argv)
{
    nova_error error;
    if (argc != 2 || nova_open(argv[1], &model, &error) != NOVA_OK) {
        fprintf(stderr, "%s\n", argc == 2 ? error.text : "a file is expected");
        return 1;
    }
    static double sums[2][ROWS];
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_all, sums[1]) != 0)
        return 1;
    run_all(sums[0]);
    pthread_join(thread, NULL);
    nova_model *sized;
    const int64_t wrong[] = {3, COLUMNS + 1, COLUMNS};
    if (nova_open_sizes(model, wrong, &sized, &error) == NOVA_OK ||
        nova_run(model, NULL, NULL, NULL, &error) == NOVA_OK)
        return 1;
    const nova_tensor_info *x = nova_argument(model, 0);
    printf("%lld %lld %lld\n", (long long)x->shape[0], (long long)x->shape[1],
           (long long)x->nbytes);
    for (int64_t rows = 0; rows < ROWS; rows++)
        printf("%.1f %.1f\n", sums[0][rows], sums[1][rows]);
    nova_close(model);
    return 0;
}
