// test_daemon.h - a test's own network interface, and two endpoints of it through the C ABI; for tests of unet.h.
//
// The environment selects the network interface. UNETD is the unetd to start. Or UNET_TEST_NI is the `ni` for unet_context_open(), such as
// "embedded:". The code uses only exported functions, so that these tests see what an application sees.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "unet/unet.h"

namespace unet {

constexpr int64_t kTestSecond = 1'000'000'000;
constexpr int64_t kHang = 60 * kTestSecond;  // an event that has not happened by then counts as lost

// Ends the test if `condition` is false.
inline void must(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "test: %s failed; the library says: %s\n", what, unet_error_text());
  std::abort();
}

// A unetd on a private socket, which ends with its owner.
class TestDaemon {
 public:
  // With its own policy, other users may connect to it. `more`: further options.
  explicit TestDaemon(const char* policy = nullptr, const std::vector<std::string>& more = {}) {
    if (const char* other = std::getenv("UNET_TEST_NI")) {
      ni_ = other;
      return;
    }
    const char* program = std::getenv("UNETD");
    must(program != nullptr, "UNETD must name the unetd to test with: that");
    char directory[] = "/tmp/unet-test-XXXXXX";
    must(::mkdtemp(directory) != nullptr, "mkdtemp");
    directory_ = directory;
    const std::string socket = directory_ + "/socket";
    ni_ = "unix:" + socket;
    if (policy != nullptr) write_policy(policy);
    const std::string policy_file = policy_path();
    int ready[2];
    must(::pipe(ready) == 0, "pipe");
    const std::string ready_fd = std::to_string(ready[1]);
    pid_ = ::fork();
    must(pid_ >= 0, "fork");
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::vector<const char*> words{program, "--socket", socket.c_str(), "--ready-fd", ready_fd.c_str(), "--log", "off"};
      if (policy != nullptr) words.insert(words.end(), {"--policy", policy_file.c_str()});
      for (const std::string& each : more) words.push_back(each.c_str());
      words.push_back(nullptr);
      ::execv(program, const_cast<char* const*>(words.data()));
      ::_exit(127);
    }
    ::close(ready[1]);
    pollfd wanted{.fd = ready[0], .events = POLLIN, .revents = 0};
    char byte = 0;
    const bool is_ready = ::poll(&wanted, 1, static_cast<int>(kHang / 1'000'000)) == 1 && ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
    must(is_ready, "starting unetd");
    must(policy == nullptr || ::chmod(socket.c_str(), 0666) == 0, "chmod");  // only the policy decides
  }
  ~TestDaemon() {
    end(SIGTERM);
    if (directory_.empty()) return;
    ::unlink((directory_ + "/socket").c_str());
    ::unlink(policy_path().c_str());
    ::rmdir(directory_.c_str());
  }
  TestDaemon(const TestDaemon&) = delete;
  TestDaemon& operator=(const TestDaemon&) = delete;

  const char* ni() const { return ni_.c_str(); }

  // Sends `signal` and waits for the process to end.
  void end(int signal) {
    if (pid_ <= 0) return;
    ::kill(pid_, signal);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  std::string policy_path() const { return directory_ + "/policy"; }
  void write_policy(const char* policy) {
    must(::chmod(directory_.c_str(), 0755) == 0, "chmod");
    std::FILE* const file = std::fopen(policy_path().c_str(), "w");
    must(file != nullptr && std::fputs(policy, file) >= 0 && std::fclose(file) == 0, "writing the policy");
  }

  std::string ni_, directory_;
  pid_t pid_ = -1;
};

// Two endpoints of one context, destroyed in a program's usual order.
class TestPair {
 public:
  explicit TestPair(const TestDaemon& daemon, const unet_endpoint_options* options = nullptr) {
    must(unet_context_open(daemon.ni(), nullptr, &context) == 0, "unet_context_open");
    must(unet_endpoint_create(context, options, &a) == 0, "unet_endpoint_create");
    must(unet_endpoint_create(context, options, &b) == 0, "unet_endpoint_create");
  }
  ~TestPair() {
    unet_endpoint_destroy(a);
    unet_endpoint_destroy(b);
    unet_context_close(context);
  }
  TestPair(const TestPair&) = delete;
  TestPair& operator=(const TestPair&) = delete;

  // Opens a channel from a to b over `path`.
  void connect(int path, const unet_connect_options* given = nullptr) {
    unet_connect_options options{};
    if (given != nullptr) options = *given;
    options.size = sizeof options;
    options.path = path;
    uint64_t pending = 0;
    must(unet_bind(b, "b") == 0, "unet_bind");
    must(unet_connect_start(a, "b", &options, &pending) == 0, "unet_connect_start");
    b_to_a = unet_accept_next(b, kHang, nullptr);
    must(b_to_a >= 0, "unet_accept_next");
    while ((a_to_b = unet_connect_poll(a, pending)) == UNET_EPENDING) must(unet_wait(a, kHang, -1) == UNET_READY, "unet_wait");
    must(a_to_b >= 0, "unet_connect_poll");
  }

  // Returns the next message at `endpoint`.
  static unet_message next(unet_endpoint* endpoint) {
    unet_message message{};
    while (unet_receive(endpoint, &message) == 0) must(unet_wait(endpoint, kHang, -1) == UNET_READY, "unet_wait");
    return message;
  }

  unet_context* context = nullptr;
  unet_endpoint* a = nullptr;
  unet_endpoint* b = nullptr;
  int a_to_b = -1, b_to_a = -1;
};

}  // namespace unet
