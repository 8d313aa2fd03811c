// runner.cc - one loop over the agent's socket, the tasks' pipes and their ends.
#include "apps/unet-agent/runner.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <system_error>

#include "am/rpc/task/branch.h"
#include "apps/descendants.h"
#include "apps/unet-agent/job_directory.h"
#include "apps/unet-agent/packets.h"
#include "apps/unet-agent/task_environment.h"

namespace unet::agent {
namespace {

using rpc::Reason;
using rpc::TaskRecord;
using rpc::RecordType;

constexpr uint32_t kInputPieces = 4;  // of standard input, written at a time
constexpr std::array kIgnored{SIGPIPE, SIGXFSZ, SIGINT, SIGTERM, SIGHUP, SIGQUIT};  // by the runner: the agent ends it

std::string text_of(int error) { return std::error_code(error, std::system_category()).message(); }

class Runner final : public rpc::Links {
 public:
  Runner(Descriptor socket, const RunnerOptions& options)
      : options_(options), socket_(std::move(socket)), agent_(0, Links::Id{}, monotonic_now()), files_(options) {}

  void run();

 private:
  struct Output {
    Descriptor from;
    uint32_t stream;
    std::string line;  // the unfinished one
  };
  struct Task {
    pid_t pid;
    uint32_t rank;
    std::array<Output, 2> outputs;
    bool running = true;
  };

  // The link to the agent is the socket.
  Id open(const std::string&) override { return {}; }
  void close(Id) override {}
  bool send(Id link, uint64_t key, const TaskRecord& record) override;

  void fail(Reason reason, const std::string& text);
  void start_tasks();
  bool start_task(uint32_t rank, int errors);
  [[noreturn]] void become_task(pid_t runner, uint32_t rank, int errors, int input, int out, int error_out) const;
  void take_records();
  void take(const TaskRecord& record);
  void write_input();
  void read_output(Task& task, Output& output);
  void push_output(const Task& task, Output& output, size_t bytes);
  void note_ends();
  void end(int signal);
  void signal_all(int signal) const noexcept;
  bool any_running() const noexcept {
    return std::any_of(tasks_.begin(), tasks_.end(), [](const Task& task) { return task.running; });
  }
  bool all_read() const noexcept {
    return std::none_of(tasks_.begin(), tasks_.end(), [](const Task& task) {
      return task.outputs[0].from.valid() || task.outputs[1].from.valid();
    });
  }
  void wait();

