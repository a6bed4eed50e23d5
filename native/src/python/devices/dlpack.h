/* The structs of DLPack's specification, declared here as Nova depends on no header of it. */
#ifndef NOVA_PYTHON_DEVICES_DLPACK_H
#define NOVA_PYTHON_DEVICES_DLPACK_H

#include <stdint.h>

enum { DL_CPU = 1, DL_CUDA = 2 };
enum {
    DL_INT = 0,
    DL_UINT = 1,
    DL_FLOAT = 2,
    DL_BFLOAT = 4,
    DL_COMPLEX = 5,
    DL_BOOL = 6,
    DL_FLOAT8_E4M3FN = 10,
    DL_FLOAT8_E5M2 = 12
};
enum { DL_MAJOR = 1, DL_MINOR = 0 };

typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t rank;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

/* What a capsule "dltensor" holds. */
typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

/* What a capsule "dltensor_versioned" holds. */
typedef struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_versioned;

/* What the capsule `__dlpack_c_exchange_api__` of a type holds: its arrays without a call of
 * Python. The first functions are not used here. */
typedef struct {
    uint32_t major, minor;
    void *previous;
    void *allocate, *from_object, *to_object;
    /* valid until the caller returns; no order of streams */
    int (*view)(void *object, dl_tensor *tensor);
    int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
} dl_exchange;

#endif
