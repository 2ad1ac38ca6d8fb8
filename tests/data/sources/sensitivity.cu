// One kernel, chosen by KERNEL, whose time turns on one thing. Every variant of a comparison does the same work.
#ifndef N
#define N 64
#endif

#if KERNEL == 1  // shared loads with STRIDE words between lanes
extern "C" __global__ void k(float* out)
{
    __shared__ float tile[32 * STRIDE];
    for (int i = threadIdx.x; i < 32 * STRIDE; i += blockDim.x) tile[i] = i;
    __syncthreads();
    volatile float* v = tile;
    float sum = 0;
    for (int i = 0; i < N; i++) sum += v[(threadIdx.x & 31) * STRIDE + i % STRIDE];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
#elif KERNEL == 2  // a copy; neighbouring lanes STRIDE elements apart, every element touched once
extern "C" __global__ void k(const float* in, float* out)
{
    int n = gridDim.x * blockDim.x, t = blockIdx.x * blockDim.x + threadIdx.x, rows = n / STRIDE;
    int at = t % rows * STRIDE + t / rows;
    out[at] = in[at] + 1.0f;
}
#elif KERNEL == 3  // 48 running values a thread: a register limit below that spills
extern "C" __global__ void k(const float* in, float* out)
{
    float r[48];
    for (int j = 0; j < 48; j++) r[j] = in[threadIdx.x * 48 + j];
#pragma unroll 1
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < 48; j++) r[j] = r[j] * r[(j + 1) % 48] + 1.0f;
    float sum = 0;
    for (int j = 0; j < 48; j++) sum += r[j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
#elif KERNEL == 4  // sums 4 * N floats out of shared memory, WIDTH at a time, the same ones in every lane
extern "C" __global__ void k(float* out)
{
    __shared__ float4 tile[256];
    tile[threadIdx.x & 255] = make_float4(threadIdx.x, 1, 2, 3);
    __syncthreads();
    float sum = 0;
#pragma unroll 4
    for (int i = 0; i < N; i++) {
        int at = i & 255;
#if WIDTH == 4
        float4 v = tile[at];
        sum += v.x + v.y + v.z + v.w;
#else
        volatile float* s = (volatile float*)tile;
        sum += s[at] + s[at + 256] + s[at + 512] + s[at + 768];
#endif
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
#elif KERNEL == 5  // N * 4096 multiply-adds in four chains, UNROLL of them in the loop's body
extern "C" __global__ void k(float* out)
{
    float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
#pragma unroll 1
    for (int i = 0; i < N * 4096 / UNROLL; i++)
#pragma unroll
        for (int j = 0; j < UNROLL / 4; j++) {
            a = a * 0.5f + 1.0f, b = b * 0.5f + 1.0f, c = c * 0.5f + 1.0f, d = d * 0.5f + 1.0f;
        }
    out[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}
#elif KERNEL == 6  // next to nothing
extern "C" __global__ void k(float* out)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f;
}
#elif KERNEL == 7  // multiply-adds of TYPE
extern "C" __global__ void k(TYPE* out)
{
    TYPE a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
    for (int i = 0; i < N; i++) a = a * b + c, b = b * c + d, c = c * d + a, d = d * a + b;
    out[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}
#elif KERNEL == 8  // reads of one cached line set again and again, STRIDE floats between lanes
extern "C" __global__ void k(const float* in, float* out)
{
    float sum = 0;
    int at = threadIdx.x % 32 * STRIDE;
#pragma unroll 4
    for (int i = 0; i < N; i++) {
        sum += in[at];
        at ^= __float_as_int(sum) == 0x12345678;  // never: the loads stay in the loop
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
#elif KERNEL == 9  // N dependent reads of a constant table of WORDS words, the same one in every lane
__constant__ unsigned table[WORDS];
extern "C" __global__ void k(unsigned* out)
{
    unsigned at = blockIdx.x % WORDS;
#pragma unroll 4
    for (int i = 0; i < N; i++) at = (table[at] + at) % WORDS;
    out[blockIdx.x * blockDim.x + threadIdx.x] = at;
}
#endif
