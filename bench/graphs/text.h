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

#endif
