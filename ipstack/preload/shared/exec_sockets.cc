// exec_sockets.cc - describes sockets for the next program, and reads their description in it.
#include "ipstack/preload/shared/exec_sockets.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ipstack/preload/description.h"
#include "ipstack/preload/identity.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/runtime.h"
#include "ipstack/preload/shared/adoption.h"
#include "ipstack/preload/shared/socket_proxies.h"

namespace unet::preload {
namespace {

constexpr const char* kVariable = "UNET_SOCKETS_LEFT";

// Channel ends that the new program inherits.
std::vector<int> left_ends;

// Returns "@CHANNEL,SOCKET" for each channel to an owner of the socket.
std::string describe_origins(const File& file, std::span<const ParentChannels::Forked> channels) {
  std::string text;
  for (const File::Origin& each : file.origins) {
    const auto is_it = [&](const ParentChannels::Forked& one) { return one.channel == each.channel; };
    const auto channel = std::find_if(channels.begin(), channels.end(), is_it);
    if (channel != channels.end()) text += "@" + std::to_string(channel->end) + "," + std::to_string(each.socket);
  }
  return text;
}

// Sockets that exec() does not close. Connections that are not pairs by now are lost.
std::vector<std::pair<int, File*>> files_left(Table& table) {
  std::vector<std::pair<int, File*>> left;
  for (int fd = 0; fd < table.end(); ++fd) {
    File* const file = table.file(fd);
    if (file != nullptr && (file->in_stack() || file->inherited) && stays_open(fd) && verify(fd)) left.emplace_back(fd, file);
  }
  return left;
}

// Closes, at their owners, sockets of these channels that the next program does not get.
void disclaim_others(Table& table, std::span<const ParentChannels::Forked> channels, std::span<const std::pair<int, File*>> left) {
  for (int fd = 0; fd < table.end(); ++fd) {
    const File* const file = table.file(fd);
    const auto is_it = [&](const auto& each) { return each.second == file; };
    if (file == nullptr || file->pair || std::any_of(left.begin(), left.end(), is_it)) continue;
    for (const File::Origin& each : file->origins) {
      const ParentMessage said{.kind = ParentMessage::Kind::close, .socket = each.socket};
      for (const ParentChannels::Forked& channel : channels) {
        if (channel.channel == each.channel) static_cast<void>(send_on(channel.end, &said, sizeof said));
      }
    }
  }
}

// Takes "FIRST,SECOND" from the beginning of the text, up to the next '@'.
bool take_numbers(std::string_view& text, int& first, int& second) {
  const std::string_view field = text.substr(0, text.find('@'));
  text.remove_prefix(std::min(field.size() + 1, text.size()));
  const char* const end = field.data() + field.size();
  const auto one = std::from_chars(field.data(), end, first);
  if (one.ec != std::errc{} || one.ptr == end || *one.ptr != ',') return false;
  const auto two = std::from_chars(one.ptr + 1, end, second);
  return two.ec == std::errc{} && two.ptr == end;
}

void read_origins(File& file, std::string_view text, std::vector<std::shared_ptr<ParentChannel>>& channels) {
  int end = -1, socket = -1;
  while (!text.empty() && take_numbers(text, end, socket)) {
    auto channel = std::find_if(channels.begin(), channels.end(), [&](const auto& each) { return each->fd == end; });
    if (channel == channels.end()) {
      auto made = is_socket(end, AF_UNIX, SOCK_SEQPACKET) ? Runtime::get().parents().add(end) : nullptr;
      if (made == nullptr) return;
      real().fcntl(end, F_SETFD, FD_CLOEXEC);
      channel = channels.insert(channels.end(), std::move(made));
    }
    file.origins.push_back({*channel, socket});
  }
}

}  // namespace

std::string ExecSockets::prepare(bool stays) {
  Runtime& runtime = Runtime::get();
  std::vector<File*> joined;  // sockets of this process, which goes on
  std::vector<std::pair<int, File*>> left = files_left(runtime.table());
  for (const auto& [fd, file] : left) {
    if (file->inherited && file->inherited->connected && Adoption::take(*file, ParentMessage::Kind::take_unused)) file->inherited.reset();
    if (stays && file->in_stack() && file->is_joined()) joined.push_back(file);
  }
  std::erase_if(left, [](const auto& each) {
    return is_connection(*each.second) || (!each.second->in_stack() && !each.second->inherited);
  });
  std::vector<ParentChannels::Forked> channels;
  const auto came_by_channel = [](const auto& each) { return !each.second->origins.empty(); };
  if (std::any_of(left.begin(), left.end(), came_by_channel)) channels = runtime.parents().fork();
  disclaim_others(runtime.table(), channels, left);
  int ends[2] = {-1, -1};
  if (!joined.empty() && make_channel(ends)) runtime.proxies().add_channel(ends[0], joined);
  if (ends[1] >= 0) left_ends.push_back(ends[1]);
  for (const ParentChannels::Forked& each : channels) left_ends.push_back(each.end);
  for (const int each : left_ends) real().fcntl(each, F_SETFD, 0);
  std::string text;
  for (const auto& [fd, file] : left) {
    if (file->inherited && file->inherited->connected) continue;
    text += (text.empty() ? "" : ";") + std::to_string(fd) + "," + describe(*file) + describe_origins(*file, channels);
    if (ends[1] >= 0 && file->in_stack() && file->is_joined()) text += "@" + std::to_string(ends[1]) + "," + std::to_string(file->socket);
  }
  return text.empty() ? text : std::string(kVariable) + "=" + text;
}

void ExecSockets::forget() noexcept {
  for (const int each : left_ends) real().close(each);
  left_ends.clear();
}

void ExecSockets::read() {
  const char* const variable = ::secure_getenv(kVariable);
  if (variable == nullptr) return;
  const std::string whole = variable;
  ::unsetenv(kVariable);
  std::vector<std::shared_ptr<ParentChannel>> channels;
  std::string_view text = whole;
  while (!text.empty()) {
    std::string_view each = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(each.size() + 1, text.size()));
    int fd = -1;
    const auto [at, error] = std::from_chars(each.data(), each.data() + each.size(), fd);
    if (error != std::errc{} || at == each.data() + each.size() || *at != ',') return;
    each.remove_prefix(static_cast<size_t>(at - each.data()) + 1);
    const std::string_view words = each.substr(0, each.find('@'));
    each.remove_prefix(std::min(words.size() + 1, each.size()));
    auto file = read_description(words);
    if (file == nullptr || fd < 0 || fd >= Table::kMax) return;
    read_origins(*file, each, channels);
    // The descriptors in the environment may have been closed since by the process that began the program, or be made up.
    if (is_socket(fd, file->domain, file->type)) Runtime::get().table().put(fd, *file.release());
    else ParentChannels::send_to_all(*file, ParentMessage::Kind::close);
  }
}

}  // namespace unet::preload
