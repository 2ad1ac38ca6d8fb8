// Small kernels of the kinds people tune, with answers that NumPy can check.
// nvcc -cubin -std=c++17 -O3 -arch=sm_90a kernels.cu -o ../cubins/kernels.sm_90a.cubin   (also sm_80, sm_100a, sm_120a)

extern "C" __global__ void sgemm(const float* a, const float* b, float* c, int n)
{
    __shared__ float sa[16][17], sb[16][16];
    int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * 16 + x, row = blockIdx.y * 16 + y;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        sa[y][x] = a[row * n + k + x];
        sb[y][x] = b[(k + y) * n + column];
        __syncthreads();
        for (int j = 0; j < 16; j++) sum += sa[y][j] * sb[j][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" __global__ void transpose(const float* in, float* out, int width, int height)
{
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x;
    for (int y = blockIdx.y * 32 + threadIdx.y, j = threadIdx.y; j < 32; j += 8, y += 8)
        if (x < width && y < height) tile[j][threadIdx.x] = in[y * width + x];
    __syncthreads();
    int ox = blockIdx.y * 32 + threadIdx.x;
    for (int y = blockIdx.x * 32 + threadIdx.y, j = threadIdx.y; j < 32; j += 8, y += 8)
        if (ox < height && y < width) out[y * height + ox] = tile[threadIdx.x][j];
}

// The last block to finish adds the blocks' sums: a ticket, fences, shuffles and a shared-memory tree.
extern "C" __global__ void reduce(const int* in, int* partial, unsigned* ticket, int* total, int count)
{
    __shared__ int warps[8];
    __shared__ bool last;
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) sum += in[i];
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; w++) sum += warps[w];
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(ticket, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        int all = 0;
        for (int b = 0; b < gridDim.x; b++) all += ((volatile int*)partial)[b];
        *total = all;
    }
}

extern "C" __global__ void histogram(const unsigned* keys, unsigned* counts, int count)
{
    __shared__ unsigned bins[64];
    for (int i = threadIdx.x; i < 64; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[keys[i] % 64], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 64; i += blockDim.x)
        if (bins[i]) atomicAdd(&counts[i], bins[i]);
}

__device__ __noinline__ int collatz(int n)
{
    int steps = 0;
    while (n != 1) { n = n % 2 ? 3 * n + 1 : n / 2; steps++; }
    return steps;
}

// Calls, loops of different lengths, a switch, early exits, local arrays with computed indices.
extern "C" __global__ void branches(const int* in, int* out, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int x = in[i], table[8];
    for (int k = 0; k < 8; k++) table[(k * x) & 7] = k + x;
    int r = table[x & 7];
    switch (x % 6) {
        case 0: r += collatz(x + 1); break;
        case 1: if (x > 50) { out[i] = -1; return; } r *= 3; break;
        case 2: for (int k = 0; k < x; k++) r ^= k * r + 1; break;
        case 3: r = __popc(r) + __clz(x); break;
        case 4: r = x / (r % 7 + 8); break;
        default: r = collatz(x) - collatz(x + 2);
    }
    out[i] = r;
}

// A lock that lanes of one warp, other warps and other blocks take in turn.
extern "C" __global__ void locked(int* lock, int* value)
{
    for (bool done = false; !done;) {
        if (atomicCAS(lock, 0, 1) == 0) {
            *(volatile int*)value = *(volatile int*)value + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

extern "C" __global__ void generic(int* global, int choice)
{
    __shared__ int shared[64];
    int local[4] = {choice, choice + 1, choice + 2, choice + 3};
    shared[threadIdx.x] = 1000 + threadIdx.x;
    __syncthreads();
    int lane = threadIdx.x % 3;
    int* p = lane == 0 ? shared + threadIdx.x : lane == 1 ? local + (choice & 3) : global + threadIdx.x;
    *p += 5;
    __syncthreads();
    global[64 + threadIdx.x] = *p;
}

extern "C" __global__ void floats(const float* in, float* out)
{
    int i = threadIdx.x;
    float x = in[i], y = in[i + 64];
    out[i] = x / y;
    out[i + 64] = sqrtf(x);
    out[i + 128] = __fadd_rz(x, y) + __fmaf_rd(x, y, x) + __fmul_ru(x, y);
    out[i + 192] = (float)((double)x * y + 1.0 / y);
    out[i + 256] = expf(x) + logf(y) + sinf(x);
    out[i + 320] = fmodf(x, y);
}
