// stdio_standard.c - cases of stdin, stdout and stderr with a socket at 0, 1 or 2.
#include "tests/conformance/conformance.h"

static int ends[2];
static int kept;

// Puts the socket at the number. Until it is taken back, say() prints to it too.
static void put(int socket, int number) {
  kept = (int)MUST(fcntl(number, F_DUPFD, 100));
  MUST(dup2(socket, number));
}

static int put_back(int number) {
  const int result = dup2(kept, number);
  close(kept);
  return result;
}

static void say_received(const char* what, int fd, int bytes) {
  char data[200];
  await_bytes(fd, bytes);
  say_bytes(what, data, recv(fd, data, sizeof data, MSG_DONTWAIT));
}

CASE(stdio_out, "printf(), puts(), putchar() and fwrite() to a socket at 1, and again to what was there") {
  streams(ends);
  put(ends[0], 1);
  const int printed = printf("number %d\n", 7), put_line = puts("a line"), put_one = putchar('x');
  const long wrote = (long)fwrite("yz", 1, 2, stdout);
  const int at = fileno(stdout), flushed = fflush(stdout);
  put_back(1);
  say("printf: %d, puts: %d, putchar: %d, fwrite: %ld, fileno: %d, fflush: %d", printed, put_line >= 0, put_one, wrote, at, flushed);
  say_received("received", ends[1], 19);
  printf("here again\n");
  fflush(stdout);
}

CASE(stdio_in, "fgets(), getchar() and scanf() from a socket at 0, to its end") {
  char line[20] = "", word[20] = "";
  streams(ends);
  put(ends[0], 0);
  CALL(send(ends[1], "first\nsecond line\nx", 19, 0));
  CALL(shutdown(ends[1], SHUT_WR));
  say("fgets: %s", fgets(line, sizeof line, stdin));
  CALL(scanf("%19s", word));
  say("word: %s", word);
  say("fgets: %s", fgets(line, sizeof line, stdin));
  CALL(getchar());
  CALL(getchar());
  say("end: %d, error: %d, fileno: %d", feof(stdin) != 0, ferror(stdin) != 0, fileno(stdin));
  put_back(0);
  say("end: %d", feof(stdin) != 0);
  clearerr(stdin);
  say("fgets: %d", fgets(line, sizeof line, stdin) != NULL);
}

CASE(stdio_error, "fprintf(stderr) and perror() to a socket at 2, unbuffered") {
  streams(ends);
  put(ends[0], 2);
  CALL(fprintf(stderr, "of %s", "errors"));
  say_received("received", ends[1], 9);
  errno = EPIPE;
  perror("a name");
  say_received("received", ends[1], 20);
  CALL(fileno(stderr));
  put_back(2);
}

CASE(stdio_out_unflushed, "dup2() does not flush: what is unwritten goes to where the number leads when it is flushed") {
  int pipes[2];
  char bytes[40];
  streams(ends);
  MUST(pipe(pipes));
  put(pipes[1], 1);
  printf("before the pipe's end, ");
  MUST(dup2(ends[0], 1));
  printf("to the socket");
  fflush(stdout);
  printf("of the socket");
  MUST(dup2(pipes[1], 1));
  printf(", for the pipe");
  fflush(stdout);
  put_back(1);
  say_received("socket", ends[1], 36);
  say_bytes("pipe", bytes, read(pipes[0], bytes, sizeof bytes));
}

CASE(stdio_in_unread, "dup2() does not forget: what was read ahead comes first") {
  int pipes[2];
  char line[20] = "";
  streams(ends);
  MUST(pipe(pipes));
  CALL(write(pipes[1], "one\ntwo\nthree\n", 14));
  CALL(send(ends[1], "four\nfive\nsix\n", 14, 0));
  await_bytes(ends[0], 14);
  put(pipes[0], 0);
  say("fgets: %s", fgets(line, sizeof line, stdin));
  MUST(dup2(ends[0], 0));
  for (int i = 0; i < 3; ++i) say("fgets: %s", fgets(line, sizeof line, stdin));
  CALL(ungetc('F', stdin));
  MUST(dup2(pipes[0], 0));
  CALL(write(pipes[1], "seven\n", 6));
  for (int i = 0; i < 3; ++i) say("fgets: %s", fgets(line, sizeof line, stdin));
  put_back(0);
}

CASE(stdio_out_modes, "a line-buffered and an unbuffered stdout are that on a socket, too, whenever it was said") {
  streams(ends);
  kept = (int)MUST(fcntl(1, F_DUPFD, 100));
  setvbuf(stdout, NULL, _IOLBF, 0);
  MUST(dup2(ends[0], 1));
  printf("a line\nand more");
  await_bytes(ends[1], 7);
  setvbuf(stdout, NULL, _IONBF, 0);
  printf(", unbuffered");
  put_back(1);
  say_received("received", ends[1], 27);
  printf("at once");
  say("after it");
}

