// One kernel an operation: out[i] = op(a[i], b[i], c[i]) on 64-bit words, so that the results of a real GPU can be
// recorded and compared with the interpreter's. 32-bit operands sit in the low halves; MMA kernels take register files.

typedef unsigned long long word;

__device__ __forceinline__ unsigned index() { return blockIdx.x * blockDim.x + threadIdx.x; }

#define HEAD(name)                                                                                       \
  extern "C" __global__ void name(word* out, const word* a, const word* b, const word* c, unsigned n) { \
    const unsigned i = index();                                                                          \
    if (i >= n) return;
// The PTX names its operands %0 (result) and %1, %2, %3, all of type .b32 (R) or .b64 (D).
#define RRRR(name, text)                                                                                              \
  HEAD(name) unsigned r;                                                                                              \
  asm(text : "=r"(r) : "r"((unsigned)a[i]), "r"((unsigned)b[i]), "r"((unsigned)c[i]));                                \
  out[i] = r;                                                                                                         \
  }
#define DDDD(name, text)                                                                                              \
  HEAD(name) word r;                                                                                                  \
  asm(text : "=l"(r) : "l"(a[i]), "l"(b[i]), "l"(c[i]));                                                              \
  out[i] = r;                                                                                                         \
  }
#define DRRR(name, text)                                                                                              \
  HEAD(name) word r;                                                                                                  \
  asm(text : "=l"(r) : "r"((unsigned)a[i]), "r"((unsigned)b[i]), "r"((unsigned)c[i]));                                \
  out[i] = r;                                                                                                         \
  }
#define RDDD(name, text)                                                                                              \
  HEAD(name) unsigned r;                                                                                              \
  asm(text : "=r"(r) : "l"(a[i]), "l"(b[i]), "l"(c[i]));                                                              \
  out[i] = r;                                                                                                         \
  }
// A predicate result: the text sets p.
#define PRRR(name, text) RRRR(name, "{.reg .pred p;\n\t" text "\n\tselp.u32 %0, 1, 0, p;}")
#define HALF(name, text)                                                                                              \
  RRRR(name, "{.reg .b16 r, x, y, z, u;\n\tmov.b32 {x, u}, %1;\n\tmov.b32 {y, u}, %2;\n\tmov.b32 {z, u}, %3;\n\t" text \
             "\n\tcvt.u32.u16 %0, r;}")

