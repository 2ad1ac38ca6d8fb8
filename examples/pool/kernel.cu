// Largest of 3 x 3 values at a stride of 2 in each of many channels, fp16, channels last (pooling of a convolutional net).
//
// Varied: channels a thread takes at once (VEC), outputs in a row a thread computes (OUTPUTS), the axis that threads of a block run
// along (CHANNELS_FIRST), and the block size.

#include <cuda_fp16.h>

#if VEC == 8
typedef uint4 Pack;
#elif VEC == 4
typedef uint2 Pack;
#else
typedef unsigned Pack;
#endif
constexpr int PACKS = CHANNELS / VEC;

__device__ __forceinline__ void take(Pack& most, const Pack& other) {
  __half2* a = reinterpret_cast<__half2*>(&most);
  const __half2* b = reinterpret_cast<const __half2*>(&other);
#pragma unroll
  for (int k = 0; k < VEC / 2; ++k) a[k] = __hmax2(a[k], b[k]);
}

extern "C" __global__ void __launch_bounds__(BLOCK) pool(const Pack* __restrict__ in, Pack* __restrict__ out) {
  constexpr int GROUPS = (OUT + OUTPUTS - 1) / OUTPUTS;
  const long long item = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x;
  if (item >= static_cast<long long>(IMAGES) * OUT * GROUPS * PACKS) return;
#if CHANNELS_FIRST
  const int pack = item % PACKS, group = item / PACKS % GROUPS;
#else
  const int group = item % GROUPS, pack = item / GROUPS % PACKS;
#endif
  const int y = item / (PACKS * GROUPS) % OUT, image = item / (PACKS * GROUPS) / OUT;
  const Pack* from = in + (static_cast<long long>(image) * SIZE + 2 * y) * SIZE * PACKS + pack;
  Pack* to = out + (static_cast<long long>(image) * OUT + y) * OUT * PACKS + pack;
#pragma unroll
  for (int o = 0; o < OUTPUTS; ++o) {
    const int x = group * OUTPUTS + o;
    if (x >= OUT) return;
    Pack most = from[2 * x * PACKS];
#pragma unroll
    for (int dy = 0; dy < 3; ++dy)
#pragma unroll
      for (int dx = 0; dx < 3; ++dx)
        if (dy + dx > 0) take(most, from[(dy * SIZE + 2 * x + dx) * PACKS]);
    to[x * PACKS] = most;
  }
}
