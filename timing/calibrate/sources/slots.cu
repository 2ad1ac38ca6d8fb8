// A loop of SLOTS FFMAs whose registers and control fields are rewritten in the cubin before it is loaded: how the
// register file's ports, the operand cache, stall counts and the yield bit govern issue. Values do not matter.

constexpr int SLOTS = 256;

extern "C" __global__ void slots(unsigned* out, const float* data, int iterations) {
  float x[18];
#pragma unroll
  for (int i = 0; i < 18; ++i) x[i] = data[32 * i + threadIdx.x % 32];
  unsigned start = 0;
#pragma unroll 1
  for (int it = -2; it < iterations; ++it) {
    if (it == 0) asm volatile("mov.u32 %0, %%clock;" : "=r"(start)::"memory");
#pragma unroll
    for (int i = 0; i < SLOTS; ++i)
      asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x[i % 18]) : "f"(x[(i + 5) % 18]), "f"(x[(i + 11) % 18]));
  }
  unsigned end, sm;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(end)::"memory");
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (threadIdx.x % 32 == 0) out[4 * warp] = start, out[4 * warp + 1] = end, out[4 * warp + 2] = sm;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 18; ++i) sum += x[i];
  if (sum == 12345.0f) out[4 * warp + 3] = 1;
}
