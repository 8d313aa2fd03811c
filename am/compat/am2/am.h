// am.h - AM-2 over U-Net: programs written to the interface of Mainwaring and Culler (1995, 1996) compile and run unchanged.
//
//   cc program.c $(pkg-config --cflags --libs unet-am2)          #include <am.h>
//
// Argument orders and return codes are those of AMUDP. The rest is specific to U-Net:
//   - An endpoint name (en_t) is the text "name@host", so a program may print it, or read it from a file.
//   - AM_Map() does not wait. The first request to a translation waits until the peer polls. Undeliverable messages are returned.
//   - AM_Wait() and AM_WaitSema() run the handlers of the messages that end them. The next AM_Poll() may find none.
//   - A request waits for one of 64 credits of its peer and polls its bundle meanwhile. A handler that requests gets AM_ERR_RESOURCE.
//   - Without an error handler a returned message ends the program.
//   - Handlers also run while an endpoint or a bundle is freed, and in AM_Terminate(). A handler moves no endpoint and throws nothing.
//     A handler that frees an endpoint or a bundle ends the program.
//
// The network interface is the environment's UNET_NI, or else this host's unetd. docs/ACTIVE_MESSAGES.md says more.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct unet_am2_bundle *eb_t;
typedef struct unet_am2_endpoint *ea_t;
typedef ea_t ep_t;
typedef struct {
  char text[128];
} en_t;
typedef uint64_t tag_t;
typedef int handler_t;
typedef int op_t;
typedef void (*unet_am2_function)();

enum { AM_SEQ = 0, AM_PAR = 1 };               // one thread, several
enum { AM_NOEVENTS = 0, AM_NOTEMPTY = 1 };     // event masks
#define AM_NONE ((tag_t)0)                     // a new endpoint's tag: it accepts no request
#define AM_ALL ((tag_t)1)                      // an endpoint with this tag accepts every request

enum {
  AM_OK = 0,
  AM_ERR_NOT_INIT = 1,
  AM_ERR_BAD_ARG = 2,
  AM_ERR_RESOURCE = 3,   // also a call against the rules: a second reply, a request from a handler
  AM_ERR_NOT_SENT = 4,
  AM_ERR_IN_USE = 5
};

// The status of a returned message.
#define EBADARGS 1        // another number of arguments than the handler takes
#define EBADENTRY 2       // no such translation
#define EBADTAG 3         // the receiver has another tag
#define EBADHANDLER 4     // no handler has that index there
#define EBADSEGOFF 5      // beyond the receiver's segment
#define EBADLENGTH 6      // passes the end of the receiver's segment
#define EBADENDPOINT 7    // no such endpoint
#define ECONGESTION 8
#define EUNREACHABLE 9
#define EREPLYREJECTED 10  // a reply to us that is undeliverable here

enum {                    // opcodes
  AM_REQUEST_M = 1,
  AM_REQUEST_IM = 2,
  AM_REQUEST_XFER_M = 3,
  AM_REPLY_M = 4,
  AM_REPLY_IM = 5,
  AM_REPLY_XFER_M = 6,
  AM_GET_XFER_M = 7
};

// The third argument of the error handler, void handler(int status, op_t opcode, void *argblock), points to this structure.
typedef struct {
  ep_t endpoint;
  int index;              // the translation; -1: not known
  handler_t handler;
  int count;
  int arguments[16];
} unet_am2_argblock;

int AM_Init(void);
int AM_Terminate(void);

int AM_AllocateBundle(int type, eb_t *bundle);
int AM_AllocateEndpoint(eb_t bundle, ep_t *endpoint, en_t *name);
int AM_FreeEndpoint(ep_t endpoint);
int AM_FreeBundle(eb_t bundle);
int AM_MoveEndpoint(ep_t endpoint, eb_t from, eb_t to);

int AM_Map(ep_t endpoint, int index, en_t name, tag_t tag);
int AM_MapAny(ep_t endpoint, int *index, en_t name, tag_t tag);
int AM_UnMap(ep_t endpoint, int index);
int AM_Unmap(ep_t endpoint, int index);
int AM_GetTranslationInuse(ep_t endpoint, int index);  // AM_OK: it is in use
int AM_GetTranslationTag(ep_t endpoint, int index, tag_t *tag);
int AM_GetTranslationName(ep_t endpoint, int index, en_t *name);
int AM_MaxNumTranslations(int *number);
int AM_GetNumTranslations(ep_t endpoint, int *number);
int AM_SetNumTranslations(ep_t endpoint, int number);
int AM_SetExpectedResources(ep_t endpoint, int endpoints, int outstanding_requests);

int AM_SetTag(ep_t endpoint, tag_t tag);
int AM_GetTag(ep_t endpoint, tag_t *tag);

