// ni_process.cc - starts and ends a unetd, and counts its resources.
#include "tests/system/ni_process.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace unet {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// The inodes of all Unix sockets of a network namespace with their names; an accepted socket has its listener's name.
std::map<std::string, std::string> unix_sockets(const std::string& list) {
  std::map<std::string, std::string> all;
  std::ifstream file(list);
  std::string line;
  std::getline(file, line);  // the column titles
  while (std::getline(file, line)) {
    std::istringstream columns(line);
    std::string number, name;
    for (int i = 0; i < 7; ++i) columns >> number;
    columns >> name;
    all.emplace(number, name);
  }
  return all;
}

// Whether the first thread of a process, its service, sleeps. A dead process counts as asleep.
bool sleeps(pid_t process) {
  const std::string stat = text_of("/proc/" + std::to_string(process) + "/stat");
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= stat.size() || stat[name_end + 2] != 'R';
}

}  // namespace

uint32_t first_seed() {
  const char* const given = std::getenv("UNET_SEED");
  const uint32_t seed = given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10)) : std::random_device{}() % 1'000'000;
  std::printf("UNET_SEED=%u\n", seed);
  std::fflush(stdout);
  return seed;
}

uint32_t rounds(uint32_t normal, uint32_t times) { return std::getenv("UNET_LONG") != nullptr ? times * normal : normal; }

uint64_t counter(const Endpoint& endpoint, std::string_view name) {
  for (const auto& [each, value] : endpoint.counters()) {
    if (each == name) return value;
  }
  throw std::out_of_range("no counter " + std::string(name));
}

std::ostream& print(std::ostream& out, const Descriptors& descriptors) {
  size_t sum = 0;
  for (const auto& [name, count] : descriptors) sum += count;
  out << sum << " descriptors (";
  const char* between = "";
  for (const auto& [name, count] : descriptors) out << std::exchange(between, ", ") << count << ' ' << name;
  return out << ')';
}

std::ostream& operator<<(std::ostream& out, const Holdings& h) {
  out << h.clients << " clients, " << h.endpoints << " endpoints, " << h.channels << " channels, " << h.requests << " requests, "
             << h.names << " names, " << h.mappings << " mappings, ";
  print(out, h.descriptors);
  for (const auto& [name, value] : h.held) out << ", " << value << ' ' << name;
  return out;
}

NiProcess::NiProcess(std::vector<std::string> more, const std::string& quotas) : more_(std::move(more)) {
  char name[] = "/tmp/unet-test-XXXXXX";
  UNET_CHECK(::mkdtemp(name) != nullptr);
  directory_ = name;
  std::ofstream policy(directory_ + "/policy.toml");
  policy << "[[rule]]\nany = true\nnames = [\"*\"]\nmemory = \"1G\"\n" << quotas;
  if (quotas.empty()) policy << "endpoints = " << kEndpoints << "\nchannels = " << kChannels << "\n";
  policy.close();
  start();
}

EndpointOptions test_options() { return {.emulated = std::getenv("UNET_TEST_EMULATED") != nullptr ? 1u : 0u}; }

NiProcess::~NiProcess() {
  kill();
  // A killed NI may have just removed its socket meanwhile.
  std::error_code error;
  for (int i = 0; i < 100; ++i) {
    if (fs::remove_all(directory_, error); !error) return;
  }
}

std::vector<pid_t> NiProcess::served_by() const {
  std::vector<pid_t> children;
  const std::string self = std::to_string(pid_);
  std::ifstream file("/proc/" + self + "/task/" + self + "/children");
  for (pid_t each; file >> each;) children.push_back(each);
  return children;
}

void NiProcess::start() {
  const char* const program = std::getenv("UNETD");
  UNET_CHECK(program != nullptr && pid_ <= 0);
  int ready[2];
  UNET_CHECK(::pipe2(ready, O_CLOEXEC) == 0);
  const std::string socket = directory_ + "/socket", policy = directory_ + "/policy.toml", log = directory_ + "/log";
  pid_ = ::fork();
  UNET_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int null = ::open("/dev/null", O_WRONLY);
    const int ready_fd = ::dup(ready[1]);  // without close-on-exec
    ::dup2(null, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
    ::close(null);
    ::close(file);
    const std::string number = std::to_string(ready_fd);
    std::vector<std::string> arguments{program, "--socket", socket, "--policy", policy, "--ready-fd", number, "--log", "warning"};
    arguments.insert(arguments.end(), more_.begin(), more_.end());
    const char* const engines = std::getenv("UNET_TEST_ENGINES");
    const bool chosen = std::find(more_.begin(), more_.end(), "--engines") != more_.end();
    if (engines != nullptr && !chosen) arguments.insert(arguments.end(), {"--engines", engines});
    std::vector<char*> pointers;
    for (std::string& each : arguments) pointers.push_back(each.data());
    pointers.push_back(nullptr);
    ::execv(program, pointers.data());
    ::_exit(127);
  }
  ::close(ready[1]);
  pollfd wanted{.fd = ready[0], .events = POLLIN, .revents = 0};
  char byte = 0;
  const bool is_ready = ::poll(&wanted, 1, kHangSeconds * 1000) == 1 && ::read(ready[0], &byte, 1) == 1;
  if (!is_ready) std::fprintf(stderr, "unetd did not start:\n%s", this->log().c_str());
  UNET_CHECK(is_ready);
  ::close(ready[0]);
}

