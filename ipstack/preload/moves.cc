// moves.cc - connections that go on in the stack of the child that uses them, so that nobody carries their bytes: what their process does,
// and what the child does.
//
// The child asks by its link for a connection that it has inherited and uses for the first time. Its parent, or whoever had accepted it,
// lets it go if nobody else has it: its program has closed it, which it may be about to do, and no other child has it. Otherwise its bytes
// are carried (relays.h).
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "ipstack/preload/ancestors.h"
#include "ipstack/preload/forks.h"
#include "ipstack/preload/description.h"
#include "ipstack/preload/placement.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/relays.h"

namespace unet::preload {
namespace {

constexpr Nanoseconds kLeavesWithin = 20 * kMillisecond;  // the program that has accepted the connection: else it stays
constexpr Nanoseconds kAgreesWithin = 70 * kMillisecond;  // and its peer, which is asked as well
constexpr Nanoseconds kMeetsWithin = 20 * kMillisecond;   // a channel to it is there
constexpr int kTurnsMost = 16;
constexpr size_t kStreamMost = 64 * 1024 * 1024;          // bytes of a stream's description

int write_stream(std::span<const std::byte> stream) noexcept {
  const int memory = ::memfd_create("unet-stream", MFD_CLOEXEC);
  if (memory < 0) return -1;
  for (size_t done = 0; done < stream.size();) {
    const ssize_t went = real().write(memory, stream.data() + done, stream.size() - done);
    if (went <= 0) return real().close(memory), -1;
    done += static_cast<size_t>(went);
  }
  return memory;
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

// ---- whose connection it is

// The descriptor is this object's.
void Relays::begin_move(const Link& link, File& file, int fd) {
  ++file.holds;
  file.sleepers.push_back(&sleeper_);
  moves_.push_back({.link = link.number, .file = &file, .fd = fd, .since = Host::get().now()});
}

// True: some are to be looked at again soon.
bool Relays::serve_moves() {
  for (size_t i = 0; i < moves_.size();) {
    const Step next = step(moves_[i]);
    if (next == Step::waits) {
      ++i;
      continue;
    }
    const Move move = moves_[i];
    moves_.erase(moves_.begin() + static_cast<ptrdiff_t>(i));
    const auto sleeper = std::find(move.file->sleepers.begin(), move.file->sleepers.end(), &sleeper_);
    move.file->sleepers.erase(sleeper);
    if (next == Step::stays) stay(move);
    else real().close(move.fd);
    let_go(*move.file);
  }
  return !moves_.empty();
}

Relays::Step Relays::step(Move& move) {
  Host& host = Host::get();
  File& file = *move.file;
  const auto link = std::find_if(links_.begin(), links_.end(), [&](const Link& each) { return each.number == move.link; });
  if (link == links_.end() || !file.is_ours()) return Step::stays;
  const auto held = std::find_if(link->held.begin(), link->held.end(), [&](const Held& each) { return each.file == &file; });
  if (held == link->held.end()) return Step::stays;
  sockets::Stack& stack = host.sockets().stack();
  const Nanoseconds age = host.now() - move.since;
  if (!move.begun) return begin_step(move, *link, held->socket);
  if (move.by_wire && move.owned) {
    for (int i = 0; i < kTurnsMost && host.turn(); ++i) {}  // what came here before
  }
  if ((move.by_wire && !move.owned) || !stack.has_agreed(file.socket)) {
    const bool waits = age < kAgreesWithin && !move.owned;
    if (!waits) call_off(move);
    return waits ? Step::waits : Step::stays;
  }
  const HandedMessage said{.kind = HandedMessage::Kind::moved, .socket = held->socket};
  const int memory = write_stream(stack.export_stream(host.leave_socket(file)));
  static_cast<void>(memory >= 0 && send_by_link(link->fd, &said, sizeof said, memory));  // else the peer is told in time
  if (memory >= 0) real().close(memory);
  link->moved_at = host.now();
  moves_left_ -= std::min(moves_left_, 1u);
  link->held.erase(held);
  let_go(file);
  return Step::moved;
}

Relays::Step Relays::begin_step(Move& move, const Link& link, int socket) {
  Host& host = Host::get();
  if (!is_alone(*move.file)) return host.now() - move.since < kLeavesWithin ? Step::waits : Step::stays;
  const int begun = host.sockets().stack().begin_move(move.file->socket);
  if (begun < 0) return Step::stays;
  move.begun = true;
  move.by_wire = begun == 1;
  const HandedMessage said{.kind = HandedMessage::Kind::movable, .socket = socket};
  return !move.by_wire || send_by_link(link.fd, &said, sizeof said) ? Step::waits : Step::stays;
}

void Relays::note_owned(const Link& link, const File& file) noexcept {
  for (Move& each : moves_) {
    if (each.link == link.number && each.file == &file && each.by_wire) each.owned = true;
  }
}

// The other process may own it by now.
void Relays::call_off(const Move& move) {
  sockets::Stack& stack = Host::get().sockets().stack();
  if (!move.by_wire) return stack.cancel_move(move.file->socket);
  const File::Pair names = names_of(*move.file);
  static_cast<void>(stack.own_flow(move.file->socket, names.local.host, names.remote));
}

// One other process has it, which has asked for it, and this one has not.
bool Relays::is_alone(const File& file) const noexcept {
  const auto holds = [&](const std::vector<Link>& links) {
    ptrdiff_t count = 0;
    for (const Link& link : links) {
      count += std::count_if(link.held.begin(), link.held.end(), [&](const Held& each) { return each.file == &file; });
    }
    return count;
  };
  const auto has = [&](const auto& each) { return each.file == &file; };
  return file.fds.empty() && holds(links_) + holds(born_) == 1 && std::none_of(relays_.begin(), relays_.end(), has) &&
         std::count_if(moves_.begin(), moves_.end(), has) == 1;
}

void Relays::stay(const Move& move) {
  const auto link = std::find_if(links_.begin(), links_.end(), [&](const Link& each) { return each.number == move.link; });
  if (link == links_.end()) return void(real().close(move.fd));
  const auto held = std::find_if(link->held.begin(), link->held.end(), [&](const Held& each) { return each.file == move.file; });
  if (held == link->held.end()) return void(real().close(move.fd));
  add_relay(*move.file, move.fd, true);
  relays_.back().link = move.link;
  const HandedMessage said{.kind = HandedMessage::Kind::stays, .socket = held->socket};
  static_cast<void>(send_by_link(link->fd, &said, sizeof said));
}

// Its process has ended.
void Relays::end_moves(const Link& link) {
  for (size_t i = 0; i < moves_.size();) {
    if (moves_[i].link != link.number) {
      ++i;
      continue;
    }
    const Move move = moves_[i];
    moves_.erase(moves_.begin() + static_cast<ptrdiff_t>(i));
    if (move.begun && move.file->is_ours()) call_off(move);
    const auto sleeper = std::find(move.file->sleepers.begin(), move.file->sleepers.end(), &sleeper_);
    move.file->sleepers.erase(sleeper);
    real().close(move.fd);
    let_go(*move.file);
  }
}

bool Relays::may_let_go() noexcept {
  const uint64_t more = (Host::get().now() - moves_since_) / kMoveEvery;
  moves_left_ = static_cast<uint32_t>(std::min<uint64_t>(moves_left_ + more, kMovesMost));
  moves_since_ += more * kMoveEvery;
  return moves_left_ != 0;
}

// ---- who has inherited it

// Whether this process has a stack in which the connection could go on: with a channel to the neighbour that is its peer, or a socket of
// the port that it comes to.
bool Forks::may_receive(File& file) {
  Host& host = Host::get();
  if (!may_move || file.origins.size() != 1 || host.ni_.starts_with("embedded:") || !host.open(true)) return false;
  sockets::Stack& stack = host.sockets().stack();
  const Nanoseconds until = host.now() + kMeetsWithin;
  int met;
  while ((met = stack.seek_neighbour(file.inherited->remote)) == 0 && host.now() < until) {
    static_cast<void>(host.sockets().network().wait(stack, kMillisecond));
    static_cast<void>(host.turn());
  }
  if (met >= 0 || file.inherited->group == 0) return met == 1;
  if (begin_ours(file) < 0) return false;
  if (stack.bind_shared(file.socket, file.inherited->claimed, file.inherited->group) == 0) return true;
  host.close_socket(file);
  return false;
}

// The file in memory that has the stream; -1: it stays.
int Forks::await_stream(const File& file) {
  const File::Origin& origin = file.origins.front();
  UpLink::Answer answer = Ancestors::await_move(origin);
  if (!answer.movable) return answer.memory;
  const File::Inherited& left = *file.inherited;
  if (!file.is_ours() || Host::get().sockets().stack().own_flow(file.socket, left.local.host, left.remote) != 0) return -1;
  static_cast<void>(origin.link->say(LinkMessage::Kind::owned, origin.socket));
  return Ancestors::await_move(origin).memory;
}

bool Forks::receive(File& file, int memory) {
  Host& host = Host::get();
  if (begin_ours(file) < 0) return false;
  sockets::Stack& stack = host.sockets().stack();
  if (file.inherited->options) stack.set_stream_options(file.socket, *file.inherited->options);
  if (stack.import_stream(file.socket, read_stream(memory)) != 0) return false;
  file.origins.clear();
  host.tell(file);
  return true;
}

}  // namespace unet::preload
