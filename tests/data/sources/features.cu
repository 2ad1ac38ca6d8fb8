// What the front end must read: a jump table, calls, recursion, device and constant variables, vprintf, local memory,
// static shared memory, launch bounds, several kernels, and immediates in every number format.
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__constant__ float coefficients[16] = {1.0f, 2.0f};
__device__ int counter = 3;
__device__ float scratch[8];

extern "C" __global__ void __launch_bounds__(128, 2) jump_table(float* p, int n, char c, double d) {
  __shared__ float tile[100];
  tile[threadIdx.x % 100] = p[threadIdx.x];
  __syncthreads();
  float x = tile[(threadIdx.x * 7) % 100];
  switch (p[n] < 3 ? n : n * 3) {
    case 0: x = sinf(x); break;
    case 1: x = x * coefficients[n]; break;
    case 2: x = logf(x) + d; break;
    case 3: x = expf(x); break;
    case 4: x = x / p[3]; break;
    case 5: x = sqrtf(x); break;
    case 6: x = __shfl_xor_sync(~0u, x, 3); break;
    case 7: x = p[(int)x]; break;
    case 8: x = x * x * x + 1; break;
    case 9: x += c; atomicAdd(&counter, 3); break;
    case 11: x -= scratch[n]; break;
  }
  if (x > 1e30f) printf("high %f", x);
  p[threadIdx.x] = x;
}

__device__ __noinline__ float recursive(float x, int n) {
  float values[8];
  for (int i = 0; i < 8; i++) values[i] = x * i;
  return n <= 0 ? x : recursive(x * 0.5f, n - 1) + values[n & 7];
}

extern "C" __global__ void calls(float* p, int n) { p[threadIdx.x] = recursive(p[threadIdx.x], n); }

extern "C" __global__ void no_parameters() {}

extern "C" __global__ void immediates(float* f, double* d, __half2* h, __nv_bfloat162* b, unsigned long long* u) {
  int i = threadIdx.x;
  f[i] = f[i] * 0.1f + 3.14159e-20f;
  f[i + 1] = f[i + 2] * 1.17e-38f;
  if (f[i + 5] > 1e38f) f[i + 7] = __int_as_float(0xff800000) + f[i + 3];
  d[i] = fma(d[i], d[i + 9], 3.25);
  d[i + 4] = d[i + 4] > 1.5 ? d[i + 5] : 7.0;
  h[i] = __hfma2(h[i], h[i + 7], __floats2half2_rn(0.1f, -3.f));
  h[i + 1] = __hadd2(h[i + 1], __floats2half2_rn(2.f, 5.f));
  h[i + 4] = __hmin2(h[i + 4], __floats2half2_rn(0.3f, 5.f));
  b[i] = __hfma2(b[i], b[i + 7], __floats2bfloat162_rn(0.1f, -3.f));
  u[i] = u[i] * 0x123456789abcdefull + 0x8000000080000001ull;
  u[i + 2] -= 3;
  if (u[i + 5] > 0x80000000ul) u[i + 6] = 5;
}
