// Mean over a square of (2 RADIUS + 1)^2 bytes of an 8-bit image, edge values repeated outside; sums of columns first.
//
// Varied: radius, threads across (BLOCK_X) and rows of a CTA's tile (ROWS), pixels a thread reads at once (VEC: 1 or 4), sums of
// rows kept in shared memory as 16 or 32 bits (WIDE).

constexpr int TILE_W = BLOCK_X * VEC;        // columns that are summed, EDGE of them beyond each side of the INNER ones
constexpr int EDGE = (RADIUS + 3) / 4 * 4;  // whole words
constexpr int AREA = (2 * RADIUS + 1) * (2 * RADIUS + 1);

#if WIDE
typedef unsigned Sum;
#else
typedef unsigned short Sum;
#endif

__device__ __forceinline__ int clamped(int value, int size) { return min(max(value, 0), size - 1); }

extern "C" __global__ void __launch_bounds__(BLOCK_X) blur(const unsigned char* __restrict__ in, unsigned char* __restrict__ out) {
  __shared__ Sum sums[2][TILE_W];
  const int first = blockIdx.x * INNER - EDGE + threadIdx.x * VEC, y0 = blockIdx.y * ROWS;
  unsigned column[VEC] = {};
  const auto add = [&](int y, int sign) {
    const unsigned char* row = in + static_cast<long long>(clamped(y, HEIGHT)) * WIDTH;
#if VEC == 4
    if (first >= 0 && first + 3 < WIDTH) {
      const unsigned four = *reinterpret_cast<const unsigned*>(row + first);
#pragma unroll
      for (int k = 0; k < 4; ++k) column[k] += sign * static_cast<int>(four >> 8 * k & 255);
      return;
    }
#endif
#pragma unroll
    for (int k = 0; k < VEC; ++k) column[k] += sign * static_cast<int>(row[clamped(first + k, WIDTH)]);
  };
  for (int y = y0 - RADIUS; y < y0 + RADIUS; ++y) add(y, 1);
#pragma unroll 1
  for (int r = 0; r < ROWS; ++r) {
    const int y = y0 + r;
    add(y + RADIUS, 1);
    Sum* line = sums[r & 1];
#pragma unroll
    for (int k = 0; k < VEC; ++k) line[threadIdx.x * VEC + k] = static_cast<Sum>(column[k]);
    __syncthreads();
    for (int i = threadIdx.x; i < INNER; i += BLOCK_X) {
      unsigned total = 0;
#pragma unroll
      for (int d = -RADIUS; d <= RADIUS; ++d) total += line[i + EDGE + d];
      const int x = blockIdx.x * INNER + i;
      if (x < WIDTH && y < HEIGHT) out[static_cast<long long>(y) * WIDTH + x] = static_cast<unsigned char>(total / AREA);
    }
    add(y - RADIUS, -1);
  }
}