CASE(stdio_out_lines_wait, "without a newline a line-buffered stdout keeps what it has, on a socket, too") {
  char bytes[20];
  streams(ends);
  kept = (int)MUST(fcntl(1, F_DUPFD, 100));
  setvbuf(stdout, NULL, _IOLBF, 0);
  MUST(dup2(ends[0], 1));
  printf("no line");
  const long got = recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT);
  putchar('\n');
  put_back(1);
  say("kept: %d", got < 0);
  say_received("received", ends[1], 8);
}

CASE(stdio_out_large, "more than stdio's buffer to a socket at 1") {
  enum { MUCH = 100000 };
  static char bytes[MUCH];
  long got = 0, more;
  streams(ends);
  put(ends[0], 1);
  const long wrote = (long)fwrite(bytes, 1, MUCH, stdout);
  const int flushed = fflush(stdout);
  put_back(1);
  say("fwrite: %ld, fflush: %d", wrote, flushed);
  while (got < MUCH && (more = recv(ends[1], bytes, sizeof bytes, 0)) > 0) got += more;
  say("received: %ld", got);
}

CASE(stdio_out_fails, "printf() to a socket whose own half is closed: the error is the stream's") {
  streams(ends);
  signal(SIGPIPE, SIG_IGN);
  CALL(shutdown(ends[0], SHUT_WR));
  put(ends[0], 1);
  printf("x");
  errno = 0;
  const int flushed = fflush(stdout), error = errno, seen = ferror(stdout);
  put_back(1);
  say("fflush: %d, %s, error: %d", flushed, error_name(error), seen != 0);
  say("error: %d", ferror(stdout) != 0);
  clearerr(stdout);
  say("error: %d", ferror(stdout) != 0);
}

CASE(stdio_out_datagram, "printf() and fflush() to a datagram socket at 1: one datagram") {
  datagrams(ends);
  put(ends[0], 1);
  printf("two %s", "pieces");
  puts(", one datagram");
  fflush(stdout);
  printf("another");
  fflush(stdout);
  put_back(1);
  for (int i = 0; i < 2; ++i) {
    await(ends[1], POLLIN);
    say_received("received", ends[1], 1);
  }
}

CASE(stdio_closed_and_taken, "close() of 0 and 1, whose numbers dup() and accept() take") {
  char line[20] = "";
  const int listener = listening(), client = connected(listener);
  await(listener, POLLIN);
  const int out = (int)MUST(fcntl(1, F_DUPFD, 100));
  close(0);
  const int in = accept(listener, NULL, NULL);
  close(1);
  const int taken = dup(in);
  printf("hello\n");
  fflush(stdout);
  const int sent = (int)send(client, "answer\n", 7, 0);
  const char* const got = fgets(line, sizeof line, stdin);
  close(1);
  MUST(dup2(out, 1));
  say("accept: %d, dup: %d, send: %d, fgets: %s", in, taken, sent, got);
  say_received("received", client, 6);
  close(0);
  say("end: %d", fgets(line, sizeof line, stdin) == NULL && ferror(stdin));
  say_received("the end", client, 0);
}

CASE(stdio_out_fclose, "fclose(stdout) closes the socket at 1") {
  streams(ends);
  const int out = (int)MUST(fcntl(1, F_DUPFD, 100));
  MUST(dup2(ends[0], 1));
  close(ends[0]);
  printf("the last");
  const int closed = fclose(stdout);
  MUST(dup2(out, 1));
  say("fclose: %d", closed);
  await(ends[1], POLLRDHUP);
  say_received("received", ends[1], 8);
  say_received("the end", ends[1], 0);
}

CASE(stdio_reopened, "freopen() of stdout with a socket at 1, and of a stream of fdopen(): the sockets are closed there") {
  int others[2];
  streams(ends);
  streams(others);
  const int out = (int)MUST(fcntl(1, F_DUPFD, 100));
  FILE* const other = fdopen(others[0], "w");
  MUST(dup2(ends[0], 1));
  close(ends[0]);
  printf("the last");
  const int same = freopen("/dev/null", "w", stdout) == stdout, at = fileno(stdout);
  printf("to nobody");
  fflush(stdout);
  write(1, "nor this", 8);
  MUST(dup2(out, 1));
  say("the same: %d, fileno: %d", same, at);
  CALL(fprintf(other, "the last"));
  say("the same: %d, fileno: %d", freopen("/dev/null", "w", other) == other, fileno(other) == others[0]);
  CALL(fprintf(other, "to nobody"));
  CALL(fclose(other));
  for (int i = 0; i < 2; ++i) {
    await(i == 0 ? ends[1] : others[1], POLLRDHUP);
    say_received("received", i == 0 ? ends[1] : others[1], 8);
    say_received("the end", i == 0 ? ends[1] : others[1], 0);
  }
}

CASE(stdio_reopened_as_it_is, "freopen() of a socket's stream by no name fails, and closes it") {
  streams(ends);
  FILE* const stream = fdopen(ends[0], "w");
  CALL(fprintf(stream, "the last"));
  errno = 0;
  say("freopen: %d, %s", freopen(NULL, "a", stream) != NULL, error_name(errno));
  CALL(fcntl(ends[0], F_GETFD));
  await(ends[1], POLLRDHUP);
  say_received("received", ends[1], 8);
}

