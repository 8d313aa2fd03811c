// socket_proxies.h - sockets of this process that other processes use, too: each child that inherited one, each receiver of one by
// SCM_RIGHTS; used by the helper, forks.cc and passing.cc under the runtime's lock.
//
// The stack is this process's, so its helper carries the bytes between a connection and a Unix socket pair, whose other end the other
// process has. A channel (share_channel.h) leads to each such process: by it that process asks for a connection, and says what it has
// closed. Until then, or the channel's end, the sockets that it inherited stay open, as a descriptor of the kernel's would.
//
// Of a listener the other process makes its own, which shares the port (forks.h). Connections that come to ours all the same, as those
// that came before, are handed over to it if our program does not accept them, when it asks for one as its program comes back for it: so
// none waits for a program that is busy. One that is not taken before its channel ends comes back with every byte: none is carried until
// then. What came to the listener that a process has made its own is theirs who still have it, once that process closes it, or while its
// program is busy and another waits (listener_drain.cc).
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ipstack/preload/runtime.h"
#include "ipstack/preload/shared/share_channel.h"

namespace unet::preload {

// What our program has not taken for so long, though it does so at times, is for those who serve the socket, too.
constexpr Nanoseconds kOursFor = 5 * kMillisecond;
// And a connection that came to what a process has made its own: its helper carries the bytes then, so it should be busy for certain.
constexpr Nanoseconds kBusyFor = 20 * kMillisecond;

class SocketProxies {
 public:
  explicit SocketProxies(int helper_event) noexcept : sleeper_(helper_event) {}
  SocketProxies(const SocketProxies&) = delete;
  SocketProxies& operator=(const SocketProxies&) = delete;

  bool empty() const noexcept { return channels_.empty() && proxies_.empty() && draining_.empty(); }
  // Another process has the other end of `fd`, and these connections and listeners.
  void add_channel(int fd, std::span<File* const> files);
  // Carries bytes between the file, which has a connection, and `fd`, which is this object's from now on. `used` false: the other process
  // has it only because nobody closed it. While it sends nothing, and this process has the connection, too, what comes is this one's.
  void add_proxy(File& file, int fd, bool used);

  // Its descriptors.
  void append(std::vector<int>& all) const;
  // What the helper is to poll, behind what is there.
  void append(std::vector<pollfd>& to) const;
  // What poll() has said of them; whatever can be carried, and handed over. True: this is to be called again soon, whatever happens.
  bool process(std::span<const pollfd> ready);
  // It is also to be called within kLooksAgain.
  bool has_hung() const noexcept;
  static constexpr Nanoseconds kLooksAgain = kSecond;
  // Another process has it, too.
  bool is_held(const File& file) const noexcept;
  // When this process ends:
  // - another one has a connection of its stack, or (`unserved`) not yet what is its own of a listener or a datagram socket: it needs a
  //   orphan process.
  bool is_needed(bool unserved = true) const noexcept;
  bool carries() const noexcept { return is_needed(); }
  // - that is so, and is over soon: the other process has closed the connection, or was handed it.
  bool is_awaited() const noexcept;
  // - what has come to listeners is on its way to those who have them, too.
  bool is_draining() const noexcept { return !draining_.empty(); }

  // ---- listeners that are closed (listener_drain.cc)

  // A listener whose queue is for others, too, when this process no longer has it.
  static bool has_other_owners(const File& file) noexcept;
  // This process closes such a listener, or ends: they get what came to it, and nothing more comes.
  void drain(File& listener);

  // Another process waits for a connection that came to this one's own: it is given one, if the program leaves it for a while.
  void handle_want(File& listener);
  // One has come to such a listener.
  void handle_arrival(File& listener);

  // ---- datagrams (datagrams.cc)

  // Who has the socket reads, or no longer does: whose claim gets what comes is told anew.
  void update_claims(File& file);
  void update_all_claims();
  // A thread of the program waits for it.
  bool is_waited_for(const File& file) const noexcept;
  // What waits at the socket goes to the process that it is from, as this one does not read it.
  static void give_back(File& file);
  // One that came by a channel, behind the message's head.
  static void take_in(File& file, std::span<const std::byte> behind);
  // It is no more.
  void forget_closed(const File& file) noexcept;
  // That one goes back, `behind` being in message_memory().
  static void send_back(const ParentChannel& channel, int socket, std::span<const std::byte> behind) noexcept;

  // A child that begins now may have a stack of its own for a connection: that costs it some milliseconds, so not one for each request.
  bool may_let_go() noexcept;

  // In a child: closes what was the parent's.
  void forget() noexcept;
  // In an orphan process, which has none of the program's threads: nobody holds these, or waits for them, but this object.
  void hold_alone(std::span<File* const> files) const noexcept;

