// am.h - GAM 1.1 over U-Net: programs written to the Generic Active Message interface compile and run unchanged.
//
//   cc program.c $(pkg-config --cflags --libs unet-gam)          #include <am.h>
//   unet-run -n 4 -- ./program
//
// Processes of a job find each other by UNET_RANK and UNET_SIZE, which unet-run sets, at one network interface (UNET_NI); without them a
// job has one process. am_enable() and am_disable() wait for all of them.
//
// Handlers are functions of the program itself, not of a shared library, and the program is the same file everywhere: a process whose
// program differs is not found, a function that is none of the program's is refused with EINVAL (both in program_image.h). It may be
// loaded at another address in each process; the address of a variable of the program means the one there. So that such an address can
// never be taken for another's, the package's flags build programs that are loaded at one address (-no-pie).
//
// TRUST: a process of the job may store to and get from any address of the others, as GAM wants it. Only processes of the same user are let
// in and reached, as the network interface sees users; run jobs on a network interface of their own, as unet-run does. So a job is one
// host's: of a process on another one nobody knows the user (docs/ACTIVE_MESSAGES.md).
//
// A function returns 0, or -1 and sets AM_errno: EINVAL (a rank, a size, a handler), EPERM (a request from a handler, a reply from
// elsewhere or a second one), ENOTCONN (not between am_enable() and am_disable()), EHOSTUNREACH (the process is gone, or another user has
// its name), EADDRINUSE (another has ours), ETIMEDOUT (it did not start), ENOTSUP (another launcher than unet-run, such as mpirun, has
// started it: am_enable() says so on stderr), ENOMEM. Processes that compute for long call am_poll() now and then. Handlers throw nothing.
// Not for several threads.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

typedef int vnn_t;  // a process's rank, from 0

// C23 has no functions of any parameters: its programs declare them as those in C++ do.
#if defined __cplusplus || __STDC_VERSION__ >= 202311L
typedef void (*handler_0_t)(vnn_t);
typedef void (*handler_1_t)(vnn_t, long);
typedef void (*handler_2_t)(vnn_t, long, long);
typedef void (*handler_3_t)(vnn_t, long, long, long);
typedef void (*handler_4_t)(vnn_t, long, long, long, long);
typedef void (*handler_df_t)(vnn_t, long, long, double);
typedef void (*handler_mem_t)(vnn_t, void *, int, void *);
int am_enable(...);
#else
typedef void (*handler_t)();
typedef handler_t handler_0_t, handler_1_t, handler_2_t, handler_3_t, handler_4_t, handler_df_t, handler_mem_t;
int am_enable();      // whatever arguments a program has for it are not looked at
#endif
int am_disable(void);

extern int AM_errno;

int am_my_proc(void);
int am_procs(void);
int am_max_size(void);  // bytes of a store or get that every program may have: 16 MiB. Up to INT_MAX are taken

// Runs the handlers of what has arrived; in a handler or an endfunc: does nothing. So does every function below, but for replies.
int am_poll(void);

// handler(own rank, a0, ...) runs at `dest`.
int am_request_0(vnn_t dest, handler_0_t handler);
int am_request_1(vnn_t dest, handler_1_t handler, long a0);
int am_request_2(vnn_t dest, handler_2_t handler, long a0, long a1);
int am_request_3(vnn_t dest, handler_3_t handler, long a0, long a1, long a2);
int am_request_4(vnn_t dest, handler_4_t handler, long a0, long a1, long a2, long a3);
int am_request_df(vnn_t dest, handler_df_t handler, long a0, long a1, double a2);

// From a request's handler, at most once, to who sent it.
int am_reply_0(vnn_t dest, handler_0_t handler);
int am_reply_1(vnn_t dest, handler_1_t handler, long a0);
int am_reply_2(vnn_t dest, handler_2_t handler, long a0, long a1);
int am_reply_3(vnn_t dest, handler_3_t handler, long a0, long a1, long a2);
int am_reply_4(vnn_t dest, handler_4_t handler, long a0, long a1, long a2, long a3);
int am_reply_df(vnn_t dest, handler_df_t handler, long a0, long a1, double a2);

// Copies from `lva` here to `rva` at `dest`, then runs handler(own rank, rva, nbytes, arg) there, unless it is NULL. `lva` is free again at
// return; am_store_async(): when endfunc(dest, lva, nbytes, earg), which may be NULL, has run here.
int am_store(vnn_t dest, void *lva, void *rva, int nbytes, handler_mem_t handler, void *arg);
int am_store_async(vnn_t dest, void *lva, void *rva, int nbytes, handler_mem_t handler, void *arg, handler_mem_t endfunc, void *earg);

// Copies from `rva` at `source` to `lva` here; then handler(source, lva, nbytes, arg) runs here, unless it is NULL.
int am_get(vnn_t source, void *rva, void *lva, int nbytes, handler_mem_t handler, void *arg);

#ifdef __cplusplus
}
#endif