int NiProcess::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0) UNET_CHECK(errno == EINTR);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void NiProcess::kill() {
  if (pid_ <= 0) return;
  const std::vector<pid_t> children = served_by();
  ::kill(pid_, SIGKILL);
  for (const pid_t each : children) ::kill(each, SIGKILL);
  wait();
}

int NiProcess::stop() {
  ::kill(pid_, SIGTERM);
  return wait();
}

std::string NiProcess::log() const { return text_of(directory_ + "/log"); }

Descriptors open_descriptors(pid_t process) {
  const std::string of_process = "/proc/" + std::to_string(process);
  const std::map<std::string, std::string> names = unix_sockets(of_process + "/net/unix");
  Descriptors all;
  for (const auto& each : fs::directory_iterator(of_process + "/fd")) {
    std::error_code gone;
    std::string kind = fs::read_symlink(each, gone).string();
    const size_t number = kind.find(":[");  // absent in "anon_inode:[eventfd]"
    if (number != std::string::npos && kind.find_first_not_of("0123456789]", number + 2) == std::string::npos) {
      const auto socket = names.find(kind.substr(number + 2, kind.size() - number - 3));
      kind = kind.substr(0, number) + (socket != names.end() && !socket->second.empty() ? ' ' + socket->second : "");
    }
    ++all[gone ? "that is gone" : kind];
  }
  return all;
}

size_t shared_mappings(pid_t process) {
  size_t count = 0;
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  for (std::string line; std::getline(maps, line);) count += line.find("/memfd:unet-") != std::string::npos ? 1 : 0;
  return count;
}

uint64_t private_memory(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string word; status >> word;) {
    uint64_t kibibytes = 0;
    if (word == "RssAnon:" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

bool has_grown(uint64_t before, uint64_t after) {
#if defined(__SANITIZE_ADDRESS__)
  return false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  return false;
#endif
#endif
  constexpr uint64_t kSettles = 8 << 20;  // the allocator's arenas
  return after > before + kSettles;
}

Holdings NiProcess::holdings(Context& context) const {
  Descriptors descriptors = open_descriptors(pid_);  // before the report, which adds a connection
  const auto text = context.report();
  UNET_CHECK(text);
  const auto report = nlohmann::json::parse(*text);
  Holdings h{.clients = report["clients"].size(),
             .endpoints = report["endpoints"].size(),
             .channels = report["channels"].size(),
             .names = report["names"].size(),
             .descriptors = std::move(descriptors),
             .mappings = shared_mappings(pid_),
             .held = {}};
  for (const char* part : {"engine", "service"}) {
    for (const auto& [name, value] : report["held"][part].items()) h.held[std::string(part) + "'s " + name] = value.get<uint64_t>();
  }
  for (const char* name : {"channels", "connects"}) {
    h.held[std::string("signalling's ") + name] = report["held"]["signalling"][name].get<uint64_t>();
  }
  for (const auto& user : report["users"]) {
    for (const char* name : {"connections", "endpoints", "emulated", "channels", "memory"}) {
      h.held["user " + user["uid"].dump() + "'s " + name] = user[name].get<uint64_t>();
    }
  }
  for (const auto& endpoint : report["endpoints"]) h.requests += endpoint["requests"].get<size_t>();
  return h;
}

uint64_t NiProcess::frames_out(Context& context, uint64_t wanted) const {
  std::optional<uint64_t> now;
  for (const Nanoseconds start = monotonic_now(); (!now || *now > wanted) && monotonic_now() - start < kHang;) {
    if (now) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto text = context.report();
    UNET_CHECK(text);
    auto report = nlohmann::json::parse(*text);
    const auto& counters = report["ports"][0]["counters"];
    if (counters.contains("buffers_in_use")) now = counters["buffers_in_use"].get<uint64_t>();
  }
  UNET_CHECK(now);
  return *now;
}

Holdings NiProcess::rest(Context& context) const {
  constexpr int kEnough = 10;  // equal results in a row
  Holdings before, now = holdings(context);
  for (int same = 0; same < kEnough; same = now == before ? same + 1 : 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    // The service sleeps only after it has finished all requests that it has answered, also when it lost its core.
    while (!sleeps(pid_)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    before = std::exchange(now, holdings(context));
  }
  return now;
}

Holdings NiProcess::settle(Context& context, const Holdings& wanted) const {
  Holdings now = holdings(context);
  for (int i = 0; i < kHangSeconds * 1000 && now != wanted; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    now = holdings(context);
  }
  return now;
}

}  // namespace unet