#if PART == 0  // FP32
RRRR(add_f32, "add.rn.f32 %0, %1, %2;")
RRRR(add_ftz_f32, "add.rn.ftz.f32 %0, %1, %2;")
RRRR(add_rz_f32, "add.rz.f32 %0, %1, %2;")
RRRR(add_rm_f32, "add.rm.f32 %0, %1, %2;")
RRRR(add_rp_f32, "add.rp.f32 %0, %1, %2;")
RRRR(add_sat_f32, "add.rn.sat.f32 %0, %1, %2;")
RRRR(mul_f32, "mul.rn.f32 %0, %1, %2;")
RRRR(mul_ftz_f32, "mul.rn.ftz.f32 %0, %1, %2;")
RRRR(mul_rz_f32, "mul.rz.f32 %0, %1, %2;")
RRRR(fma_f32, "fma.rn.f32 %0, %1, %2, %3;")
RRRR(fma_ftz_f32, "fma.rn.ftz.f32 %0, %1, %2, %3;")
RRRR(fma_rz_f32, "fma.rz.f32 %0, %1, %2, %3;")
RRRR(fma_rm_f32, "fma.rm.f32 %0, %1, %2, %3;")
RRRR(fma_rp_f32, "fma.rp.f32 %0, %1, %2, %3;")
RRRR(fma_sat_f32, "fma.rn.sat.f32 %0, %1, %2, %3;")
RRRR(min_f32, "min.f32 %0, %1, %2;")
RRRR(max_f32, "max.f32 %0, %1, %2;")
RRRR(min_ftz_f32, "min.ftz.f32 %0, %1, %2;")
RRRR(min_nan_f32, "min.NaN.f32 %0, %1, %2;")
RRRR(max_nan_f32, "max.NaN.f32 %0, %1, %2;")
RRRR(div_f32, "div.rn.f32 %0, %1, %2;")
RRRR(div_ftz_f32, "div.rn.ftz.f32 %0, %1, %2;")
RRRR(div_approx_f32, "div.approx.f32 %0, %1, %2;")
RRRR(div_full_f32, "div.full.f32 %0, %1, %2;")
RRRR(rcp_f32, "rcp.rn.f32 %0, %1;")
RRRR(sqrt_f32, "sqrt.rn.f32 %0, %1;")
RRRR(rsqrt_f32, "rsqrt.approx.f32 %0, %1;")
RRRR(ex2_f32, "ex2.approx.f32 %0, %1;")
RRRR(lg2_f32, "lg2.approx.f32 %0, %1;")
RRRR(sin_f32, "sin.approx.f32 %0, %1;")
RRRR(cos_f32, "cos.approx.f32 %0, %1;")
RRRR(tanh_f32, "tanh.approx.f32 %0, %1;")
PRRR(lt_f32, "setp.lt.f32 p, %1, %2;")
PRRR(ltu_f32, "setp.ltu.f32 p, %1, %2;")
PRRR(eq_ftz_f32, "setp.eq.ftz.f32 p, %1, %2;")
PRRR(num_f32, "setp.num.f32 p, %1, %2;")
RRRR(mufu, "ex2.approx.ftz.f32 %0, %1;")  // MUFU.EX2 alone; the function field is rewritten to record the others
#elif PART == 1  // conversions
RRRR(s32_rni_f32, "cvt.rni.s32.f32 %0, %1;")
RRRR(s32_rzi_f32, "cvt.rzi.s32.f32 %0, %1;")
RRRR(s32_rmi_f32, "cvt.rmi.s32.f32 %0, %1;")
RRRR(s32_rpi_f32, "cvt.rpi.s32.f32 %0, %1;")
RRRR(s32_rzi_ftz_f32, "cvt.rzi.ftz.s32.f32 %0, %1;")
RRRR(u32_rni_f32, "cvt.rni.u32.f32 %0, %1;")
RRRR(u32_rzi_f32, "cvt.rzi.u32.f32 %0, %1;")
DRRR(s64_rzi_f32, "cvt.rzi.s64.f32 %0, %1;")
DRRR(u64_rni_f32, "cvt.rni.u64.f32 %0, %1;")
RRRR(s16_rzi_f32, "{.reg .s16 h; cvt.rzi.s16.f32 h, %1; cvt.s32.s16 %0, h;}")
RRRR(u8_rni_f32, "cvt.rni.u8.f32 %0, %1;")
RRRR(f32_rn_s32, "cvt.rn.f32.s32 %0, %1;")
RRRR(f32_rz_s32, "cvt.rz.f32.s32 %0, %1;")
RRRR(f32_rm_s32, "cvt.rm.f32.s32 %0, %1;")
RRRR(f32_rn_u32, "cvt.rn.f32.u32 %0, %1;")
RRRR(f32_rp_u32, "cvt.rp.f32.u32 %0, %1;")
RDDD(f32_rn_s64, "cvt.rn.f32.s64 %0, %1;")
RDDD(f32_rn_u64, "cvt.rn.f32.u64 %0, %1;")
DRRR(f64_s32, "cvt.rn.f64.s32 %0, %1;")
DDDD(f64_u64, "cvt.rn.f64.u64 %0, %1;")
RDDD(f32_rn_f64, "cvt.rn.f32.f64 %0, %1;")
RDDD(f32_rz_f64, "cvt.rz.f32.f64 %0, %1;")
DRRR(f64_f32, "cvt.f64.f32 %0, %1;")
RDDD(s32_rzi_f64, "cvt.rzi.s32.f64 %0, %1;")
RDDD(u32_rni_f64, "cvt.rni.u32.f64 %0, %1;")
DDDD(s64_rni_f64, "cvt.rni.s64.f64 %0, %1;")
RRRR(rni_f32, "cvt.rni.f32.f32 %0, %1;")
RRRR(rzi_f32, "cvt.rzi.f32.f32 %0, %1;")
RRRR(rmi_ftz_f32, "cvt.rmi.ftz.f32.f32 %0, %1;")
DDDD(rpi_f64, "cvt.rpi.f64.f64 %0, %1;")
RRRR(f16_rn_f32, "{.reg .b16 h; cvt.rn.f16.f32 h, %1; cvt.u32.u16 %0, h;}")
RRRR(f16_rz_f32, "{.reg .b16 h; cvt.rz.f16.f32 h, %1; cvt.u32.u16 %0, h;}")
RRRR(f16x2_rn_f32, "cvt.rn.f16x2.f32 %0, %1, %2;")
RRRR(f16x2_rn_relu_f32, "cvt.rn.relu.f16x2.f32 %0, %1, %2;")
RRRR(bf16x2_rn_f32, "cvt.rn.bf16x2.f32 %0, %1, %2;")
RRRR(bf16x2_rz_f32, "cvt.rz.bf16x2.f32 %0, %1, %2;")
RRRR(f32_f16, "{.reg .b16 h, l; mov.b32 {h, l}, %1; cvt.f32.f16 %0, h;}")
RRRR(tf32_rna_f32, "cvt.rna.tf32.f32 %0, %1;")
RRRR(tf32_rn_f32, "cvt.rn.tf32.f32 %0, %1;")
RRRR(e4m3x2_f32, "{.reg .b16 h; cvt.rn.satfinite.e4m3x2.f32 h, %1, %2; cvt.u32.u16 %0, h;}")
RRRR(e5m2x2_f32, "{.reg .b16 h; cvt.rn.satfinite.e5m2x2.f32 h, %1, %2; cvt.u32.u16 %0, h;}")
RRRR(f16x2_e4m3x2, "{.reg .b16 h, l; mov.b32 {h, l}, %1; cvt.rn.f16x2.e4m3x2 %0, h;}")
RRRR(f16x2_e5m2x2, "{.reg .b16 h, l; mov.b32 {h, l}, %1; cvt.rn.f16x2.e5m2x2 %0, h;}")
HALF(s16_rzi_f16, "cvt.rzi.s16.f16 r, x;")
HALF(f16_rn_s16, "cvt.rn.f16.s16 r, x;")
#elif PART == 2  // half precision
RRRR(add_f16x2, "add.rn.f16x2 %0, %1, %2;")
RRRR(add_ftz_f16x2, "add.ftz.f16x2 %0, %1, %2;")
RRRR(add_sat_f16x2, "add.sat.f16x2 %0, %1, %2;")
RRRR(mul_f16x2, "mul.rn.f16x2 %0, %1, %2;")
RRRR(fma_f16x2, "fma.rn.f16x2 %0, %1, %2, %3;")
RRRR(fma_ftz_f16x2, "fma.rn.ftz.f16x2 %0, %1, %2, %3;")
RRRR(fma_sat_f16x2, "fma.rn.sat.f16x2 %0, %1, %2, %3;")
RRRR(fma_relu_f16x2, "fma.rn.relu.f16x2 %0, %1, %2, %3;")
RRRR(min_f16x2, "min.f16x2 %0, %1, %2;")
RRRR(max_nan_f16x2, "max.NaN.f16x2 %0, %1, %2;")
RRRR(fma_bf16x2, "fma.rn.bf16x2 %0, %1, %2, %3;")
RRRR(add_bf16x2, "add.rn.bf16x2 %0, %1, %2;")
RRRR(mul_bf16x2, "mul.rn.bf16x2 %0, %1, %2;")
RRRR(fma_relu_bf16x2, "fma.rn.relu.bf16x2 %0, %1, %2, %3;")
RRRR(max_bf16x2, "max.bf16x2 %0, %1, %2;")
RRRR(ex2_f16x2, "ex2.approx.f16x2 %0, %1;")
RRRR(tanh_f16x2, "tanh.approx.f16x2 %0, %1;")
RRRR(tanh_bf16x2, "tanh.approx.bf16x2 %0, %1;")
RRRR(lt_f16x2, "set.lt.f16x2.f16x2 %0, %1, %2;")
#elif PART == 3  // FP64
DDDD(add_f64, "add.rn.f64 %0, %1, %2;")
DDDD(mul_f64, "mul.rn.f64 %0, %1, %2;")
DDDD(mul_rz_f64, "mul.rz.f64 %0, %1, %2;")
DDDD(fma_f64, "fma.rn.f64 %0, %1, %2, %3;")
DDDD(fma_rm_f64, "fma.rm.f64 %0, %1, %2, %3;")
DDDD(min_f64, "min.f64 %0, %1, %2;")
DDDD(div_f64, "div.rn.f64 %0, %1, %2;")
DDDD(sqrt_f64, "sqrt.rn.f64 %0, %1;")
DDDD(rcp_f64, "rcp.rn.f64 %0, %1;")
DDDD(rcp_approx_f64, "rcp.approx.ftz.f64 %0, %1;")
DDDD(rsqrt_approx_f64, "rsqrt.approx.ftz.f64 %0, %1;")
HEAD(lt_f64)
word r;
asm("{.reg .pred p; setp.lt.f64 p, %1, %2; selp.u64 %0, 1, 0, p;}" : "=l"(r) : "l"(a[i]), "l"(b[i]));
out[i] = r;
}
#elif PART == 4  // integers
RRRR(mul_hi_s32, "mul.hi.s32 %0, %1, %2;")
RRRR(mul_hi_u32, "mul.hi.u32 %0, %1, %2;")
RRRR(mad_lo_s32, "mad.lo.s32 %0, %1, %2, %3;")
DRRR(mul_wide_s32, "mul.wide.s32 %0, %1, %2;")
DRRR(mul_wide_u32, "mul.wide.u32 %0, %1, %2;")
DDDD(mul_lo_u64, "mul.lo.u64 %0, %1, %2;")
DDDD(mul_hi_u64, "mul.hi.u64 %0, %1, %2;")
DDDD(mul_hi_s64, "mul.hi.s64 %0, %1, %2;")
DDDD(add_s64, "add.s64 %0, %1, %2;")
DDDD(div_s64, "{.reg .s64 t; or.b64 t, %2, 1; div.s64 %0, %1, t;}")
RRRR(div_s32, "{.reg .s32 t; or.b32 t, %2, 1; div.s32 %0, %1, t;}")
RRRR(rem_u32, "{.reg .u32 t; or.b32 t, %2, 1; rem.u32 %0, %1, t;}")
RRRR(sad_s32, "sad.s32 %0, %1, %2, %3;")
RRRR(abs_s32, "abs.s32 %0, %1;")
RRRR(popc, "popc.b32 %0, %1;")
RRRR(clz, "clz.b32 %0, %1;")
RRRR(bfind_s32, "bfind.s32 %0, %1;")
RRRR(bfind_shiftamt_u32, "bfind.shiftamt.u32 %0, %1;")
RRRR(brev, "brev.b32 %0, %1;")
RRRR(bfe_u32, "bfe.u32 %0, %1, %2, %3;")
RRRR(bfe_s32, "bfe.s32 %0, %1, %2, %3;")
RRRR(bfi_b32, "bfi.b32 %0, %1, %2, %3, 7;")
RRRR(shl_b32, "shl.b32 %0, %1, %2;")
RRRR(shr_s32, "shr.s32 %0, %1, %2;")
RRRR(shf_l_wrap, "shf.l.wrap.b32 %0, %1, %2, %3;")
RRRR(shf_r_clamp, "shf.r.clamp.b32 %0, %1, %2, %3;")
DDDD(shl_b64, "{.reg .u32 l, h; mov.b64 {l, h}, %2; shl.b64 %0, %1, l;}")
DDDD(shr_s64, "{.reg .u32 l, h; mov.b64 {l, h}, %2; shr.s64 %0, %1, l;}")
RRRR(prmt, "prmt.b32 %0, %1, %2, %3;")
RRRR(prmt_f4e, "prmt.b32.f4e %0, %1, %2, %3;")
RRRR(prmt_b4e, "prmt.b32.b4e %0, %1, %2, %3;")
RRRR(prmt_rc8, "prmt.b32.rc8 %0, %1, %2, %3;")
RRRR(prmt_rc16, "prmt.b32.rc16 %0, %1, %2, %3;")
RRRR(prmt_ecl, "prmt.b32.ecl %0, %1, %2, %3;")
RRRR(lop3_e8, "lop3.b32 %0, %1, %2, %3, 0xe8;")
RRRR(lop3_1b, "lop3.b32 %0, %1, %2, %3, 0x1b;")
RRRR(dp4a_s32, "dp4a.s32.s32 %0, %1, %2, %3;")
RRRR(dp4a_u32_s32, "dp4a.u32.s32 %0, %1, %2, %3;")
RRRR(dp2a_lo, "dp2a.lo.s32.s32 %0, %1, %2, %3;")
RRRR(dp2a_hi, "dp2a.hi.u32.u32 %0, %1, %2, %3;")
RRRR(add_sat_s32, "add.sat.s32 %0, %1, %2;")
RRRR(min_s32, "min.s32 %0, %1, %2;")
RRRR(vmax_s16x2, "max.s16x2 %0, %1, %2;")
RRRR(fns, "fns.b32 %0, %1, 0, 3;")
#elif PART == 5  // matrix units: one MMA a warp; registers lane by lane
#define MMA(name, text, NA, NB, NC)                                                                                    \
  extern "C" __global__ void name(unsigned* out, const unsigned* a, const unsigned* b, const unsigned* c, unsigned n) { \
    const unsigned i = index() / 32, lane = threadIdx.x % 32;                                                          \
    if (i >= n) return;                                                                                                \
    unsigned d[4] = {}, x[4] = {}, y[2] = {};                                                                          \
    for (int k = 0; k < NA; ++k) x[k] = a[(i * 32 + lane) * NA + k];                                                   \
    for (int k = 0; k < NB; ++k) y[k] = b[(i * 32 + lane) * NB + k];                                                   \
    for (int k = 0; k < NC; ++k) d[k] = c[(i * 32 + lane) * NC + k];                                                   \
    asm volatile(text : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                                 \
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));                                  \
    for (int k = 0; k < NC; ++k) out[(i * 32 + lane) * NC + k] = d[k];                                                 \
  }
