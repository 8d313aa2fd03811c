// main.c - the program `conformance`: lists the cases, runs each in a process of its own and prints what it says, or is the peer of some.
//
//   conformance list
//   conformance run [--address A] [--address6 A] [--peer A] [--peer6 A] [--family 4|6] [--limit SECONDS] NAME... | all
//   conformance peer ADDRESS...
#include <getopt.h>
#include <time.h>

#include "tests/conformance/conformance.h"

static int limit_ms = 10000;
static const char* program;

static void print_case(const struct Case* each) { printf("%-34s %s\n", each->name, each->what); }

// Copies the case's output until the case and all its children have closed the pipe.
static void copy_output(int from) {
  char bytes[4096];
  ssize_t length;
  while ((length = read(from, bytes, sizeof bytes)) > 0) fwrite(bytes, 1, (size_t)length, stdout);
}

// Runs the case in a process group of its own, so that its children end with it.
static void run_case(const struct Case* each) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) exit(2);
  printf("== %s\n", each->name);
  fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    dup2(ends[1], STDOUT_FILENO);
    execl(program, program, "case", each->name, family == AF_INET ? "4" : "6", (char*)NULL);
    _exit(2);
  }
  setpgid(pid, pid);
  close(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  const long end = now_ms() + limit_ms;
  siginfo_t gone;
  for (gone.si_pid = 0; gone.si_pid == 0 && now_ms() < end;) {
    copy_output(ends[0]);
    waitid(P_PID, (id_t)pid, &gone, WEXITED | WNOHANG | WNOWAIT);
    if (gone.si_pid == 0) pause_ms(2);
  }
  const int hangs = gone.si_pid == 0;
  kill(-pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  copy_output(ends[0]);
  close(ends[0]);
  if (hangs) {
    printf("timed out\n");
  } else if (WIFSIGNALED(status)) {
    printf("ended by SIG%s\n", signal_name(WTERMSIG(status)));
  } else if (WEXITSTATUS(status) != 0) {
    printf("ended with %d\n", WEXITSTATUS(status));
  }
  fflush(stdout);
}

static int run(int argc, char** argv) {
  static const struct option options[] = {{"address", 1, NULL, 'a'}, {"address6", 1, NULL, 'b'}, {"peer", 1, NULL, 'p'},
                                          {"peer6", 1, NULL, 'q'},   {"family", 1, NULL, 'f'},   {"limit", 1, NULL, 'l'},
                                          {NULL, 0, NULL, 0}};
  for (int option; (option = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
    switch (option) {
      case 'a': setenv("CONFORMANCE_ADDRESS", optarg, 1); break;
      case 'b': setenv("CONFORMANCE_ADDRESS6", optarg, 1); break;
      case 'p': setenv("CONFORMANCE_PEER", optarg, 1); break;
      case 'q': setenv("CONFORMANCE_PEER6", optarg, 1); break;
      case 'f': family = strcmp(optarg, "6") == 0 ? AF_INET6 : AF_INET; break;
      case 'l': limit_ms = atoi(optarg) * 1000; break;
      default: return 2;
    }
  }
  for (int i = optind; i < argc; ++i) {
    const struct Case* one = case_named(argv[i]);
    if (one != NULL) {
      run_case(one);
    } else if (strcmp(argv[i], "all") == 0) {
      each_case(run_case);
    } else {
      fprintf(stderr, "conformance: there is no case %s\n", argv[i]);
      return 2;
    }
  }
  return 0;
}

static int be_case(const char* name, const char* of_family) {
  const struct Case* one = case_named(name);
  if (one == NULL) return 2;
  family = strcmp(of_family, "6") == 0 ? AF_INET6 : AF_INET;
  one->run();
  return 0;
}

// Serves each address in a process of its own.
static int serve(int addresses, char** address) {
  for (int i = 1; i < addresses; ++i) {
    if (fork() == 0) return serve_as_peer(address[i]);
  }
  return serve_as_peer(address[0]);
}

int main(int argc, char** argv) {
  // argv[0] rather than /proc/self/exe, which may be a loader or a wrapper.
  program = strchr(argv[0], '/') != NULL ? argv[0] : "/proc/self/exe";
  if (argc == 2 && strcmp(argv[1], "list") == 0) return each_case(print_case), 0;
  if (argc > 2 && strcmp(argv[1], "run") == 0) return run(argc - 1, argv + 1);
  if (argc == 4 && strcmp(argv[1], "case") == 0) return be_case(argv[2], argv[3]);
  if (argc > 2 && strcmp(argv[1], "peer") == 0) return serve(argc - 2, argv + 2);
  fprintf(stderr, "conformance: list | run [OPTIONS] NAME...|all | peer ADDRESS...\n");
  return 2;
}
