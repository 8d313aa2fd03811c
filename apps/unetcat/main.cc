// main.cc - unetcat: standard input to a program elsewhere, and what comes from there to standard output, over Active Messages.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "apps/standard_descriptors.h"
#include "apps/unetcat/options.h"
#include "apps/unetcat/report.h"
#include "apps/unetcat/transfer.h"
#include "unet/context.h"

namespace unet::unetcat {
namespace {

constexpr int kFailure = 1;
constexpr uint64_t kPeersMax = 64;                       // channels to us; the first hello counts

int refuse(const Error& error) {
  std::fprintf(stderr, "unetcat: %s\n", error.text.c_str());
  return kFailure;
}

// ---- signals

int wake_descriptor = -1;                                // an eventfd that ends the sleep
std::atomic<int> signal_number{0};

void on_signal(int number) {
  const int error = errno;
  signal_number.store(number, std::memory_order_relaxed);
  static_cast<void>(!eventfd_write(wake_descriptor, 1));
  errno = error;
}

Status catch_signals() {
  wake_descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_descriptor < 0) return fail_errno("eventfd", errno);
  std::signal(SIGPIPE, SIG_IGN);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    if (std::signal(number, SIG_IGN) != SIG_IGN) std::signal(number, on_signal);  // nohup, or a shell's background job
  }
  return {};
}

// ---- the loop

struct Loop {
  Context& context;
  am::Endpoint& endpoint;
  Input& input;
  Output& output;
  Transfer& transfer;
  Report& report;
  int descriptor;                                        // of the endpoint

  void run() {
    while (!transfer.over()) {
      const bool arrived = endpoint.poll() != 0;
      const bool moved = transfer.step();
      report.look();
      if (const int number = signal_number.load(std::memory_order_relaxed); number != 0) {
        transfer.give_up(Reason::interrupted, std::string("ended by ") + sigabbrev_np(number));
      } else if (!arrived && !moved && !transfer.over()) {
        sleep();
      }
    }
  }

  // Waits for a message, a signal, standard input or output, or time. It does not poll before that: the programs at the other ends of the
  // pipes need the cores.
  void sleep() {
    const Nanoseconds now = monotonic_now();
    const Nanoseconds due = std::min(transfer.due(), report.due());
    Nanoseconds limit = due == kNever ? kNever : due - std::min(now, due);
    if (!endpoint.arm(limit)) return;
    // arm() may have been the first to see that.
    if (!context.alive()) return transfer.fail("the network interface is gone");
    std::array polled{pollfd{.fd = descriptor, .events = POLLIN, .revents = 0},
                      pollfd{.fd = wake_descriptor, .events = POLLIN, .revents = 0},
                      pollfd{.fd = transfer.wants_input() ? input.descriptor() : -1, .events = POLLIN, .revents = 0},
                      pollfd{.fd = output.empty() ? -1 : output.descriptor(), .events = POLLOUT, .revents = 0}};
    const timespec time = timespec_of(limit);
    ::ppoll(polled.data(), polled.size(), limit == kNever ? nullptr : &time, nullptr);
  }
};

bool admit(const ConnectionRequest&, void* endpoint) { return (*static_cast<am::Endpoint**>(endpoint))->peers() < kPeersMax; }

int run(const Options& options, bool usable_output) {
  Result<Context> context = Context::open(options.ni, "unetcat");
  if (!context) return refuse(context.error());
  am::Endpoint* self = nullptr;
  auto endpoint = am::Endpoint::create(*context, {.admit = admit, .admit_context = &self, .both_ways = true});
  if (!endpoint) return refuse(endpoint.error());
  self = endpoint->get();
  if (const Status bound = options.listen ? self->bind(options.name) : Status(); !bound) return refuse(bound.error());
  const Result<int> descriptor = self->descriptor();
  if (!descriptor) return refuse(descriptor.error());
  if (const Status caught = catch_signals(); !caught) return refuse(caught.error());

  Input input(STDIN_FILENO);
  Output output(STDOUT_FILENO, kWindow, usable_output);
  Transfer transfer(*self, input, output, options);
  Report report(transfer, options);
  Loop loop{*context, *self, input, output, transfer, report, *descriptor};
  bool good = true;
  do {
    transfer.begin();
    report.begin();
    loop.run();
    good = report.end() && good;
    transfer.finish();
  } while (options.keep && signal_number == 0 && output.error() == 0 && context->alive() && !transfer.no_peer());
  return good ? 0 : kFailure;
}

}  // namespace
}  // namespace unet::unetcat

int main(int argc, char** argv) {
  using namespace unet::unetcat;
  const bool usable_output = fcntl(STDOUT_FILENO, F_GETFD) >= 0;
  unet::apps::hold_standard_descriptors();
  const ParsedOptions parsed = parse_options(argc, argv);
  if (!parsed.options) return parsed.status;
  const int status = run(*parsed.options, usable_output);
  // The shell sees which signal ended the program.
  if (const int number = signal_number; number != 0) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
  return status;
}
