// One kernel for each thing that costs time, chosen by CASE.
// 0: bank conflicts, 32 ways   1: stores with a stride of 32 words   2: spills, since registers are capped
// 3: 33 CTAs for 132 SMs       4: waiting for global memory with few warps, limited by shared memory
// 5: global atomics            6: a local array indexed at run time    7: diverging lanes

#if CASE == 2
#define CAPPED __launch_bounds__(256, 8)
#else
#define CAPPED
#endif
extern "C" __global__ void CAPPED explained(const float* __restrict__ in, float* __restrict__ out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
#if CASE == 0
  __shared__ float tile[32][32];
  float sum = 0.0f;
  for (int k = 0; k < 64; ++k) {
    tile[threadIdx.x % 32][(threadIdx.x / 32 + k) % 32] = in[i] + k;
    __syncthreads();
    sum += tile[threadIdx.x % 32][(threadIdx.x / 32 + k + 1) % 32];
    __syncthreads();
  }
  out[i] = sum;
#elif CASE == 1
  out[(i % 1024) * 32 + i / 1024] = in[i];
#elif CASE == 2
  float value[48];
#pragma unroll
  for (int k = 0; k < 48; ++k) value[k] = in[(i + 256 * k) % n];
#pragma unroll
  for (int k = 0; k < 48; ++k) value[k] = value[k] * value[(k + 17) % 48] + value[(k + 31) % 48];
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 48; ++k) sum += value[k] * value[(7 * k) % 48];
  out[i] = sum;
#elif CASE == 3
  float value = in[i];
  for (int k = 0; k < 256; ++k) value = value * 0.5f + 1.0f;
  out[i] = value;
#elif CASE == 4
  extern __shared__ float scratch[];
  scratch[threadIdx.x] = 0.0f;
  float sum = 0.0f;
  int at = i;
  for (int k = 0; k < 32; ++k) {
    const float got = in[at];
    sum += got;
    at = (at + 4096 + (got > 1e30f)) % n;
  }
  out[i] = sum + scratch[threadIdx.x];
#elif CASE == 5
  atomicAdd(&out[threadIdx.x % 4], in[i]);
#elif CASE == 6
  float ring[64];
  for (int k = 0; k < 64; ++k) ring[k] = in[i] * k;
  float sum = 0.0f;
  for (int k = 0; k < 32; ++k) {
    const int at = __float_as_int(in[(i + k) % n]) & 63;
    sum += ring[at];
    ring[(at + 1) & 63] = sum;
  }
  out[i] = sum;
#else
  float value = in[i];
  if (threadIdx.x % 8 == 0)
    for (int k = 0; k < 512; ++k) value = value * 0.5f + 1.0f;
  out[i] = value;
#endif
}
