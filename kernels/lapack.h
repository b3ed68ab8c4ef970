/*
 * What is used of LAPACK, in Fortran's way: everything by reference, matrices by columns. OpenBLAS has it.
 */
#ifndef KERNELS_LAPACK_H
#define KERNELS_LAPACK_H

#include <cblas.h>

void spotrf_(const char *uplo, const blasint *n, float *a, const blasint *lda,
             blasint *info);
void dpotrf_(const char *uplo, const blasint *n, double *a, const blasint *lda,
             blasint *info);
void sgeqrf_(const blasint *m, const blasint *n, float *a, const blasint *lda, float *tau,
             float *work, const blasint *lwork, blasint *info);
void dgeqrf_(const blasint *m, const blasint *n, double *a, const blasint *lda, double *tau,
             double *work, const blasint *lwork, blasint *info);
void sorgqr_(const blasint *m, const blasint *n, const blasint *k, float *a,
             const blasint *lda, const float *tau, float *work, const blasint *lwork,
             blasint *info);
void dorgqr_(const blasint *m, const blasint *n, const blasint *k, double *a,
             const blasint *lda, const double *tau, double *work, const blasint *lwork,
             blasint *info);
void sgesdd_(const char *job, const blasint *m, const blasint *n, float *a,
             const blasint *lda, float *s, float *u, const blasint *ldu, float *vt,
             const blasint *ldvt, float *work, const blasint *lwork, blasint *iwork,
             blasint *info);
void dgesdd_(const char *job, const blasint *m, const blasint *n, double *a,
             const blasint *lda, double *s, double *u, const blasint *ldu, double *vt,
             const blasint *ldvt, double *work, const blasint *lwork, blasint *iwork,
             blasint *info);
void ssyevd_(const char *job, const char *uplo, const blasint *n, float *a,
             const blasint *lda, float *w, float *work, const blasint *lwork,
             blasint *iwork, const blasint *liwork, blasint *info);
void dsyevd_(const char *job, const char *uplo, const blasint *n, double *a,
             const blasint *lda, double *w, double *work, const blasint *lwork,
             blasint *iwork, const blasint *liwork, blasint *info);
void sgetrf_(const blasint *m, const blasint *n, float *a, const blasint *lda,
             blasint *pivots, blasint *info);
void dgetrf_(const blasint *m, const blasint *n, double *a, const blasint *lda,
             blasint *pivots, blasint *info);
void sgetri_(const blasint *n, float *a, const blasint *lda, const blasint *pivots,
             float *work, const blasint *lwork, blasint *info);
void dgetri_(const blasint *n, double *a, const blasint *lda, const blasint *pivots,
             double *work, const blasint *lwork, blasint *info);

#endif
