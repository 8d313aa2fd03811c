// am.h - GAM 1.1 over U-Net: programs written to the Generic Active Message interface compile and run unchanged.
//
//   cc program.c $(pkg-config --cflags --libs unet-gam)          #include <am.h>
//   unet-run -n 4 -- ./program
//
// The processes of a job find each other by UNET_RANK and UNET_SIZE, which unet-run sets, at one network interface (UNET_NI). Without these
// a job has one process. am_enable() and am_disable() wait for all processes.
//
// A handler must be a function of the program itself, not of a shared library, and all processes must run the same program file. A process
// of another program is not found; another function is refused with EINVAL (program_image.h). The program may lie at another address in
// each process: the address of one of its variables means the receiver's variable. The package's flags build programs for one fixed address
// (-no-pie), so that such an address can never be taken for another kind.
//
// TRUST: GAM lets a process of the job store to and get from any address of the others. Only processes of the same user, as the network
// interface sees users, are accepted and reached. Run each job on its own network interface, as unet-run does. A job is confined to one
// host, because no interface knows the user of a process on another (docs/ACTIVE_MESSAGES.md).
//
// A function returns 0, or -1 and sets AM_errno:
//   EINVAL        a bad rank, size or handler
//   EPERM         a request from a handler, a reply from elsewhere, or a second reply
//   ENOTCONN      not between am_enable() and am_disable()
//   EHOSTUNREACH  the process is gone, or another user has its name
//   EADDRINUSE    another process has our name
//   ETIMEDOUT     the process did not start
//   ENOTSUP       a launcher other than unet-run, such as mpirun, started the process: am_enable() says so on stderr
//   ENOMEM        no memory
//
// A process that computes for long must call am_poll() now and then. Handlers throw nothing. Only one thread may use the interface.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

typedef int vnn_t;  // a process's rank, from 0

// C23 has no functions with unspecified parameters; its programs declare them as C++ programs do.
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
int am_enable();      // ignores its arguments
#endif
int am_disable(void);

extern int AM_errno;

int am_my_proc(void);
int am_procs(void);
int am_max_size(void);  // bytes of a store or get that every program may use: 16 MiB. Up to INT_MAX are accepted

// Runs the handlers of messages that have arrived; does nothing in a handler or an endfunc. Every function below polls too, except replies.
int am_poll(void);

// Runs handler(own rank, a0, ...) at `dest`.
int am_request_0(vnn_t dest, handler_0_t handler);
int am_request_1(vnn_t dest, handler_1_t handler, long a0);
int am_request_2(vnn_t dest, handler_2_t handler, long a0, long a1);
int am_request_3(vnn_t dest, handler_3_t handler, long a0, long a1, long a2);
int am_request_4(vnn_t dest, handler_4_t handler, long a0, long a1, long a2, long a3);
int am_request_df(vnn_t dest, handler_df_t handler, long a0, long a1, double a2);

// Replies to the requester; only a request's handler may call these, once.
int am_reply_0(vnn_t dest, handler_0_t handler);
int am_reply_1(vnn_t dest, handler_1_t handler, long a0);
int am_reply_2(vnn_t dest, handler_2_t handler, long a0, long a1);
int am_reply_3(vnn_t dest, handler_3_t handler, long a0, long a1, long a2);
int am_reply_4(vnn_t dest, handler_4_t handler, long a0, long a1, long a2, long a3);
int am_reply_df(vnn_t dest, handler_df_t handler, long a0, long a1, double a2);

// Copies from `lva` here to `rva` at `dest`, then runs handler(own rank, rva, nbytes, arg) there unless it is NULL. The caller may reuse
// `lva` at return; after am_store_async() when endfunc(dest, lva, nbytes, earg), which may be NULL, has run here.
int am_store(vnn_t dest, void *lva, void *rva, int nbytes, handler_mem_t handler, void *arg);
int am_store_async(vnn_t dest, void *lva, void *rva, int nbytes, handler_mem_t handler, void *arg, handler_mem_t endfunc, void *earg);

// Copies from `rva` at `source` to `lva` here, then runs handler(source, lva, nbytes, arg) here unless it is NULL.
int am_get(vnn_t source, void *rva, void *lva, int nbytes, handler_mem_t handler, void *arg);

#ifdef __cplusplus
}
#endif
