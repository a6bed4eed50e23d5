/* Cooperative launches of the library in fake_cuda.c, which includes this file. */
API int cuLaunchCooperativeKernel(void *function, unsigned gx, unsigned gy, unsigned gz,
                                  unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                  void *stream, void **parameters)
{
    (void)shared;
    WORK("cuLaunchCooperativeKernel", stream);
    void *buffer[6];
    for (int i = 0; i < 6; i++)
        memcpy(&buffer[i], parameters[i], sizeof buffer[i]);
    return run(function, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, buffer);
}
API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads,
                                                    size_t shared)
{
    (void)function, (void)threads, (void)shared;
    CALL("cuOccupancyMaxActiveBlocksPerMultiprocessor");
    *blocks = 2;
    return OK;
}
API int cuCtxGetDevice(int *device)
{
    *device = 0;
    return OK;
}
API int cuFuncGetAttribute(int *value, int attribute, void *function)
{
    (void)attribute, (void)function;
    *value = 0;
    return OK;
}
