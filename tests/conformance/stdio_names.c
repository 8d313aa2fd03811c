// stdio_names.c - cases of libraries above sockets: stdio streams, getaddrinfo(), and usage patterns of other libraries.
#include <ifaddrs.h>
#include <netdb.h>

#include "tests/conformance/conformance.h"

CASE(stdio_lines, "fdopen(): lines in both directions") {
  int ends[2];
  char line[40] = "";
  streams(ends);
  FILE* one = fdopen(ends[0], "r+");
  FILE* two = fdopen(dup(ends[1]), "r");
  say("fdopen: %d %d", one != NULL, two != NULL);
  CALL(fprintf(one, "first line\nsecond line\n"));
  CALL(fflush(one));
  say("fgets: %s", fgets(line, sizeof line, two));
  say("fgets: %s", fgets(line, sizeof line, two));
  CALL(write(ends[1], "answer\n", 7));
  CALL(fseek(one, 0, SEEK_CUR));
  say("fgets: %s", fgets(line, sizeof line, one));
  CALL(fclose(one));
  say("the end: %d", fgets(line, sizeof line, two) == NULL && feof(two));
}

CASE(stdio_dprintf, "dprintf() and getline() on a socket") {
  int ends[2];
  char* line = NULL;
  size_t size = 0;
  streams(ends);
  CALL(dprintf(ends[0], "%d %s\n", 7, "words"));
  FILE* file = fdopen(ends[1], "r");
  CALL(getline(&line, &size, file));
  say("%s", line);
}

CASE(stdio_large, "fwrite() and fread() of more than stdio's buffer") {
  int ends[2];
  static char bytes[100000];
  streams(ends);
  FILE* out = fdopen(ends[0], "w");
  FILE* in = fdopen(ends[1], "r");
  CALL(fwrite(bytes, 1, sizeof bytes, out));
  CALL(fclose(out));
  CALL(fread(bytes, 1, sizeof bytes, in));
  CALL(fread(bytes, 1, 1, in));
  say("the end: %d, error: %d", feof(in) != 0, ferror(in) != 0);
}

CASE(stdio_write_fails, "stdio to a socket whose own half is closed") {
  int ends[2];
  streams(ends);
  signal(SIGPIPE, SIG_IGN);
  CALL(shutdown(ends[0], SHUT_WR));
  FILE* out = fdopen(ends[0], "w");
  CALL(fprintf(out, "x"));
  CALL(fflush(out));
  say("error: %d", ferror(out) != 0);
}

CASE(stdio_position, "ftell(), rewind() and setvbuf() of a socket") {
  int ends[2];
  streams(ends);
  FILE* file = fdopen(ends[0], "r+");
  CALL(ftell(file));
  CALL(setvbuf(file, NULL, _IONBF, 0));
  CALL(fputs("abc", file) >= 0);
  char bytes[20];
  say_bytes("received", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

static void say_found(const char* what, const char* host, const char* service, const struct addrinfo* hints) {
  struct addrinfo* found = NULL;
  const int error = getaddrinfo(host, service, hints, &found);
  say("%s: %s", what, error == 0 ? "found" : gai_strerror(error));
  for (const struct addrinfo* each = found; each != NULL; each = each->ai_next) {
    say("family %d, type %d, protocol %d", each->ai_family, each->ai_socktype, each->ai_protocol);
  }
  if (found != NULL) freeaddrinfo(found);
}

CASE(names_are_found, "getaddrinfo() of numbers, of localhost, and of nonsense") {
  struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  say_found("number", "192.0.2.1", "80", &hints);
  say_found("number", "2001:db8::1", "80", &hints);
  say_found("nonsense", "192.0.2.1.5.6", "80", &hints);
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_family = AF_INET;
  say_found("any", NULL, "80", &hints);
}

CASE(names_backwards, "getnameinfo() of a peer, in numbers") {
  union Address peer;
  int ends[2];
  char host[100] = "", service[20] = "";
  streams(ends);
  socklen_t length = sizeof peer;
  CALL(getpeername(ends[0], &peer.any, &length));
  CALL(getnameinfo(&peer.any, length, host, sizeof host, service, sizeof service, NI_NUMERICHOST | NI_NUMERICSERV));
  say("a host: %d, a service: %d", host[0] != 0, service[0] != 0);
}

CASE(names_connect_all, "the loop of every client: getaddrinfo(), socket(), connect()") {
  union Address to;
  char host[100] = "", service[20];
  const int listener = listening();
  address_of(listener, &to);
  sprintf(service, "%d", port_of(listener));
  inet_ntop(family, family == AF_INET ? (void*)&to.v4.sin_addr : (void*)&to.v6.sin6_addr, host, sizeof host);
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
  struct addrinfo* found = NULL;
  CALL(getaddrinfo(host, service, &hints, &found));
  for (const struct addrinfo* each = found; each != NULL; each = each->ai_next) {
    const int s = OPEN(socket(each->ai_family, each->ai_socktype, each->ai_protocol));
    CALL(connect(s, each->ai_addr, each->ai_addrlen));
  }
}

CASE(names_interfaces, "getifaddrs() works, and lo is among them") {
  struct ifaddrs* all = NULL;
  int loopback = 0;
  CALL(getifaddrs(&all));
  for (const struct ifaddrs* each = all; each != NULL; each = each->ifa_next) loopback |= strcmp(each->ifa_name, "lo") == 0;
  say("lo: %d", loopback);
}

static int stream_ends[2];

static void* flushes_all(void* unused) {
  (void)unused;
  return (void*)(long)fflush(NULL);
}

static void* reads_much_later(void* much) {
  static char bytes[1 << 16];
  long left = *(long*)much, more = 1;
  pause_ms(200);
  for (; left > 0 && more > 0; left -= more) more = recv(stream_ends[1], bytes, sizeof bytes, 0);
  return (void*)left;
}

CASE(stdio_flush_and_fork, "fork() while another thread is in fflush(NULL), whose stream waits for its peer") {
  enum { MUCH = 8 << 20 };
  static char bytes[MUCH], buffer[MUCH + 1];
  long much = MUCH;
  streams(stream_ends);
  FILE* out = fdopen(stream_ends[0], "w");
  say("setvbuf: %d", setvbuf(out, buffer, _IOFBF, sizeof buffer));
  say("fwrite: %ld", (long)fwrite(bytes, 1, MUCH, out));
  const pthread_t reader = start(reads_much_later, &much), flusher = start(flushes_all, NULL);
  pause_ms(50);
  const pid_t pid = fork();
  if (pid == 0) {
    FILE* other = fopen("/dev/null", "w");
    _exit(other != NULL && fclose(other) == 0 ? 5 : 1);
  }
  say_ended("child", pid);
  say("flushed: %ld, left: %ld", joined(flusher), joined(reader));
}

CASE(stdio_fileno, "fileno() of a stream leads to its socket") {
  int ends[2];
  char bytes[20];
  streams(ends);
  FILE* const one = fdopen(ends[0], "r+");
  say("the same: %d", fileno(one) == ends[0]);
  CALL(fprintf(one, "abc"));
  CALL(fflush(one));
  CALL(shutdown(fileno(one), SHUT_WR));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL));
  CALL(send(ends[1], "x", 1, 0));
  say("fgetc: %d", fgetc(one));
  CALL(fclose(one));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

THEME(stdio_names, &stdio_lines, &stdio_fileno, &stdio_dprintf, &stdio_large, &stdio_write_fails, &stdio_position, &stdio_flush_and_fork,
      &names_are_found, &names_backwards, &names_connect_all, &names_interfaces);
