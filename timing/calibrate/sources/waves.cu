// Which SMs get the CTAs after the first wave: every CTA does the same work and notes where and when it ran.

__device__ __forceinline__ unsigned long long nanoseconds() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// Work of one kind for `rounds`: 0 a dependent chain (latency), 1 independent FMAs (issue), 2 shared loads without bank
// conflicts, 3 loads that hit L2, 4 a chain with a barrier in each round. out: SM, start, end of each CTA.
extern "C" __global__ void __launch_bounds__(256) same_work(unsigned long long* out, float* sink, const float4* data, int kind, int rounds) {
  extern __shared__ float tile[];
  const unsigned long long start = nanoseconds();
  float x[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = threadIdx.x + i;
  if (kind == 0 || kind == 4) {
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
#pragma unroll
      for (int i = 0; i < 16; ++i) x[0] = fmaf(x[0], 1.0001f, 0.5f);
      if (kind == 4) __syncthreads();
    }
  } else if (kind == 1) {
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i] = fmaf(x[i], 1.0001f, 0.5f);
      }
    }
  } else if (kind == 2) {
    tile[threadIdx.x] = x[0];
    __syncthreads();
    int at = threadIdx.x;
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] += tile[(at + 32 * i) & 255];
      at ^= __float_as_int(x[0]) & 32;
    }
  } else {
    const float4* own = data + (blockIdx.x & 1023) * 256ull + threadIdx.x;
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
      float4 v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = __ldcg(own + ((r * 4 + i) & 7) * 262144);
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] += v[i].x + v[i].y;
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += x[i];
  if (sum == 1.2345f) sink[threadIdx.x] = sum;
  __syncthreads();
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x == 0) out[3 * blockIdx.x] = sm, out[3 * blockIdx.x + 1] = start, out[3 * blockIdx.x + 2] = nanoseconds();
}
