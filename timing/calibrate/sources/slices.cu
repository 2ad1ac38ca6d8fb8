// L2 slices: what one line, and what few lines, give when all SMs ask for them. Loads and stores are strong at GPU scope, so
// that each goes to L2.

__device__ __forceinline__ unsigned now() {
  unsigned t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
  return t;
}

// Each warp reads 32 words from each of `bytes` wide places, `count` (a power of two) of them in turn, eight under way: place k
// begins at byte where[k] of data. `bytes`: 128 a whole line, 32 one sector. out: cycles of each CTA.
extern "C" __global__ void __launch_bounds__(256) hot_reads(unsigned* out, const char* data, const unsigned* where, unsigned count,
                                                            unsigned bytes, int steps) {
  __shared__ unsigned at[1024];
  for (unsigned i = threadIdx.x; i < 1024; i += 256) at[i] = where[i & count - 1];
  __syncthreads();
  const char* own = data + threadIdx.x * 4 % bytes;
  unsigned sum = 0;
  const unsigned from = now();
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    unsigned v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k)
      asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v[k]) : "l"(own + at[(i * 8 + k) & 1023]) : "memory");
#pragma unroll
    for (int k = 0; k < 8; ++k) sum ^= v[k];
  }
  const unsigned until = now();
  if (sum == 1) out[0] = sum;
  if (threadIdx.x == 0) out[1 + blockIdx.x] = until - from;
}

// The same with stores.
extern "C" __global__ void __launch_bounds__(256) hot_writes(unsigned* out, char* data, const unsigned* where, unsigned count,
                                                             unsigned bytes, int steps) {
  __shared__ unsigned at[1024];
  for (unsigned i = threadIdx.x; i < 1024; i += 256) at[i] = where[i & count - 1];
  __syncthreads();
  char* own = data + threadIdx.x * 4 % bytes;
  const unsigned from = now();
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
#pragma unroll
    for (int k = 0; k < 8; ++k)
      asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(own + at[(i * 8 + k) & 1023]), "r"(i) : "memory");
  }
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
  const unsigned until = now();
  if (threadIdx.x == 0) out[1 + blockIdx.x] = until - from;
}
