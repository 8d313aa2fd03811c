// say.c - prints results, names, options and addresses, one line each; used by all cases.
#include <stdarg.h>

#include "tests/conformance/conformance.h"

void say(const char* format, ...) {
  char line[600];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  if (length > (int)sizeof line - 2) length = sizeof line - 2;
  line[length++] = '\n';
  // One write() for each line, because threads and children print too. Not stdio: a crash would lose its buffer.
  if (write(STDOUT_FILENO, line, (size_t)length) < 0) _exit(3);
}

int say_call(const char* text, long result) {
  const int error = errno;
  if (result == -1) {
    say("%s: %s", text, error_name(error));
  } else {
    say("%s = %ld", text, result);
  }
  errno = error;
  return (int)result;
}

int say_opened(const char* text, int descriptor) {
  const int error = errno;
  say("%s: %s", text, descriptor >= 0 ? "a descriptor" : error_name(error));
  errno = error;
  return descriptor;
}

void say_bytes(const char* what, const void* bytes, long length) {
  char text[200];
  int at = 0;
  for (long i = 0; i < length && at < 150; ++i) {
    const unsigned char c = ((const unsigned char*)bytes)[i];
    at += sprintf(text + at, c >= ' ' && c < 127 ? "%c" : "\\%02x", c);
  }
  text[at] = 0;
  say("%s: %ld bytes \"%s\"%s", what, length, text, at >= 150 ? "..." : "");
}

void say_ready(const char* who, int fd) {
  struct pollfd one = {fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0};
  const int ready = poll(&one, 1, 0);
  say("%s: poll %d %s", who, ready, events_name((unsigned short)one.revents));
}

const char* error_name(int error) {
  const char* name = strerrorname_np(error);
  return name == NULL ? "an error without a name" : name;
}

const char* events_name(unsigned events) {
  static const struct {
    unsigned bit;
    const char* name;
  } names[] = {{POLLIN, "POLLIN"}, {POLLPRI, "POLLPRI"}, {POLLOUT, "POLLOUT"}, {POLLERR, "POLLERR"}, {POLLHUP, "POLLHUP"},
               {POLLNVAL, "POLLNVAL"}, {POLLRDNORM, "RDNORM"}, {POLLRDBAND, "RDBAND"}, {POLLWRNORM, "WRNORM"},
               {POLLWRBAND, "WRBAND"}, {POLLRDHUP, "POLLRDHUP"}};
  static _Thread_local char text[200];
  strcpy(text, events == 0 ? "nothing" : "");
  for (unsigned i = 0; i < sizeof names / sizeof *names; ++i) {
    if ((events & names[i].bit) == 0) continue;
    if (text[0] != 0) strcat(text, "|");
    strcat(text, names[i].name);
  }
  return text;
}

const char* signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name == NULL ? "a signal without a name" : name;
}

int say_option(const char* what, int fd, int level, int name) {
  int value = 0x5a5a5a5a;
  socklen_t length = sizeof value;
  if (getsockopt(fd, level, name, &value, &length) != 0) {
    say("%s: %s", what, error_name(errno));
    return -1;
  }
  if (level == SOL_SOCKET && name == SO_ERROR) {
    say("%s is %s, length %u", what, error_name(value), length);
    return value;
  }
  say("%s is %d, length %u", what, length == sizeof value ? value : value & 0xff, length);
  return value;
}

int say_set(const char* what, int fd, int level, int name, int value) {
  const int result = setsockopt(fd, level, name, &value, sizeof value);
  say("set %s: %s", what, result == 0 ? "0" : error_name(errno));
  return result;
}

static const char* whose(const union Address* address) {
  union Address own;
  own_address(&own, 0);
  if (address->any.sa_family == AF_INET) {
    const in_addr_t is = address->v4.sin_addr.s_addr;
    if (own.any.sa_family == AF_INET && is == own.v4.sin_addr.s_addr) return "own";
    return is == 0 ? "any" : ntohl(is) >> 24 == 127 ? "loopback" : "other";
  }
  const struct in6_addr* is = &address->v6.sin6_addr;
  if (own.any.sa_family == AF_INET6 && memcmp(is, &own.v6.sin6_addr, sizeof *is) == 0) return "own";
  if (IN6_IS_ADDR_V4MAPPED(is)) return "mapped";
  return IN6_IS_ADDR_UNSPECIFIED(is) ? "any" : IN6_IS_ADDR_LOOPBACK(is) ? "loopback" : "other";
}

void say_address(const char* what, const void* address, socklen_t length) {
  const union Address* is = address;
  if (length < sizeof(sa_family_t)) {
    say("%s: length %u", what, length);
  } else if (is->any.sa_family == AF_INET || is->any.sa_family == AF_INET6) {
    const in_port_t port = is->any.sa_family == AF_INET ? is->v4.sin_port : is->v6.sin6_port;
    say("%s: %s %s, %s, length %u", what, is->any.sa_family == AF_INET ? "AF_INET" : "AF_INET6", whose(is),
        port == 0 ? "no port" : "a port", length);
  } else {
    say("%s: family %d, length %u", what, is->any.sa_family, length);
  }
}

void say_names(const char* who, int fd) {
  char what[100];
  union Address address;
  memset(&address, 0, sizeof address);
  socklen_t length = sizeof address;
  snprintf(what, sizeof what, "%s getsockname", who);
  if (getsockname(fd, &address.any, &length) == 0) {
    say_address(what, &address, length);
  } else {
    say("%s: %s", what, error_name(errno));
  }
  length = sizeof address;
  snprintf(what, sizeof what, "%s getpeername", who);
  if (getpeername(fd, &address.any, &length) == 0) {
    say_address(what, &address, length);
  } else {
    say("%s: %s", what, error_name(errno));
  }
}