// ---- processes

static void prints(int fd) {
  dup2(fd, 1);
  printf("of a child");
  fflush(stdout);
}

CASE(stdio_out_child, "a child has the connection at 1, and prints") {
  streams(ends);
  say_ended("child", child(prints, ends[0]));
  say_received("received", ends[1], 10);
}

static void becomes_echo(int fd) {
  dup2(fd, 1);
  execlp("echo", "echo", "of another program", NULL);
}

CASE(stdio_out_exec, "a program that is begun with a connected datagram socket at 1 prints") {
  datagrams(ends);
  const pid_t pid = child(becomes_echo, ends[0]);
  await(ends[1], POLLIN);
  say_received("received", ends[1], 1);
  say_ended("child", pid);
}

// Prints through its own connection and exits.
static void prints_and_exits(int listener) {
  const int client = connected(listener);
  dup2(client, 1);
  close(client);
  printf("at exit");
  exit(3);
}

static void writes_and_exits(int listener) {
  FILE* const stream = fdopen(connected(listener), "w");
  fprintf(stream, "at exit");
  exit(4);
}

static void say_last_words(void (*of)(int)) {
  const int listener = listening();
  const pid_t pid = child(of, listener);
  const int server = accepted(listener);
  await(server, POLLRDHUP);
  say_received("received", server, 7);
  say_ended("child", pid);
}

CASE(stdio_at_exit, "exit() flushes stdout to a socket at 1, and a stream of fdopen()") {
  say_last_words(prints_and_exits);
  say_last_words(writes_and_exits);
}

static void forks_and_prints(int listener) {
  const int client = connected(listener);
  dup2(client, 1);
  printf("first ");
  fflush(stdout);
  const pid_t pid = fork();
  printf(pid == 0 ? "second " : "third ");
  fflush(stdout);
  if (pid == 0) _exit(0);
  waitpid(pid, NULL, 0);
}

CASE(stdio_out_forks, "a process with a connection at 1 forks, and both print") {
  char bytes[40];
  long got = 0, more;
  const int listener = listening();
  const pid_t pid = child(forks_and_prints, listener);
  const int server = accepted(listener);
  while ((more = recv(server, bytes + got, sizeof bytes - (size_t)got, 0)) > 0) got += more;
  bytes[got] = 0;
  say("received: %ld bytes, first: %d, second: %d, third: %d", got, strncmp(bytes, "first ", 6) == 0, strstr(bytes, "second") != NULL,
      strstr(bytes, "third") != NULL);
  say_ended("child", pid);
}

// ---- threads

static char thread_line[20];

static void* gets_a_line(void* unused) {
  (void)unused;
  return (void*)(long)(fgets(thread_line, sizeof thread_line, stdin) != NULL);
}

CASE(stdio_in_of_thread, "a thread waits in fgets(stdin) while a socket comes to lie at 0: it gets its line, the next is the socket's") {
  int pipes[2];
  char line[20] = "";
  streams(ends);
  MUST(pipe(pipes));
  put(pipes[0], 0);
  const pthread_t thread = asleep(gets_a_line, NULL);
  CALL(dup2(ends[0], 0));
  CALL(write(pipes[1], "of the pipe\n", 12));
  say("thread: %ld, %s", joined(thread), thread_line);
  CALL(send(ends[1], "of the socket\n", 14, 0));
  say("fgets: %s", fgets(line, sizeof line, stdin));
  put_back(0);
}

static void* prints_lines(void* unused) {
  (void)unused;
  for (int i = 0; i < 2000; ++i) printf("line\n");
  return NULL;
}

CASE(stdio_out_of_threads, "two threads print to a socket at 1: no line is lost") {
  char bytes[2000];
  long got = 0, more;
  streams(ends);
  put(ends[0], 1);
  const pthread_t one = start(prints_lines, NULL), two = start(prints_lines, NULL);
  while (got < 10000 && (more = recv(ends[1], bytes, sizeof bytes, 0)) > 0) got += more;
  joined(one);
  joined(two);
  fflush(stdout);
  put_back(1);
  while (got < 20000 && (more = recv(ends[1], bytes, sizeof bytes, 0)) > 0) got += more;
  say("received: %ld", got);
}

THEME(stdio_standard, &stdio_out, &stdio_in, &stdio_error, &stdio_out_unflushed, &stdio_in_unread, &stdio_out_modes,
      &stdio_out_lines_wait, &stdio_out_large, &stdio_out_fails, &stdio_out_datagram, &stdio_closed_and_taken, &stdio_out_fclose,
      &stdio_reopened, &stdio_reopened_as_it_is, &stdio_out_child, &stdio_out_exec, &stdio_at_exit, &stdio_out_forks,
      &stdio_in_of_thread, &stdio_out_of_threads);
