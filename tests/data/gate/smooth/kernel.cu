// Repeated smoothing of a tile held in shared memory.
extern "C" __global__ void __launch_bounds__(256) smooth(const float* __restrict__ in, float* __restrict__ out) {
  __shared__ float tile[THREADS];
  const int i = blockIdx.x * THREADS + threadIdx.x;
  float value = in[i];
  for (int step = 0; step < STEPS; ++step) {
    tile[threadIdx.x] = value;
    __syncthreads();
    const float left = tile[(threadIdx.x + THREADS - 1) % THREADS];
    const float right = tile[(threadIdx.x + 1) % THREADS];
    __syncthreads();
    value = 0.5f * value + 0.25f * (left + right);
  }
  out[i] = value;
}
