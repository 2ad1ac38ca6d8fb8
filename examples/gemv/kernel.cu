// Product of a dense fp16 matrix, row-major, and an fp32 vector: y = A * x, sums in fp32.
//
// Varied: whether a warp or a whole block works on a row (BLOCK_PER_ROW), rows that it takes at once
// (ROWS_AT_ONCE, sharing what is read of x), block size (BLOCK), width of the loads of A (VEC
// halves), and packs fetched ahead of the arithmetic (UNROLL).

#include <cuda_fp16.h>

constexpr int TEAM = BLOCK_PER_ROW ? BLOCK : 32;
constexpr int WARPS = BLOCK / 32;
constexpr int STEP = TEAM * VEC * UNROLL;
constexpr int X_VEC = VEC < 4 ? VEC : 4;

static_assert(SIZE_N % STEP == 0, "rows hold whole steps");

struct alignas(2 * VEC) Pack {
  __half lane[VEC];
};
struct alignas(4 * X_VEC) XPack {
  float lane[X_VEC];
};

extern "C" __global__ void __launch_bounds__(BLOCK)
gemv(const __half* __restrict__ a, const float* __restrict__ x, float* __restrict__ y) {
  const int team = BLOCK_PER_ROW ? blockIdx.x : blockIdx.x * WARPS + threadIdx.x / 32;
  const int member = BLOCK_PER_ROW ? threadIdx.x : threadIdx.x % 32;
  const int row0 = team * ROWS_AT_ONCE;
  const __half* rows = a + static_cast<long long>(row0) * SIZE_N;

  float sum[ROWS_AT_ONCE] = {};
#pragma unroll 1
  for (int base = member * VEC; base < SIZE_N; base += STEP) {
    Pack pack[ROWS_AT_ONCE][UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
#pragma unroll
      for (int r = 0; r < ROWS_AT_ONCE; ++r)
        pack[r][u] = *reinterpret_cast<const Pack*>(rows + r * SIZE_N + base + u * TEAM * VEC);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
      for (int part = 0; part < VEC; part += X_VEC) {
        const XPack factor = *reinterpret_cast<const XPack*>(x + base + u * TEAM * VEC + part);
#pragma unroll
        for (int v = 0; v < X_VEC; ++v)
#pragma unroll
          for (int r = 0; r < ROWS_AT_ONCE; ++r)
            sum[r] = fmaf(__half2float(pack[r][u].lane[part + v]), factor.lane[v], sum[r]);
      }
    }
  }

#pragma unroll
  for (int r = 0; r < ROWS_AT_ONCE; ++r)
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], offset);

  if (BLOCK_PER_ROW) {
    __shared__ float per_warp[ROWS_AT_ONCE][WARPS];
    if (threadIdx.x % 32 == 0) {
#pragma unroll
      for (int r = 0; r < ROWS_AT_ONCE; ++r) per_warp[r][threadIdx.x / 32] = sum[r];
    }
    __syncthreads();
    if (threadIdx.x < ROWS_AT_ONCE) {
      float total = 0.0f;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) total += per_warp[threadIdx.x][w];
      y[row0 + threadIdx.x] = total;
    }
  } else if (member == 0) {
#pragma unroll
    for (int r = 0; r < ROWS_AT_ONCE; ++r) y[row0 + r] = sum[r];
  }
}