#define F32_16(type) "mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
MMA(mma_16816_f32_f16, F32_16("f16"), 4, 2, 4)
MMA(mma_16816_f32_bf16, F32_16("bf16"), 4, 2, 4)
MMA(mma_16816_f16_f16, "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1};", 4, 2, 2)
MMA(mma_1688_f32_f16, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%8}, {%0,%1,%2,%3};", 2, 1, 4)
MMA(mma_1688_f16_f16, "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0,%1}, {%4,%5}, {%8}, {%0,%1};", 2, 1, 2)
MMA(mma_1688_f32_bf16, "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%8}, {%0,%1,%2,%3};", 2, 1, 4)
MMA(mma_1688_f32_tf32, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};", 4, 2, 4)
MMA(mma_1684_f32_tf32, "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5}, {%8}, {%0,%1,%2,%3};", 2, 1, 4)
MMA(mma_16816_f32_e4m3, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};", 4, 2, 4)
MMA(mma_16832_s8, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};", 4, 2, 4)
MMA(mma_16832_u8_s8_sat, "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};", 4, 2, 4)
MMA(mma_16816_s8, "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%8}, {%0,%1,%2,%3};", 2, 1, 4)
extern "C" __global__ void mma_884_f64(word* out, const word* a, const word* b, const word* c, unsigned n) {
  const unsigned i = index() / 32, lane = threadIdx.x % 32;
  if (i >= n) return;
  double d0 = __longlong_as_double(c[(i * 32 + lane) * 2]), d1 = __longlong_as_double(c[(i * 32 + lane) * 2 + 1]);
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
               : "+d"(d0), "+d"(d1) : "d"(__longlong_as_double(a[i * 32 + lane])), "d"(__longlong_as_double(b[i * 32 + lane])));
  out[(i * 32 + lane) * 2] = __double_as_longlong(d0), out[(i * 32 + lane) * 2 + 1] = __double_as_longlong(d1);
}
#endif
