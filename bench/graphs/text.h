/* The kernels' texts, which the build puts into the program (cmake/PlasmonText.cmake). */
#ifndef BENCH_GRAPHS_TEXT_H
#define BENCH_GRAPHS_TEXT_H

/* CUDA C: reduce.cu, then the file of that name. */
const char *graphs_text_vec_cu(void);
const char *graphs_text_bs_cu(void);
const char *graphs_text_img_cu(void);
const char *graphs_text_ml_cu(void);
const char *graphs_text_hits_cu(void);
const char *graphs_text_dl_cu(void);
/* C for CPU devices. */
const char *graphs_text_vec_cpu(void);
const char *graphs_text_bs_cpu(void);
const char *graphs_text_img_cpu(void);
const char *graphs_text_ml_cpu(void);
const char *graphs_text_hits_cpu(void);
const char *graphs_text_dl_cpu(void);

const char *graphs_text_chain_cu(void);
const char *graphs_text_chain_cpu(void);
/* For several devices: part.cu or part_cpu.c stands before them too. */
const char *graphs_text_multi_vec_cu(void);
const char *graphs_text_multi_bs_cu(void);
const char *graphs_text_multi_ml_cu(void);
const char *graphs_text_multi_dense_cu(void);
const char *graphs_text_multi_vec_cpu(void);
const char *graphs_text_multi_bs_cpu(void);
const char *graphs_text_multi_ml_cpu(void);
const char *graphs_text_multi_dense_cpu(void);

#endif
