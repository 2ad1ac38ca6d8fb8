// Seven-point stencil over an fp32 volume, edge values repeated outside.
//
// Varied: block shape (BLOCK_X x BLOCK_Y), planes that one thread walks through (PLANES), the plane at hand in shared memory or
// all neighbours read from global memory (PLANE_SHARED), and unrolling of the walk (UNROLL).

constexpr int WALK_UNROLL = UNROLL;
constexpr int PITCH = SIZE, PLANE = SIZE * SIZE;

__device__ __forceinline__ int clamped(int value) { return min(max(value, 0), SIZE - 1); }

extern "C" __global__ void __launch_bounds__(BLOCK_X* BLOCK_Y) stencil3d(const float* __restrict__ in, float* __restrict__ out) {
  const int x = blockIdx.x * BLOCK_X + threadIdx.x, y = blockIdx.y * BLOCK_Y + threadIdx.y, z0 = blockIdx.z * PLANES;
  const float* column = in + y * PITCH + x;
  float below = column[clamped(z0 - 1) * PLANE], here = column[z0 * PLANE];
#if PLANE_SHARED
  __shared__ float plane[BLOCK_Y + 2][BLOCK_X + 2];
#endif
#pragma unroll WALK_UNROLL
  for (int k = 0; k < PLANES; ++k) {
    const int z = z0 + k;
    const float above = column[clamped(z + 1) * PLANE];
#if PLANE_SHARED
    plane[threadIdx.y + 1][threadIdx.x + 1] = here;
    const float* level = in + z * PLANE;
    if (threadIdx.x == 0) plane[threadIdx.y + 1][0] = level[y * PITCH + clamped(x - 1)];
    if (threadIdx.x == BLOCK_X - 1) plane[threadIdx.y + 1][BLOCK_X + 1] = level[y * PITCH + clamped(x + 1)];
    if (threadIdx.y == 0) plane[0][threadIdx.x + 1] = level[clamped(y - 1) * PITCH + x];
    if (threadIdx.y == BLOCK_Y - 1) plane[BLOCK_Y + 1][threadIdx.x + 1] = level[clamped(y + 1) * PITCH + x];
    __syncthreads();
    const float left = plane[threadIdx.y + 1][threadIdx.x], right = plane[threadIdx.y + 1][threadIdx.x + 2];
    const float front = plane[threadIdx.y][threadIdx.x + 1], back = plane[threadIdx.y + 2][threadIdx.x + 1];
#else
    const float* level = in + z * PLANE;
    const float left = level[y * PITCH + clamped(x - 1)], right = level[y * PITCH + clamped(x + 1)];
    const float front = level[clamped(y - 1) * PITCH + x], back = level[clamped(y + 1) * PITCH + x];
#endif
    out[z * PLANE + y * PITCH + x] = 0.4f * here + 0.1f * (left + right + front + back + below + above);
#if PLANE_SHARED
    __syncthreads();
#endif
    below = here;
    here = above;
  }
}
