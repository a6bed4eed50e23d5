/* measure_flops() and measure_copy(): the peak throughput of one core of this machine.
 *
 * Traces compare with these. The loop of multiply-adds is compiled for the widest vectors of the
 * CPU, independent of the flags of the module: so are the kernels it is compared with. */
#include "python/native.h"

#include <stdlib.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum {
    ROUNDS = 4096, /* iterations of a loop between two readings of the clock */
    CHAINS = 12,   /* multiply-adds in flight: more than any core's latency times its ports */
    PIECES = 16,   /* of the memory that is copied */
};

static double peaks_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Each runs ROUNDS rounds of CHAINS multiply-adds on vectors, and returns a value that depends on
 * all of them. */
typedef float (*Loop)(void);

/* Twelve names and not an array: the compiler must keep them in registers at any level. */
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

#define LOOP(name, attributes, Vector, set, sum)                                                   \
    attributes static float name(void)                                                             \
    {                                                                                              \
        const Vector factor = set(0.999f), term = set(0.001f);                                     \
        EACH(DECLARE_##name)                                                                       \
        for (int i = 0; i < ROUNDS; i++) {                                                         \
            EACH(STEP_##name)                                                                      \
        }                                                                                          \
        Vector total = set(0.0f);                                                                  \
        EACH(ADD_##name)                                                                           \
        return sum(total);                                                                         \
    }

#if defined(__x86_64__)
#define TARGET(features) __attribute__((target(features)))

#define DECLARE_loop_512(n) __m512 a##n = _mm512_set1_ps((float)(n));
#define STEP_loop_512(n) a##n = _mm512_fmadd_ps(a##n, factor, term);
#define ADD_loop_512(n) total = _mm512_add_ps(total, a##n);
#define DECLARE_loop_256(n) __m256 a##n = _mm256_set1_ps((float)(n));
#define STEP_loop_256(n) a##n = _mm256_fmadd_ps(a##n, factor, term);
#define ADD_loop_256(n) total = _mm256_add_ps(total, a##n);
#define DECLARE_loop_128(n) __m128 a##n = _mm_set1_ps((float)(n));
#define STEP_loop_128(n) a##n = _mm_add_ps(_mm_mul_ps(a##n, factor), term);
#define ADD_loop_128(n) total = _mm_add_ps(total, a##n);

LOOP(loop_512, TARGET("avx512f"), __m512, _mm512_set1_ps, _mm512_reduce_add_ps)
#define FIRST_OF_256(v) _mm_cvtss_f32(_mm256_castps256_ps128(v))
LOOP(loop_256, TARGET("avx2,fma"), __m256, _mm256_set1_ps, FIRST_OF_256)
LOOP(loop_128, , __m128, _mm_set1_ps, _mm_cvtss_f32)

static Loop peaks_choose_loop(int *lanes)
{
    if (__builtin_cpu_supports("avx512f"))
        return *lanes = 16, loop_512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return *lanes = 8, loop_256;
    return *lanes = 4, loop_128;
}
#elif defined(__aarch64__)
#define DECLARE_loop_neon(n) float32x4_t a##n = vdupq_n_f32((float)(n));
#define STEP_loop_neon(n) a##n = vfmaq_f32(term, a##n, factor);
#define ADD_loop_neon(n) total = vaddq_f32(total, a##n);

LOOP(loop_neon, , float32x4_t, vdupq_n_f32, vaddvq_f32)

static Loop choose_loop(int *lanes)
{
    return *lanes = 4, loop_neon;
}
#else
#define SELF(v) (v)
#define DECLARE_loop_scalar(n) float a##n = (float)(n);
#define STEP_loop_scalar(n) a##n = a##n * factor + term;
#define ADD_loop_scalar(n) total += a##n;

LOOP(loop_scalar, , float, SELF, SELF)

static Loop choose_loop(int *lanes)
{
    return *lanes = 1, loop_scalar;
}
#endif

/* Operations a second in the fastest of the short blocks that fit into `seconds`. */
static double peaks_measure_flops(double seconds)
{
    int lanes;
    Loop loop = peaks_choose_loop(&lanes);
    volatile float sink;
    double best = 1e30, end = peaks_now() + seconds;
    do {
        double start = peaks_now();
        for (int i = 0; i < 16; i++)
            sink = loop();
        double elapsed = peaks_now() - start;
        if (elapsed < best)
            best = elapsed;
    } while (peaks_now() < end);
    (void)sink;
    return 16.0 * ROUNDS * CHAINS * 2.0 * lanes / best;
}

/* Bytes read and written a second by memcpy, in the fastest of the chunks: a chunk is short, so
 * that other processes rarely interrupt it, and was last used a full round ago. */
static double peaks_measure_copy(char *to, const char *from, size_t nbytes, double seconds)
{
    size_t piece = nbytes / PIECES > 0 ? nbytes / PIECES : nbytes;
    double best = 1e30, end = peaks_now() + seconds;
    do {
        for (size_t at = 0; at + piece <= nbytes; at += piece) {
            double start = peaks_now();
            memcpy(to + at, from + at, piece);
            double elapsed = peaks_now() - start;
            if (elapsed < best)
                best = elapsed;
        }
    } while (peaks_now() < end);
    return 2.0 * (double)piece / best;
}

PyObject *module_measure_flops(PyObject *module, PyObject *args)
{
    (void)module;
    double seconds, best;
    if (!PyArg_ParseTuple(args, "d:measure_flops", &seconds))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    best = peaks_measure_flops(seconds);
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(best);
}

PyObject *module_measure_copy(PyObject *module, PyObject *args)
{
    (void)module;
    double seconds, best = 0;
    Py_ssize_t nbytes;
    if (!PyArg_ParseTuple(args, "nd:measure_copy", &nbytes, &seconds))
        return NULL;
    if (nbytes <= 0 || nbytes > PY_SSIZE_T_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "measure_copy: there is nothing to copy");
        return NULL;
    }
    char *memory = malloc(2 * (size_t)nbytes);
    if (memory == NULL)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    memset(memory, 1, 2 * (size_t)nbytes); /* every page is there before the clock runs */
    best = peaks_measure_copy(memory, memory + nbytes, (size_t)nbytes, seconds);
    Py_END_ALLOW_THREADS
    free(memory);
    return PyFloat_FromDouble(best);
}