int AM_MaxNumHandlers(void);
int AM_GetNumHandlers(ep_t endpoint, int *number);
int AM_SetNumHandlers(ep_t endpoint, int number);
int unet_am2_set_handler(ep_t endpoint, handler_t handler, unet_am2_function function);
int unet_am2_set_handler_any(ep_t endpoint, handler_t *handler, unet_am2_function function);
#define AM_SetHandler(endpoint, handler, function) unet_am2_set_handler(endpoint, handler, (unet_am2_function)(function))
#define AM_SetHandlerAny(endpoint, handler, function) unet_am2_set_handler_any(endpoint, handler, (unet_am2_function)(function))

int AM_SetSeg(ep_t endpoint, void *address, uintptr_t bytes);
int AM_GetSeg(ep_t endpoint, void **address, uintptr_t *bytes);
int AM_MaxSegLength(uintptr_t *bytes);

int AM_GetEventMask(eb_t bundle, int *mask);
int AM_SetEventMask(eb_t bundle, int mask);
int AM_Wait(eb_t bundle);
int AM_WaitSema(eb_t bundle);
int AM_Poll(eb_t bundle);

int AM_GetSourceEndpoint(void *token, en_t *name);
int AM_GetDestEndpoint(void *token, ep_t *endpoint);
int AM_GetMsgTag(void *token, tag_t *tag);

int AM_MaxShort(void);   // number of arguments
int AM_MaxMedium(void);  // bytes
int AM_MaxLong(void);    // bytes

// The functions that the macros below call.
int unet_am2_request(ep_t endpoint, int to, handler_t handler, const int *words, int count);
int unet_am2_request_medium(ep_t endpoint, int to, handler_t handler, const void *source, size_t bytes, const int *words, int count);
int unet_am2_request_long(ep_t endpoint, int to, uintptr_t offset, handler_t handler, const void *source, size_t bytes, int asynchronous,
                          const int *words, int count);
int unet_am2_get(ep_t endpoint, int from, uintptr_t source_offset, handler_t handler, uintptr_t offset, size_t bytes, const int *words,
                 int count);
int unet_am2_reply(void *token, handler_t handler, const int *words, int count);
int unet_am2_reply_medium(void *token, handler_t handler, const void *source, size_t bytes, const int *words, int count);
int unet_am2_reply_long(void *token, uintptr_t offset, handler_t handler, const void *source, size_t bytes, const int *words, int count);