  const RunnerOptions& options_;
  Descriptor socket_, child_signals_;
  rpc::Edge agent_;
  JobDirectory files_;
  std::vector<Task> tasks_;
  Descriptor input_;                    // to rank 0
  std::deque<std::vector<std::byte>> input_pieces_;  // an empty one ends the input
  size_t input_written_ = 0;            // of the first piece
  bool begun_ = false;                  // tasks have been started, or never will be
  bool ending_ = false;
  bool agent_gone_ = false;
  bool socket_full_ = false;
  bool done_ = false;
  Nanoseconds kill_at_ = kNever;
};

bool Runner::send(Id, uint64_t, const TaskRecord& record) {
  const Sent sent = send_packet(socket_.get(), record);
  if (sent == Sent::full) socket_full_ = true;
  if (sent == Sent::closed) agent_gone_ = true;
  return sent == Sent::yes;
}

void Runner::fail(Reason reason, const std::string& text) {
  const std::string_view sentence = std::string_view(text).substr(0, rpc::kSentenceMax);
  const rpc::Payload payload = rpc::payload_of(as_bytes(sentence.data(), sentence.size()));
  agent_.push(RecordType::failed, static_cast<uint32_t>(reason), options_.node, payload);
  end(SIGTERM);
}

// ---- starting

void Runner::start_tasks() {
  begun_ = true;
  int errors[2];
  if (pipe2(errors, O_CLOEXEC) != 0) return fail(Reason::system, "pipe: " + text_of(errno));
  Descriptor errors_in(errors[1]);
  const Descriptor errors_out(errors[0]);
  const rpc::Tree tree(options_.job);
  for (uint32_t rank = tree.first_rank(options_.node); rank < tree.first_rank(options_.node + 1); ++rank) {
    if (!start_task(rank, errors_in.get())) return;
  }
  errors_in.reset();  // the other end closes when every child has executed its program
  int error = 0;
  ssize_t n = 0;
  do {
    n = read(errors_out.get(), &error, sizeof error);
  } while (n < 0 && errno == EINTR);
  if (n == sizeof error) return fail(Reason::no_program, "cannot start '" + options_.job.program[0] + "': " + text_of(error));
  agent_.push(RecordType::started, static_cast<uint32_t>(tasks_.size()));
}

// False: the failure was reported.
bool Runner::start_task(uint32_t rank, int errors) {
  std::array<std::array<int, 2>, 3> pipes{};  // input, output, errors
  std::vector<Descriptor> ours;
  for (auto& both : pipes) {
    if (pipe2(both.data(), O_CLOEXEC) != 0) {
      fail(Reason::system, "pipe: " + text_of(errno));
      return false;
    }
    ours.emplace_back(both[0]);
    ours.emplace_back(both[1]);
  }
  const pid_t self = getpid();
  const pid_t pid = fork();
  if (pid == 0) become_task(self, rank, errors, pipes[0][0], pipes[1][1], pipes[2][1]);
  if (pid < 0) {
    fail(Reason::system, "fork: " + text_of(errno));
    return false;
  }
  for (const size_t kept : {1, 2, 4}) fcntl(ours[kept].get(), F_SETFL, O_NONBLOCK);
  if (rank == 0) input_ = std::move(ours[1]);
  tasks_.push_back({pid, rank, {Output{std::move(ours[2]), 1, {}}, Output{std::move(ours[4]), 2, {}}}});
  return true;
}

// Runs in the child, between fork and exec.
void Runner::become_task(pid_t runner, uint32_t rank, int errors, int input, int out, int error_out) const {
  const auto give_up = [errors] {
    const int error = errno;
    static_cast<void>(!write(errors, &error, sizeof error));
    _exit(127);
  };
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != runner) _exit(127);  // it ended before that
  if (rank != 0) input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // several readers of one input would each get a part of it
  if (input < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(error_out, STDERR_FILENO) < 0) give_up();
  const rpc::JobSpec& job = options_.job;
  const std::string& directory = job.directory.empty() ? files_.path() : job.directory;
  if (chdir(directory.c_str()) != 0) give_up();
  const std::string program = job.carried ? files_.path() + '/' + job.program[0] : job.program[0];
  std::vector<std::string> variables = task_environment(options_, rank, files_.path());
  std::vector<char*> environment, arguments;
  for (std::string& each : variables) environment.push_back(each.data());
  environment.push_back(nullptr);
  for (const std::string& each : job.program) arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);
  for (const int signal : kIgnored) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvpe(program.c_str(), arguments.data(), environment.data());  // looks a name without / up in the PATH of the agent
  give_up();
  _exit(127);
}

// ---- from the agent

void Runner::take_records() {
  Packet packet;
  Packet::Got got{};
  while ((got = packet.receive(socket_.get())) == Packet::Got::record) {
    agent_.hear(packet.record(), monotonic_now());
    take(packet.record());
  }
  if (got == Packet::Got::none) return;
  agent_gone_ = true;
  if (!ending_) end(SIGTERM);
}

void Runner::take(const TaskRecord& record) {
  if (record.type == RecordType::end) return end(static_cast<int>(record.a));
  if (record.type == RecordType::signal) return signal_all(static_cast<int>(record.a));
  if (record.type == RecordType::input) {
    input_pieces_.emplace_back(record.payload.begin(), record.payload.end());
    return write_input();
  }
  if (record.type != RecordType::data || ending_) return;
  const Status written = files_.write(record.payload);
  agent_.consumed(rpc::cost_of(record.payload.size()));
  if (!written) return fail(Reason::file_failed, written.error().text);
  if (files_.complete()) start_tasks();
}

void Runner::write_input() {
  for (uint32_t pieces = 0; !input_pieces_.empty() && pieces < kInputPieces;) {
    const std::vector<std::byte>& piece = input_pieces_.front();
    if (piece.empty()) input_.reset();
    if (input_.valid()) {
      const ssize_t written = ::write(input_.get(), piece.data() + input_written_, piece.size() - input_written_);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EAGAIN) return;
      if (written < 0) input_.reset();  // the task reads no more
      else if ((input_written_ += static_cast<size_t>(written)) < piece.size()) continue;
    }
    agent_.consumed(rpc::cost_of(piece.size()));
    input_pieces_.pop_front();
    input_written_ = 0;
    ++pieces;
  }
}

// ---- from the tasks

void Runner::push_output(const Task& task, Output& output, size_t bytes) {
  agent_.push(RecordType::output, task.rank, output.stream, rpc::payload_of(as_bytes(output.line.data(), bytes)));
  output.line.erase(0, bytes);
}

