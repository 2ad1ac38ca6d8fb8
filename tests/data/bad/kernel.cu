// One mishap a value of CASE, for the tests of what a user is told.
extern "C" __global__ void bad(float* data, int n) {
#if CASE == 0  // well-behaved
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = data[i] * 2.0f + 1.0f;
#elif CASE == 1  // out of bounds
    data[(size_t)n * 4096 + threadIdx.x] = 1.0f;
#elif CASE == 2  // endless loop
    volatile float* p = data;
    while (p[0] >= 0.0f) p[1] = p[0] + 1.0f;
#elif CASE == 3  // two halves of the CTA wait at different barriers, each for all threads
    if (threadIdx.x < 64) asm volatile("bar.sync 1, 128;");
    else asm volatile("bar.sync 2, 128;");
    data[threadIdx.x] = 1.0f;
#elif CASE == 4  // an instruction that is not modelled: texture fetch
    data[threadIdx.x] = tex1Dfetch<float>((cudaTextureObject_t)n, threadIdx.x);
#elif CASE == 5  // does not compile
    data[threadIdx.x] = no_such_name;
#elif CASE == 6  // misaligned
    *(float2*)((char*)data + 4) = make_float2(1.0f, 2.0f);
#endif
}
