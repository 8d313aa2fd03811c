// guarded.h - what the extension module adds to the C ABI: the data path of an endpoint, with the checks that an interpreter needs.
//
// Python releases the interpreter's lock during each call, so two threads can meet in one endpoint. The second one gets UNET_PY_EBUSY.
#pragma once

#include <string.h>
#include <unet/unet.h>

enum {
  UNET_PY_EBUSY = -301,    // another thread is in a call of this endpoint
  UNET_PY_ECLOSED = -302,  // the program has closed the endpoint
  UNET_PY_EFORKED = -303,  // the endpoint belongs to the parent of this process
  UNET_PY_MESSAGE = 3,     // unet_py_receive(): a message has arrived
  UNET_PY_PUT_DONE = 4,    // unet_py_receive(): a put has arrived
  UNET_PY_OTHER = 5        // unet_py_receive(): no message, but a request, an event or an answer
};

enum { UNET_PY_PIECE_MS = 100 };  // longest wait before the interpreter looks for signals

typedef struct unet_py_endpoint {
  unet_endpoint *endpoint;
  int busy;     // 1 while a thread is in a call
  int refused;  // if not 0, each call returns this error
} unet_py_endpoint;

// Brackets around calls of the C ABI: the first returns 0, or an error, which says not to go on.
static inline int unet_py_enter(unet_py_endpoint *self) {
  if (self->refused != 0) return self->refused;
  return __atomic_exchange_n(&self->busy, 1, __ATOMIC_ACQUIRE) != 0 ? UNET_PY_EBUSY : 0;
}

static inline void unet_py_leave(unet_py_endpoint *self) {
  __atomic_store_n(&self->busy, 0, __ATOMIC_RELEASE);
}

static inline int unet_py_send(unet_py_endpoint *self, int channel, const void *data, size_t length, unsigned flags) {
  int result = unet_py_enter(self);
  if (result != 0) return result;
  result = unet_send(self->endpoint, channel, data, length, flags);
  unet_py_leave(self);
  return result;
}

static inline int unet_py_put(unet_py_endpoint *self, int channel, uint64_t offset, const void *data, size_t length, unsigned flags) {
  int result = unet_py_enter(self);
  if (result != 0) return result;
  result = unet_put(self->endpoint, channel, offset, data, length, flags);
  unet_py_leave(self);
  return result;
}

// Waits as unet_wait() does; with `channel` >= 0 as unet_wait_room(). Waits for one piece at most.
static inline int unet_py_wait(unet_py_endpoint *self, int channel, int64_t timeout_ns, int64_t spin_ns) {
  const int64_t piece = (int64_t)UNET_PY_PIECE_MS * 1000000;
  int result = unet_py_enter(self);
  if (result != 0) return result;
  if (timeout_ns < 0 || timeout_ns > piece) timeout_ns = piece;
  result = channel < 0 ? unet_wait(self->endpoint, timeout_ns, spin_ns) : unet_wait_room(self->endpoint, channel, timeout_ns, spin_ns);
  unet_py_leave(self);
  return result;
}

// For the functions below: receives the next message, and waits for it for one piece at most. Results: those of unet_py_receive().
static inline int unet_py_next(unet_py_endpoint *self, unet_message *message, int64_t timeout_ns, int64_t spin_ns) {
  const int64_t piece = (int64_t)UNET_PY_PIECE_MS * 1000000;
  if (!unet_receive(self->endpoint, message)) {
    if (timeout_ns == 0) return UNET_TIMED_OUT;
    if (timeout_ns < 0 || timeout_ns > piece) timeout_ns = piece;
    const int result = unet_wait(self->endpoint, timeout_ns, spin_ns);
    if (result != UNET_READY) return result;
    if (!unet_receive(self->endpoint, message)) return UNET_PY_OTHER;
  }
  return message->kind == UNET_PUT_DONE ? UNET_PY_PUT_DONE : UNET_PY_MESSAGE;
}

// Receives the next message in place. Returns UNET_PY_MESSAGE, UNET_PY_PUT_DONE, UNET_PY_OTHER, UNET_TIMED_OUT, UNET_EINTERRUPTED,
// UNET_EDISCONNECTED or an error of this file.
static inline int unet_py_receive(unet_py_endpoint *self, unet_message *message, int64_t timeout_ns, int64_t spin_ns) {
  int result = unet_py_enter(self);
  if (result != 0) return result;
  result = unet_py_next(self, message, timeout_ns, spin_ns);
  unet_py_leave(self);
  return result;
}

static inline int unet_py_release(unet_py_endpoint *self, const unet_message *message) {
  int result = unet_py_enter(self);
  if (result != 0) return result;
  unet_release(self->endpoint, message);
  unet_py_leave(self);
  return 0;
}

typedef struct unet_py_room {
  unet_message message;
  char bytes[UNET_MESSAGE_MAX];
} unet_py_room;

// Receives as unet_py_receive(), and copies and releases the message. The result is then 1 << 62 | channel << 32 | length.
static inline int64_t unet_py_receive_copy(unet_py_endpoint *self, unet_py_room *room, int64_t timeout_ns, int64_t spin_ns) {
  const unet_message *const message = &room->message;
  int64_t result = unet_py_enter(self);
  if (result != 0) return result;
  result = unet_py_next(self, &room->message, timeout_ns, spin_ns);
  if (result == UNET_PY_MESSAGE || result == UNET_PY_PUT_DONE) {
    const uint32_t length = result == UNET_PY_MESSAGE ? message->length : 0;
    if (length != 0) memcpy(room->bytes, message->data, length);
    unet_release(self->endpoint, message);
    result = (int64_t)1 << 62 | (int64_t)message->channel << 32 | length;
  }
  unet_py_leave(self);
  return result;
}
