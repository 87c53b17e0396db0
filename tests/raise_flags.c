/* Raise floating-point flags after every larger product, as Accelerate on Apple's M4 does
   (https://github.com/numpy/numpy/issues/28687): preloaded before NumPy's own OpenBLAS, which
   BLAS_SO names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fenv.h>
#include <stdint.h>
#include <stdlib.h>

typedef int64_t I;

#define RAISE feraiseexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_INVALID)
#define NEXT(n) \
    static void *p; \
    if (!p) p = dlsym(dlopen(getenv("BLAS_SO"), RTLD_LAZY), n)
#define GEMM(T, name) \
    void name(int o, int ta, int tb, I m, I n, I k, T al, const T *a, I la, const T *b, I lb, \
              T be, T *c, I lc) { \
        NEXT(#name); \
        ((void (*)(int, int, int, I, I, I, T, const T *, I, const T *, I, T, T *, I))p)( \
            o, ta, tb, m, n, k, al, a, la, b, lb, be, c, lc); \
        if (m >= 16 || n >= 16 || k >= 16) RAISE; \
    }
#define GEMV(T, name) \
    void name(int o, int t, I m, I n, T al, const T *a, I la, const T *x, I ix, T be, T *y, I iy) { \
        NEXT(#name); \
        ((void (*)(int, int, I, I, T, const T *, I, const T *, I, T, T *, I))p)( \
            o, t, m, n, al, a, la, x, ix, be, y, iy); \
        if (m >= 16 || n >= 16) RAISE; \
    }

GEMM(float, scipy_cblas_sgemm64_)
GEMM(double, scipy_cblas_dgemm64_)
GEMV(float, scipy_cblas_sgemv64_)
GEMV(double, scipy_cblas_dgemv64_)
