// journal_sink.cc - the journal's native protocol: a datagram for each record.
#include "apps/unetd/journal_sink.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

#include <spdlog/sinks/base_sink.h>

#include "unet/mapping.h"

namespace unet::unetd {
namespace {

const char* priority_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
    case spdlog::level::debug: return "7";
    case spdlog::level::info: return "6";
    case spdlog::level::warn: return "4";
    default: return "3";
  }
}

// A name, the length of the value in 8 bytes, and the value, which may have several lines.
void add(std::string& record, std::string_view name, std::string_view value) {
  const uint64_t length = value.size();  // the byte order of the protocol is that of x86-64
  record.append(name).append("\n").append(reinterpret_cast<const char*>(&length), sizeof length).append(value).append("\n");
}

class JournalSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  JournalSink(Descriptor socket, std::string fields) : socket_(std::move(socket)), fields_(std::move(fields)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::string record = fields_;
    add(record, "PRIORITY", priority_of(message.level));
    add(record, "MESSAGE", {message.payload.data(), message.payload.size()});
    // EAGAIN: the journal does not read. The line is lost, as standard error leads to the journal, too, and could block.
    if (send(socket_.get(), record.data(), record.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(message.payload.size()), message.payload.data());
    }
  }
  void flush_() override {}

  Descriptor socket_;
  std::string fields_;
};

}  // namespace

bool logs_to_journal() noexcept {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat status {};
  if (stream == nullptr || fstat(STDERR_FILENO, &status) != 0) return false;
  return stream == std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

std::shared_ptr<spdlog::sinks::sink> journal_sink(const std::string& socket, std::vector<std::pair<std::string, std::string>> fields) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.size() >= sizeof address.sun_path) return nullptr;
  std::memcpy(address.sun_path, socket.data(), socket.size());
  Descriptor sender(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!sender.valid() || connect(sender.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return nullptr;
  std::string record;
  for (const auto& [name, value] : fields) add(record, name, value);
  return std::make_shared<JournalSink>(std::move(sender), std::move(record));
}

}  // namespace unet::unetd
