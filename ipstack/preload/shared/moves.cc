// moves.cc - a connection moves into the stack of the child that uses it. Then no process carries its bytes.
//
// The child asks by its channel when it first uses the connection. The process that has accepted the connection lets it go if its program
// has closed it, and no other process has it. Otherwise that process carries the bytes (socket_proxies.h).
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "ipstack/preload/description.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/shared/adoption.h"
#include "ipstack/preload/shared/parent_channels.h"
#include "ipstack/preload/shared/socket_proxies.h"
#include "ipstack/preload/socket_routing.h"

namespace unet::preload {
namespace {

// The connection stays unless, in time, its program closes it, its peer agrees, and a channel to the peer is open.
constexpr Nanoseconds kLeavesWithin = 20 * kMillisecond, kAgreesWithin = 70 * kMillisecond, kMeetsWithin = 20 * kMillisecond;
constexpr int kPollsMost = 16;
constexpr size_t kStreamMost = 64 * 1024 * 1024;          // most bytes of an exported stream

bool write_stream(int memory, std::span<const std::byte> stream) noexcept {
  for (size_t done = 0; done < stream.size();) {
    const ssize_t went = real().write(memory, stream.data() + done, stream.size() - done);
    if (went <= 0) return false;
    done += static_cast<size_t>(went);
  }
  return true;
}

std::vector<std::byte> read_stream(int memory) {
  struct stat is {};
  if (::fstat(memory, &is) != 0 || is.st_size <= 0 || static_cast<size_t>(is.st_size) > kStreamMost) return {};
  std::vector<std::byte> stream(static_cast<size_t>(is.st_size));
  const ssize_t got = ::pread(memory, stream.data(), stream.size(), 0);
  if (got != is.st_size) return {};
  return stream;
}

}  // namespace

// ---- the process that has the connection

SocketProxies::ChildChannel* SocketProxies::find_channel(uint64_t number) noexcept {
  const auto at = std::find_if(channels_.begin(), channels_.end(), [&](const ChildChannel& each) { return each.number == number; });
  return at == channels_.end() ? nullptr : &*at;
}

SocketProxies::Held* SocketProxies::find_held(ChildChannel* channel, const File& file) noexcept {
  if (channel == nullptr) return nullptr;
  const auto at = std::find_if(channel->held.begin(), channel->held.end(), [&](const Held& each) { return each.file == &file; });
  return at == channel->held.end() ? nullptr : &*at;
}

// Handles move and owned. It sets a descriptor that it takes over to -1.
void SocketProxies::handle_move(const ChildChannel& channel, File& file, const ParentMessage& said, std::span<const std::byte> behind,
                                 int& fd) {
  Nanoseconds until = 0;
  if (behind.size() < sizeof until) return;
  std::memcpy(&until, behind.data(), sizeof until);
  const auto is_it = [&](const Move& each) { return each.channel == channel.number && each.file == &file; };
  const auto at = std::find_if(moves_.begin(), moves_.end(), is_it);
  if (said.kind == ParentMessage::Kind::move) {
    if (fd < 0 || at != moves_.end()) return;
    ++file.holds;
    file.sleepers.push_back(&sleeper_);
    moves_.push_back(
        {.channel = channel.number, .file = &file, .fd = std::exchange(fd, -1), .since = Runtime::get().now(), .until = until});
  } else if (at == moves_.end()) {
    own_again(file);  // the move was cancelled meanwhile
  } else if (at->stage == Move::Stage::child_asked) {
    at->stage = Move::Stage::owned;
    at->until = until;
  }
}

// True: some moves must be processed again soon.
bool SocketProxies::process_moves() {
  for (size_t i = 0; i < moves_.size();) {
    ChildChannel* const channel = find_channel(moves_[i].channel);
    const Held* const held = find_held(channel, *moves_[i].file);
    const Step next = held != nullptr && moves_[i].file->in_stack() ? step(moves_[i], *channel, *held) : Step::stays;
    if (next == Step::waits) {
      ++i;
      continue;
    }
    const Move move = moves_[i];
    moves_.erase(moves_.begin() + static_cast<ptrdiff_t>(i));
    finish(move, next);
  }
  return !moves_.empty();
}

// Performs the next step of a move. The child waits for an answer; in the second half of that time a stream does not leave any more.
SocketProxies::Step SocketProxies::step(Move& move, ChildChannel& channel, const Held& held) {
  using Stage = Move::Stage;
  Runtime& runtime = Runtime::get();
  File& file = *move.file;
  sockets::Stack& stack = runtime.stack();
  if (!is_alone(file)) return move.stage == Stage::waits && runtime.now() - move.since < kLeavesWithin ? Step::waits : Step::stays;
  if (move.stage == Stage::waits) return begin_step(move, channel, held);
  if (move.stage == Stage::owned) {
    for (int i = 0; i < kPollsMost && runtime.poll(); ++i) {}  // takes in segments that arrived here before
  }
  if (move.stage == Stage::child_asked || !stack.moves().has_agreed(file.socket)) {
    return runtime.now() - move.since < kAgreesWithin && move.stage != Stage::owned ? Step::waits : Step::stays;
  }
  const auto [unread, unsent] = stack.queued(file.socket);
  const bool in_time = runtime.now() < move.until && move.until - runtime.now() > ParentChannels::kMovesWithin / 2;
  const bool may = in_time && uint64_t{unread} + unsent < kStreamMost / 2;
  const int memory = may ? out_of_the_way(::memfd_create("unet-stream", MFD_CLOEXEC)) : -1;
  if (memory < 0) return Step::stays;
  const ChildMessage said{.kind = ChildMessage::Kind::moved, .socket = held.socket};
  if (write_stream(memory, stack.moves().export_stream(runtime.table().take_socket(file)))) {
    static_cast<void>(send_on(channel.fd, &said, sizeof said, memory));  // if that fails, the peer learns the end later
  }
  real().close(memory);
  channel.moved_at = runtime.now();
  moves_left_ -= std::min(moves_left_, 1u);
  return Step::moved;
}

SocketProxies::Step SocketProxies::begin_step(Move& move, const ChildChannel& channel, const Held& held) {
  const int begun = Runtime::get().stack().moves().begin(move.file->socket);
  if (begun < 0) return Step::stays;
  move.stage = begun == 0 ? Move::Stage::peer_asked : Move::Stage::child_asked;
  const ChildMessage said{.kind = ChildMessage::Kind::movable, .socket = held.socket};
  return begun == 0 || send_on(channel.fd, &said, sizeof said) ? Step::waits : Step::stays;
}

// Directs arrivals for the connection to this process again.
void SocketProxies::own_again(const File& file) {
  const File::Pair names = names_of(file);
  if (file.in_stack()) static_cast<void>(Runtime::get().stack().moves().own_flow(file.socket, names.local.host, names.remote));
}

// Whether only the channel and the move hold the file: this process has closed it, and no call on it is under way.
bool SocketProxies::is_alone(const File& file) noexcept { return file.fds.empty() && file.holds == 2; }

// Ends a move that was removed from the list.
void SocketProxies::finish(const Move& move, Step how) {
  File& file = *move.file;
  const bool asked = how == Step::stays && file.in_stack() && move.stage == Move::Stage::peer_asked;
  if (asked) Runtime::get().stack().moves().cancel(file.socket);
  if (how == Step::stays && move.stage > Move::Stage::peer_asked) own_again(file);
  if (const auto at = std::find(file.sleepers.begin(), file.sleepers.end(), &sleeper_); at != file.sleepers.end()) file.sleepers.erase(at);
  ChildChannel* const channel = find_channel(move.channel);
  const Held* const held = find_held(channel, file);
  if (how == Step::stays && held != nullptr) {
    add_proxy(file, move.fd, true);
    proxies_.back().channel = move.channel;
    const ChildMessage said{.kind = ChildMessage::Kind::stays, .socket = held->socket};
    static_cast<void>(send_on(channel->fd, &said, sizeof said));
  } else {
    real().close(move.fd);
  }
  if (how == Step::moved && held != nullptr) {
    erase_held(*channel, file);
    --file.holds;
  }
  let_go(file);
}

bool SocketProxies::may_let_go() noexcept {
  const uint64_t more = (Runtime::get().now() - moves_since_) / kMoveEvery;
  moves_left_ = static_cast<uint32_t>(std::min<uint64_t>(moves_left_ + more, kMovesMost));
  moves_since_ += more * kMoveEvery;
  return moves_left_ != 0;
}

// ---- the process that has inherited it

// Whether this process has a stack that can take the connection: one with a channel to its local peer, or with a socket at its port. The
// wait for the channel is no wait by Runtime::block(): that releases the lock, and another thread would adopt the same socket.
bool Adoption::may_receive(File& file) {
  Runtime& runtime = Runtime::get();
  if (!may_move_ || file.origins.size() != 1 || runtime.uses_embedded_interface() || runtime.open(true) < 0) return false;
  sockets::Stack& stack = runtime.stack();
  const Nanoseconds until = runtime.now() + kMeetsWithin;
  int met;
  while ((met = stack.moves().seek_local_peer(file.inherited->remote)) == 0 && runtime.now() < until) {
    runtime.poller().wait(kMillisecond);
    static_cast<void>(runtime.poll());
  }
  if (met >= 0 || file.inherited->group == 0) return met == 1;
  if (open_in_stack(file) < 0) return false;
  if (stack.bind_shared(file.socket, file.inherited->claimed, file.inherited->group) == 0) return true;
  runtime.close_socket(file);
  return false;
}

// Waits for the memory with the stream; -1: the connection stays.
int Adoption::await_stream(const File& file) {
  const File::Origin& origin = file.origins.front();
  ParentChannel::Answer answer = ParentChannels::await_move(origin);
  if (!answer.movable) return answer.memory;
  const File::Inherited& left = *file.inherited;
  if (!file.in_stack() || Runtime::get().stack().moves().own_flow(file.socket, left.local.host, left.remote) != 0) return -1;
  return ParentChannels::ask(ParentMessage::Kind::owned, origin) ? ParentChannels::await_move(origin).memory : -1;
}

bool Adoption::receive(File& file, int memory) {
  Runtime& runtime = Runtime::get();
  if (open_in_stack(file) < 0) return false;
  sockets::Stack& stack = runtime.stack();
  if (file.inherited->options) stack.moves().set_options(file.socket, *file.inherited->options);
  if (stack.moves().import_stream(file.socket, read_stream(memory)) != 0) return false;
  file.moved_by = file.origins.front().channel;
  file.origins.clear();
  runtime.notify(file);
  return true;
}

}  // namespace unet::preload