 private:
  struct Held {
    File* file;
    int socket;           // as the other process names it
    bool receives = false;  // not a connection: the other process accepts or reads from its own
    bool wants = false;   // and has asked for a connection, or datagrams, that came to ours
    bool told = false;    // it was told that others want one of those that came to its own
  };
  struct ChildChannel {
    uint64_t number = 0;  // unlike all others
    int fd = -1;
    std::vector<Held> held{};
    std::vector<Held> closed{};  // datagram sockets that it had: some of what it was handed may still come back
    Nanoseconds moved_at = 0;  // a connection has gone there last; 0: none has
    std::vector<int> pairs{};  // connections that it has by other channels' proxies, as the process names them that has begun it
  };
  struct SocketProxy {
    int fd = -1;
    File* file = nullptr;
    bool ended_in = false, ended_out = false;  // no more comes from the pair; from the connection
    bool wants_out = false;                    // the pair had no room
    bool used = true;
    bool told_end = false;                     // by shutdown(), which ends it for all that have it
    bool seems_closed = false;                 // unless a channel tells otherwise
    Nanoseconds hung_since = 0;                // nobody has the pair's other end, and what it left does not go: since then
    uint64_t channel = 0;                         // of who has asked for it, or was handed it; 0: it was passed
    bool handed = false;                       // a connection that came to a listener of ours
    File* listener = nullptr;                  // of one that was handed over and is not taken yet
  };
  // What another process had left, and a third has been handed: it stays here until that one has taken it.
  struct InFlight {
    uint64_t channel;        // of who has it
    int number;           // as it is named there: below 0
    File* listener;
    File::PendingAccept accept;
  };
  // The process at the other end of the channel wants the connection in its own stack. If it stays here, its bytes are carried to `fd`.
  struct Move {
    enum class Stage : uint8_t { waits, peer_asked, child_asked, owned };  // child_asked: to own what comes by a wire
    uint64_t channel;
    File* file;
    int fd;
    Nanoseconds since;
    Nanoseconds until;    // MoveMessage::until
    Stage stage = Stage::waits;
  };
  struct DrainingListener {
    File* file;
    Nanoseconds until, last;  // later if something comes, but not than `last`
  };
  bool process_channel(ChildChannel& channel);
  // moves.cc
  void handle_move(const ChildChannel& channel, File& file, const ParentMessage& said, std::span<const std::byte> behind, int& fd);
  bool process_moves();
  enum class Step : uint8_t { waits, stays, moved };
  Step step(Move& move, ChildChannel& channel, const Held& held);
  Step begin_step(Move& move, const ChildChannel& channel, const Held& held);
  static bool is_alone(const File& file) noexcept;
  static void own_again(const File& file);
  void finish(const Move& move, Step how);
  ChildChannel* find_channel(uint64_t number) noexcept;  // nullptr: its process has ended
  static Held* find_held(ChildChannel* channel, const File& file) noexcept;
  static void erase_held(ChildChannel& channel, const File& file) noexcept {
    std::erase_if(channel.held, [&](const Held& each) { return each.file == &file; });
  }
  void handle(ChildChannel& channel, const ParentMessage& said, std::span<const std::byte> behind, int fd);
  void release(ChildChannel& channel, size_t at);
  static File* closed_there(const ChildChannel& channel, int socket) noexcept;
  void end_channel(ChildChannel& channel);
  void fork_channel(const ChildChannel& channel, int fd);
  bool carry(SocketProxy& proxy, bool hung_up);
  static bool carry_in(SocketProxy& proxy);
  static bool carry_out(SocketProxy& proxy);
  void drop(SocketProxy& proxy) noexcept;
  static void let_go(File& file);

  static std::optional<File::PendingAccept> next_of(File& listener);
  static void put_back(File& listener, const File::PendingAccept& next);
  bool give(const File::PendingAccept& next, int channel, std::span<const std::byte> message);
  void take_passed(File& listener, std::span<const std::byte> behind, int& fd);
  bool drain_closed();
  bool pass_next(File& listener);
  bool give_up_connection(File& listener);
  void ask_back();
  template <typename Is>  // is(const Held&)
  bool has_held(Is is) const noexcept {
    return std::any_of(channels_.begin(), channels_.end(), [&](const ChildChannel& each) {
      return std::any_of(each.held.begin(), each.held.end(), is);
    });
  }
  bool has_unserved() const noexcept;
  bool transfer_accepts();
  bool hand_to(const ChildChannel& channel, Held& held);
  static bool hand_datagrams(const ChildChannel& channel, Held& held);
  static bool may_hand(File& file, bool& later);
  bool give_up();
  bool is_read_here(const File& file) const noexcept;
  size_t served_by(const File& file) const noexcept;
  void take_back(SocketProxy& proxy);
  void take_back(InFlight& passed);
  void forget_told(uint64_t number, const File& listener) noexcept;
  void forget_in_flight(const ChildChannel& channel, int number, bool taken);
  void take_back(const ChildChannel& channel, const File* listener);
  void watch(File& listener);

  std::vector<ChildChannel> channels_;
  std::vector<ChildChannel> new_channels_;  // while what comes by others is read
  size_t turn_ = 0;         // of the channel that is the next to be handed something
  uint64_t last_channel_ = 0;
  std::vector<SocketProxy> proxies_;
  std::vector<DrainingListener> draining_;
  std::vector<Move> moves_;
  std::vector<InFlight> in_flight_;
  int next_in_flight_ = -2;  // -1 is none
  // So many connections may move. Every 50 ms one more may, and one for each child that has had its connection for a second.
  static constexpr uint32_t kMovesMost = 64;
  static constexpr Nanoseconds kMoveEvery = 50 * kMillisecond;
  uint32_t moves_left_ = kMovesMost;
  Nanoseconds moves_since_ = 0;
  Sleeper sleeper_;  // wakes the helper
};

}  // namespace unet::preload
