// remote.cc - one loop over the endpoint, standard input and output, and signals.
#include "apps/unet-run/remote.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>

#include "am/rpc/task/am_links.h"
#include "am/rpc/task/launcher.h"
#include "apps/task_secret.h"
#include "apps/unet-run/remote_job.h"
#include "apps/unet-run/remote_output.h"

namespace unet::run {
namespace {

constexpr int kJobFailure = 1;
constexpr uint32_t kFailuresTold = 8;
constexpr Nanoseconds kFarewell = 200 * kMillisecond;
constexpr std::array kEnding{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::array kPassed{SIGUSR1, SIGUSR2};

int refuse_job(const Error& error) {
  std::fprintf(stderr, "unet-run: %s\n", error.text.c_str());
  return kJobFailure;
}

// Text of another host on a terminal: without control characters.
std::string printable(std::string text) {
  std::replace_if(text.begin(), text.end(), [](unsigned char each) { return std::iscntrl(each) != 0; }, '?');
  return text;
}

int exit_code(rpc::ExitStatus status) { return static_cast<int>(status < rpc::kBySignal ? status : 128 + (status - rpc::kBySignal)); }

class RemoteRun final : public rpc::LinkOwner, public rpc::LaunchEvents {
 public:
  explicit RemoteRun(const Options& options)
      : options_(options), out_(STDOUT_FILENO, options.label), errors_(STDERR_FILENO, options.label) {}

  Status start();
  int run();

 private:
  bool admits(const std::string&, int) override { return false; }
  void receive(const rpc::Caller& from, uint64_t key, const rpc::TaskRecord& record) override {
    launcher_->receive(from.source, key, record, monotonic_now());
  }
  void lost(rpc::Links::Id link, const rpc::TaskFailure& why) override { launcher_->lost(link, why, monotonic_now()); }

  void all_started(Nanoseconds now) override;
  void output(uint32_t rank, uint32_t stream, Bytes text) override { (stream == 1 ? out_ : errors_).add(rank, text); }
  uint64_t unwritten() const override { return out_.unwritten() + errors_.unwritten(); }
  void exited(uint32_t rank, rpc::ExitStatus status) override;
  void failed(const std::string& host, const rpc::TaskFailure& why) override;
  bool read_files(uint64_t offset, MutableBytes bytes) override;
  uint64_t draw_key() override { return apps::random_key(); }

  void sleep(Nanoseconds until);
  void read_input();
  void take_signal();

  const Options& options_;
  std::optional<Context> context_;
  std::unique_ptr<rpc::AmLinks> links_;
  std::optional<FileStream> files_;
  std::unique_ptr<rpc::Launcher> launcher_;
  RemoteOutput out_, errors_;
  Descriptor signals_;
  Nanoseconds began_ = 0;
  bool input_open_ = true;
  int ended_by_ = 0;          // the signal that ends the job
  bool told_ = false;         // the first failure has been printed
  uint32_t failures_ = 0;     // of hosts
};

Status RemoteRun::start() {
  Result<rpc::JobSpec> job = describe_job(options_);
  if (!job) return tl::unexpected(job.error());
  const std::vector<std::string> paths = files_to_bring(options_, job->carried);
  Result<FileStream> files = FileStream::open(paths, job->carried, job->files);
  if (!files) return tl::unexpected(files.error());
  files_ = std::move(*files);
  if (job->carried) job->program[0] = job->files[0].name;
  uint64_t secret = 0;
  if (!options_.remote.secret.empty()) {
    const Result<uint64_t> read = apps::read_task_secret(options_.remote.secret);
    if (!read) return tl::unexpected(read.error());
    secret = *read;
  }
  Result<Context> context = Context::open(options_.remote.ni, "unet-run");
  if (!context) return tl::unexpected(context.error());
  context_ = std::move(*context);
  auto links = rpc::AmLinks::create(*context_, "", secret, *this);
  if (!links) return tl::unexpected(links.error());
  links_ = std::move(*links);
  began_ = monotonic_now();
  auto launcher = rpc::Launcher::create(*links_, *this, std::move(*job), {.way = options_.remote.way});
  if (!launcher) return tl::unexpected(launcher.error());
  launcher_ = std::move(*launcher);
  sigset_t set;
  sigemptyset(&set);
  for (const int each : kEnding) sigaddset(&set, each);
  for (const int each : kPassed) sigaddset(&set, each);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  signal(SIGPIPE, SIG_IGN);
  return {};
}

// ---- what the launcher tells

void RemoteRun::all_started(Nanoseconds now) {
  if (!options_.remote.time) return;
  std::fprintf(stderr, "unet-run: all tasks run after %.3f ms\n", static_cast<double>(now - began_) / kMillisecond);
}

void RemoteRun::exited(uint32_t rank, rpc::ExitStatus status) {
  if (status == 0 || told_ || ended_by_ != 0) return;
  told_ = true;
  if (status > rpc::kBySignal) std::fprintf(stderr, "unet-run: rank %u was ended by signal %u\n", rank, status - rpc::kBySignal);
  else std::fprintf(stderr, "unet-run: rank %u failed with status %u\n", rank, status);
}

void RemoteRun::failed(const std::string& host, const rpc::TaskFailure& why) {
  told_ = true;
  if (++failures_ > kFailuresTold) return;
  std::fprintf(stderr, "unet-run: host %s: %s (%s)\n", host.c_str(), printable(why.text).c_str(),
               std::string(rpc::to_string(why.reason)).c_str());
}

bool RemoteRun::read_files(uint64_t offset, MutableBytes bytes) {
  const Status read = files_->read(offset, bytes);
  if (!read) refuse_job(read.error());
  return read.has_value();
}

// ---- the loop

void RemoteRun::read_input() {
  std::array<std::byte, rpc::kRecordMax> bytes;
  const ssize_t size = read(STDIN_FILENO, bytes.data(), std::min<size_t>(bytes.size(), launcher_->input_room()));
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (size <= 0) input_open_ = false;
  launcher_->input(Bytes(bytes).first(static_cast<size_t>(std::max<ssize_t>(size, 0))));
}

void RemoteRun::take_signal() {
  signalfd_siginfo info;
  if (read(signals_.get(), &info, sizeof info) != sizeof info) return;
  const auto signal = static_cast<int>(info.ssi_signo);
  if (std::find(kPassed.begin(), kPassed.end(), signal) != kPassed.end()) return launcher_->signal(info.ssi_signo);
  if (ended_by_ == 0) ended_by_ = signal;
  launcher_->end(info.ssi_signo, monotonic_now());
}

void RemoteRun::sleep(Nanoseconds until) {
  const bool wants_input = input_open_ && launcher_->input_room() != 0;
  std::array<pollfd, 5> polled{{{signals_.get(), POLLIN, 0},
                                {wants_input ? STDIN_FILENO : -1, POLLIN, 0},
                                {out_.descriptor(), POLLOUT, 0},
                                {errors_.descriptor(), POLLOUT, 0},
                                {links_->descriptor().value_or(-1), POLLIN, 0}}};
  const Nanoseconds now = monotonic_now();
  Nanoseconds limit = std::min(until > now ? until - now : 0, kSecond);
  if (!links_->arm(limit)) limit = 0;
  const timespec time{static_cast<time_t>(limit / kSecond), static_cast<long>(limit % kSecond)};
  ppoll(polled.data(), polled.size(), &time, nullptr);
  if (polled[0].revents != 0) take_signal();
  if (polled[1].revents != 0) read_input();
  if (polled[2].revents != 0) out_.write_some();
  if (polled[3].revents != 0) errors_.write_some();
}

int RemoteRun::run() {
  while (!launcher_->is_over()) {
    links_->poll(monotonic_now());
    const Nanoseconds next = launcher_->process(monotonic_now());
    if (launcher_->is_over()) break;
    if (!context_->alive()) return refuse_job({Errc::disconnected, "the network interface is gone; agents end their tasks"});
    sleep(next);
  }
  out_.finish();
  errors_.finish();
  links_->flush(kFarewell);
  if (failures_ > kFailuresTold) std::fprintf(stderr, "unet-run: %u more failures\n", failures_ - kFailuresTold);
  if (ended_by_ != 0) return 128 + ended_by_;
  return launcher_->failure() ? exit_code(*launcher_->failure()) : 0;
}

}  // namespace

int run_remote(const Options& options) {
  RemoteRun run(options);
  if (const Status started = run.start(); !started) return refuse_job(started.error());
  return run.run();
}

}  // namespace unet::run
