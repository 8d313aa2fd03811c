// peer_process.h - the other process of a channel: answers or asks until killed; for system tests.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "tests/system/exchange.h"

namespace unet {

// An endpoint of this process, over its own connection.
struct Client {
  explicit Client(const NiProcess& ni, const EndpointOptions& options = test_options())
      : context(*Context::open(ni.ni(), "test")), endpoint(*context.create_endpoint(options)) {}
  Context context;
  std::unique_ptr<Endpoint> endpoint;
};

inline ConnectOptions through(control::Path path, LocalOptions local = {}) {
  return {.path = path, .timeout = kHang, .local = local};
}

// A child process that writes one byte when it is ready. Its body gets the descriptor for that.
class PeerProcess {
 public:
  template <typename Body>
  explicit PeerProcess(Body body) {
    int ready[2];
    UNET_CHECK(::pipe2(ready, O_CLOEXEC) == 0);
    process_ = std::make_unique<ChildProcess>([&] { return body(ready[1]); });
    ::close(ready[1]);
    ready_ = ready[0];
  }
  ~PeerProcess() { ::close(ready_); }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // False: it ended, or was not ready in time.
  bool is_ready() const {
    pollfd wanted{.fd = ready_, .events = POLLIN, .revents = 0};
    char byte = 0;
    return ::poll(&wanted, 1, kHangSeconds * 1000) == 1 && ::read(ready_, &byte, 1) == 1;
  }
  void kill() { process_->kill(); }
  int wait() { return process_->wait(); }
  pid_t pid() const { return process_->pid(); }

 private:
  int ready_ = -1;
  std::unique_ptr<ChildProcess> process_;
};

// Holds back a child process that was started before its turn.
class Starter {
 public:
  Starter() { UNET_CHECK(::pipe2(pipe_, O_CLOEXEC) == 0); }
  ~Starter() {
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  Starter(const Starter&) = delete;
  Starter& operator=(const Starter&) = delete;

  void say() const { UNET_CHECK(::write(pipe_[1], "s", 1) == 1); }
  void wait() const {
    char byte = 0;
    UNET_CHECK(::read(pipe_[0], &byte, 1) == 1);
  }

 private:
  int pipe_[2];
};

inline void say_ready(int ready) { UNET_CHECK(::write(ready, "r", 1) == 1); }

// Binds `name` and answers until the NI is gone. Returns the exit status: 0 if all was correct.
inline int answer_until_end(const std::string& ni, const std::string& name, Waiting waiting, int ready) {
  auto context = Context::open(ni, "answerer");
  if (!context) return 1;
  auto endpoint = context->create_endpoint(test_options());
  if (!endpoint || (!(*endpoint)->emulated() && !(*endpoint)->expose(kMessageMax))) return 2;
  if (!(*endpoint)->descriptor() || !(*endpoint)->bind(name)) return 2;
  say_ready(ready);
  Answerer answerer(**endpoint);
  while (wait_as(**endpoint, waiting) != WaitOutcome::disconnected && (context->alive() || answerer.has_channels())) {
    if (!answerer.turn()) return 3;
  }
  return 0;
}

// Connects to `name` and asks until the channel ends. Returns the exit status: 0 if all was correct until then.
inline int ask_until_end(const std::string& ni, const std::string& name, const ConnectOptions& options, uint32_t window, Waiting waiting,
                         int ready) {
  auto context = Context::open(ni, "asker");
  if (!context) return 1;
  auto endpoint = context->create_endpoint(test_options());
  if (!endpoint) return 2;
  const auto channel = (*endpoint)->connect(name, options);
  if (!channel) return 3;
  say_ready(ready);
  Asker asker(**endpoint, *channel, window, waiting);
  std::mt19937 random(static_cast<uint32_t>(getpid()));
  Asker::Outcome outcome;
  do {
    const uint32_t most = random() % 4 == 0 ? kMessageMax : 100;
    outcome = asker.send(static_cast<uint32_t>(random() % (most + 1)));
  } while (outcome == Asker::Outcome::sent);
  return outcome == Asker::Outcome::no_channel ? 0 : 4;
}

// An answering process.
class AnswererProcess : public PeerProcess {
 public:
  AnswererProcess(const NiProcess& ni, const std::string& name, Waiting waiting = Waiting::spin)
      : PeerProcess([&](int ready) { return answer_until_end(ni.ni(), name, waiting, ready); }) {
    UNET_CHECK(is_ready());
  }
};

}  // namespace unet
