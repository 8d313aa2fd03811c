// themes.c - the table of all cases, file by file; used by main.c.
#include "tests/conformance/conformance.h"

#define THEMES(X) \
  X(open_close) X(bind_listen) X(connect) X(stream_data) X(urgent) X(datagrams) X(first_datagrams) X(vectors) X(ancillary) \
  X(shutdown) X(nonblocking) X(timeouts) X(readiness_poll) X(readiness_select) X(readiness_epoll) X(readiness_late) X(epoll_mixed) \
  X(dup_fcntl) X(ioctl_calls) X(interfaces) X(options) X(options_tcp) X(options_ip) X(signals) X(signals_jumps) X(signals_two) X(threads) \
  X(closing) X(fork_exec) X(fork_datagrams) X(orphan_process) X(process_ends) X(other_users) X(passing) X(reuse) X(sendfile_splice) \
  X(zero_copy) X(ipv6) X(stdio_names) X(stdio_standard) X(raw_calls) X(exhausted) X(peer_cases)

#define DECLARE(theme) extern const struct Case* const theme##_cases[];
THEMES(DECLARE)

#define ROW(theme) theme##_cases,
static const struct Case* const* const themes[] = {THEMES(ROW)};

void each_case(void (*visit)(const struct Case*)) {
  for (size_t i = 0; i < sizeof themes / sizeof *themes; ++i) {
    for (const struct Case* const* each = themes[i]; *each != NULL; ++each) visit(*each);
  }
}

static const char* wanted;
static const struct Case* found;

static void compare(const struct Case* each) {
  if (strcmp(each->name, wanted) == 0) found = each;
}

const struct Case* case_named(const char* name) {
  wanted = name;
  found = NULL;
  each_case(compare);
  return found;
}