// Defines AM_Request0() ... AM_Request16(), and so on: M is the number of arguments that follow.
//   AM_RequestM(endpoint, to, handler, ...)                                   handler(token, ...)
//   AM_RequestIM(endpoint, to, handler, source, bytes, ...)                   handler(token, buffer, bytes, ...)
//   AM_RequestXferM(endpoint, to, offset, handler, source, bytes, ...)        handler(token, buffer, bytes, ...)
//   AM_RequestXferAsyncM(the same)                                            AM_ERR_NOT_SENT instead of waiting
//   AM_GetXferM(endpoint, from, source_offset, handler, offset, bytes, ...)   handler(token, buffer, bytes, ...) here
//   AM_ReplyM(token, handler, ...)
//   AM_ReplyIM(token, handler, source, bytes, ...)
//   AM_ReplyXferM(token, offset, handler, source, bytes, ...)
#define UNET_AM2_TAKES_0
#define UNET_AM2_TAKES_1 , int a0
#define UNET_AM2_TAKES_2 UNET_AM2_TAKES_1, int a1
#define UNET_AM2_TAKES_3 UNET_AM2_TAKES_2, int a2
#define UNET_AM2_TAKES_4 UNET_AM2_TAKES_3, int a3
#define UNET_AM2_TAKES_5 UNET_AM2_TAKES_4, int a4
#define UNET_AM2_TAKES_6 UNET_AM2_TAKES_5, int a5
#define UNET_AM2_TAKES_7 UNET_AM2_TAKES_6, int a6
#define UNET_AM2_TAKES_8 UNET_AM2_TAKES_7, int a7
#define UNET_AM2_TAKES_9 UNET_AM2_TAKES_8, int a8
#define UNET_AM2_TAKES_10 UNET_AM2_TAKES_9, int a9
#define UNET_AM2_TAKES_11 UNET_AM2_TAKES_10, int a10
#define UNET_AM2_TAKES_12 UNET_AM2_TAKES_11, int a11
#define UNET_AM2_TAKES_13 UNET_AM2_TAKES_12, int a12
#define UNET_AM2_TAKES_14 UNET_AM2_TAKES_13, int a13
#define UNET_AM2_TAKES_15 UNET_AM2_TAKES_14, int a14
#define UNET_AM2_TAKES_16 UNET_AM2_TAKES_15, int a15
#define UNET_AM2_WORDS_0 0
#define UNET_AM2_WORDS_1 a0
#define UNET_AM2_WORDS_2 UNET_AM2_WORDS_1, a1
#define UNET_AM2_WORDS_3 UNET_AM2_WORDS_2, a2
#define UNET_AM2_WORDS_4 UNET_AM2_WORDS_3, a3
#define UNET_AM2_WORDS_5 UNET_AM2_WORDS_4, a4
#define UNET_AM2_WORDS_6 UNET_AM2_WORDS_5, a5
#define UNET_AM2_WORDS_7 UNET_AM2_WORDS_6, a6
#define UNET_AM2_WORDS_8 UNET_AM2_WORDS_7, a7
#define UNET_AM2_WORDS_9 UNET_AM2_WORDS_8, a8
#define UNET_AM2_WORDS_10 UNET_AM2_WORDS_9, a9
#define UNET_AM2_WORDS_11 UNET_AM2_WORDS_10, a10
#define UNET_AM2_WORDS_12 UNET_AM2_WORDS_11, a11
#define UNET_AM2_WORDS_13 UNET_AM2_WORDS_12, a12
#define UNET_AM2_WORDS_14 UNET_AM2_WORDS_13, a13
#define UNET_AM2_WORDS_15 UNET_AM2_WORDS_14, a14
#define UNET_AM2_WORDS_16 UNET_AM2_WORDS_15, a15
#define UNET_AM2_CALLS(M)                                                                                                                 \
  static inline int AM_Request##M(ep_t endpoint, int to, handler_t handler UNET_AM2_TAKES_##M) {                                          \
    const int words[] = {UNET_AM2_WORDS_##M};                                                                                             \
    return unet_am2_request(endpoint, to, handler, words, M);                                                                             \
  }                                                                                                                                       \
  static inline int AM_RequestI##M(ep_t endpoint, int to, handler_t handler, void *source, int bytes UNET_AM2_TAKES_##M) {                \
    const int words[] = {UNET_AM2_WORDS_##M};                                                                                             \
    return unet_am2_request_medium(endpoint, to, handler, source, (size_t)bytes, words, M);                                               \
  }                                                                                                                                       \
  static inline int AM_RequestXfer##M(ep_t endpoint, int to, uintptr_t offset, handler_t handler,                                         \
      void *source, int bytes UNET_AM2_TAKES_##M) {                                                                                       \
    const int words[] = {UNET_AM2_WORDS_##M};                                                                                             \
    return unet_am2_request_long(endpoint, to, offset, handler, source, (size_t)bytes, 0, words, M);                                      \
  }                                                                                                                                       \
  static inline int AM_RequestXferAsync##M(ep_t endpoint, int to, uintptr_t offset, handler_t handler,                                    \
      void *source, int bytes UNET_AM2_TAKES_##M) {                                                                                       \
    const int words[] = {UNET_AM2_WORDS_##M};                                                                                             \
    return unet_am2_request_long(endpoint, to, offset, handler, source, (size_t)bytes, 1, words, M);                                      \
  }                                                                                                                                       \
  static inline int AM_GetXfer##M(ep_t endpoint, int from, uintptr_t source_offset, handler_t handler,                                    \
      uintptr_t offset, int bytes UNET_AM2_TAKES_##M) {                                                                                   \
    const int words[] = {UNET_AM2_WORDS_##M};                                                                                             \
    return unet_am2_get(endpoint, from, source_offset, handler, offset, (size_t)bytes, words, M);                                         \
  }                                                                                                                                       \
  static inline int AM_Reply##M(void *token, handler_t handler UNET_AM2_TAKES_##M) {                                                      \
    const int words[] = {UNET_AM2_WORDS_##M};                                                                                             \
    return unet_am2_reply(token, handler, words, M);                                                                                      \
  }                                                                                                                                       \
  static inline int AM_ReplyI##M(void *token, handler_t handler, void *source, int bytes UNET_AM2_TAKES_##M) {                            \
    const int words[] = {UNET_AM2_WORDS_##M};                                                                                             \
    return unet_am2_reply_medium(token, handler, source, (size_t)bytes, words, M);                                                        \
  }                                                                                                                                       \
  static inline int AM_ReplyXfer##M(void *token, uintptr_t offset, handler_t handler, void *source, int bytes UNET_AM2_TAKES_##M) {       \
    const int words[] = {UNET_AM2_WORDS_##M};                                                                                             \
    return unet_am2_reply_long(token, offset, handler, source, (size_t)bytes, words, M);                                                  \
  }
UNET_AM2_CALLS(0)
UNET_AM2_CALLS(1)
UNET_AM2_CALLS(2)
UNET_AM2_CALLS(3)
UNET_AM2_CALLS(4)
UNET_AM2_CALLS(5)
UNET_AM2_CALLS(6)
UNET_AM2_CALLS(7)
UNET_AM2_CALLS(8)
UNET_AM2_CALLS(9)
UNET_AM2_CALLS(10)
UNET_AM2_CALLS(11)
UNET_AM2_CALLS(12)
UNET_AM2_CALLS(13)
UNET_AM2_CALLS(14)
UNET_AM2_CALLS(15)
UNET_AM2_CALLS(16)
#undef UNET_AM2_CALLS

#ifdef __cplusplus
}
#endif
