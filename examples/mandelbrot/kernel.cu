// Escape times of the Mandelbrot set: iterations until |z| exceeds 2, at most LIMIT, per pixel.
//
// Varied: block shape (BLOCK threads, BX along x), pixels per thread (PIXELS, along y), iterations
// between two tests of the loop (UNROLL), and how a thread stops (MODE: 0 it leaves the loop at the
// iteration that escapes, 1 it runs on to the end of the group of UNROLL and counts by predicate,
// 2 as 1 with all its pixels advanced together). All modes round alike, so the counts are equal.

constexpr int FACTOR = UNROLL;  // the pragma takes no macro
constexpr int BY = BLOCK / BX;

static_assert(LIMIT % UNROLL == 0, "groups of iterations end at the limit");
static_assert(SIZE_X % BX == 0 && SIZE_Y % (BY * PIXELS) == 0, "blocks must divide the image");

struct Point {
  float re, im;
};

__device__ __forceinline__ Point pixel(int x, int y) {
  return {fmaf(x, 3.0f / SIZE_X, -2.25f), fmaf(y, 2.5f / SIZE_Y, -1.25f)};
}

__device__ __forceinline__ bool inside(Point z) { return fmaf(z.re, z.re, __fmul_rn(z.im, z.im)) <= 4.0f; }

__device__ __forceinline__ Point advance(Point z, Point c) {
  return {__fadd_rn(fmaf(z.re, z.re, -__fmul_rn(z.im, z.im)), c.re), fmaf(__fadd_rn(z.re, z.re), z.im, c.im)};
}

extern "C" __global__ void __launch_bounds__(BLOCK)
mandelbrot(int* __restrict__ counts) {
  const int x = blockIdx.x * BX + threadIdx.x;
  const int y0 = blockIdx.y * (BY * PIXELS) + threadIdx.y;

  if (MODE == 2) {
    Point c[PIXELS], z[PIXELS];
    int count[PIXELS];
#pragma unroll
    for (int p = 0; p < PIXELS; ++p) {
      c[p] = z[p] = pixel(x, y0 + p * BY);
      count[p] = 0;
    }
#pragma unroll 1
    for (int i = 0; i < LIMIT; i += UNROLL) {
      bool any = false;
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
        for (int p = 0; p < PIXELS; ++p) {
          count[p] += inside(z[p]) ? 1 : 0;
          z[p] = advance(z[p], c[p]);
        }
      }
#pragma unroll
      for (int p = 0; p < PIXELS; ++p) any = any || inside(z[p]);
      if (!any) break;
    }
#pragma unroll
    for (int p = 0; p < PIXELS; ++p) counts[(y0 + p * BY) * SIZE_X + x] = count[p];
    return;
  }

#pragma unroll 1
  for (int p = 0; p < PIXELS; ++p) {
    const int y = y0 + p * BY;
    const Point c = pixel(x, y);
    Point z = c;
    int count = 0;
    if (MODE == 0) {
#pragma unroll FACTOR
      for (int i = 0; i < LIMIT; ++i) {
        if (!inside(z)) break;
        z = advance(z, c);
        ++count;
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < LIMIT && inside(z); i += UNROLL) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
          count += inside(z) ? 1 : 0;
          z = advance(z, c);
        }
      }
    }
    counts[y * SIZE_X + x] = count;
  }
}