// Sends whole lines. A line longer than a record is broken.
void Runner::read_output(Task& task, Output& output) {
  char text[rpc::kRecordMax];
  const ssize_t size = read(output.from.get(), text, rpc::kRecordMax - output.line.size());
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (size <= 0) {
    output.from.reset();
    if (!output.line.empty()) push_output(task, output, output.line.size());
    return;
  }
  output.line.append(text, static_cast<size_t>(size));
  const size_t newline = output.line.rfind('\n');
  if (newline != std::string::npos) push_output(task, output, newline + 1);
  else if (output.line.size() == rpc::kRecordMax) push_output(task, output, output.line.size());
}

void Runner::note_ends() {
  signalfd_siginfo ignored;
  static_cast<void>(!read(child_signals_.get(), &ignored, sizeof ignored));
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto task = std::find_if(tasks_.begin(), tasks_.end(), [pid](const Task& each) { return each.pid == pid && each.running; });
    if (task == tasks_.end()) continue;  // an orphan of the tasks
    task->running = false;
    const bool by_signal = WIFSIGNALED(status);
    const auto code = static_cast<uint32_t>(by_signal ? WTERMSIG(status) : WEXITSTATUS(status));
    agent_.push(RecordType::exited, task->rank, by_signal ? rpc::kBySignal + code : code);
  }
}

// ---- the end

void Runner::signal_all(int signal) const noexcept {
  for (const Task& task : tasks_) {
    if (task.running && kill(-task.pid, signal) != 0) kill(task.pid, signal);  // not a session of its own yet
  }
}

void Runner::end(int signal) {
  begun_ = true;
  if (!ending_) signal_all(signal);
  ending_ = true;
  if (kill_at_ == kNever) kill_at_ = monotonic_now() + rpc::kKillAfter;
}

void Runner::wait() {
  std::vector<pollfd> polled{{socket_.get(), POLLIN, 0}, {child_signals_.get(), POLLIN, 0}};
  if (agent_gone_) polled[0].fd = -1;
  if (std::exchange(socket_full_, false)) polled[0].events |= POLLOUT;
  polled.push_back({input_pieces_.empty() ? -1 : input_.get(), POLLOUT, 0});
  std::vector<std::pair<Task*, Output*>> outputs;
  for (Task& task : tasks_) {
    for (Output& output : task.outputs) {
      if (!output.from.valid() || agent_.waiting() >= rpc::kWindow / 2) continue;
      polled.push_back({output.from.get(), POLLIN, 0});
      outputs.emplace_back(&task, &output);
    }
  }
  const Nanoseconds now = monotonic_now();
  const Nanoseconds limit = std::min(kill_at_ > now ? kill_at_ - now : 0, kSecond);
  poll(polled.data(), polled.size(), static_cast<int>(limit / kMillisecond) + 1);
  if ((polled[0].revents & ~POLLOUT) != 0) take_records();
  if (polled[1].revents != 0) note_ends();
  if (polled[2].revents != 0) write_input();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (polled[i + 3].revents != 0) read_output(*outputs[i].first, *outputs[i].second);
  }
}

void Runner::run() {
  apps::adopt_descendants();
  for (const int signal : kIgnored) ::signal(signal, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_SETMASK, &set, nullptr);
  child_signals_ = Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  Status ready = become_user(options_);
  if (ready) ready = files_.make();
  if (!ready) fail(Reason::file_failed, ready.error().text);
  else if (files_.complete()) start_tasks();
  for (bool orphans = true; !done_ || (!agent_.all_sent() && !agent_gone_);) {
    if (!agent_gone_) agent_.flush(*this, monotonic_now());
    if (monotonic_now() >= kill_at_) {
      signal_all(SIGKILL);
      kill_at_ = kNever;
    }
    if (begun_ && !any_running() && !done_) {
      if (std::exchange(orphans, false)) apps::end_descendants();
      if (all_read() || agent_gone_) {
        files_.remove();
        agent_.push(RecordType::done);
        done_ = true;
        continue;
      }
    }
    wait();
  }
}

}  // namespace

Status become_user(const RunnerOptions& options) {
  if (options.user == geteuid()) return {};
  if (initgroups(options.name.c_str(), options.group) != 0) return fail_errno("initgroups", errno);
  if (setresgid(options.group, options.group, options.group) != 0) return fail_errno("setresgid", errno);
  if (setresuid(options.user, options.user, options.user) != 0) return fail_errno("setresuid", errno);
  if (geteuid() != options.user || getegid() != options.group) return fail(Errc::system, "the user of the tasks is none");  // -1
  return {};
}

bool run_tasks(Descriptor socket, const RunnerOptions& options) {
  Runner(std::move(socket), options).run();
  return apps::children().empty();
}

}  // namespace unet::agent
