// socket_proxies.h - sockets of this process that other processes use, too, after fork() or SCM_RIGHTS; used by the helper, forks.cc and
// passing.cc under the runtime's lock.
//
// The stack is this process's, so its helper carries the bytes between a connection and one end of a Unix socket pair. The other process
// has the other end. A channel (share_channel.h) leads to each such process, by which the process asks for connections and reports closed
// sockets. A socket stays open until the process closes it or the channel ends, as with descriptors of the kernel.
//
// A child opens a listener of its own that shares the port (adoption.h). Connections that still arrive at our listener are transferred to a
// child that asks for one, if our program does not accept them, so none waits for a busy program. No byte is carried before the child takes
// the connection. If the child's channel ends first, the connection returns whole. Connections that arrived at a child's listener go to the
// other owners when the child closes it, or while its program is busy and another process waits (listener_drain.cc).
//
// A connection that this process accepted or had before fork():
//
//   held ---take, take_unused-----------------------> proxied ---both ends closed, reset--------------------> gone
//   held ---move--> waits --> peer_asked -----------> moved: the child's stack has it (moves.cc)
//                     \--> child_asked --> owned ---> moved
//                      any of these, too late -------> proxied
//   held ---close, end of the channel, and closed here-----------------------------------------------------> gone
//
// A connection in the accept queue of a listener that several processes have (accept_transfer.cc, listener_drain.cc):
//
//   queued in the stack ---accept() here-----------------------> this program's
//   queued in the stack ---a child wants one, none taken here--> sent to the child ---took--> proxied
//   sent to the child   ---end of the channel, close-----------> pending accept here (File::pending_accepts)
//   child's queue       ---child closes, or is busy: passed----> pending accept here
//   pending accept      ---accept() here-----------------------> this program's
//   pending accept      ---another child wants one-------------> of this stack: sent to the child, as above
//   pending accept      ---another child wants one-------------> passed on to here: in flight ---took--> that child's
//   in flight           ---refused, end of the channel---------> pending accept
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

// If this program receives but has left an arrival for this long, the arrival goes to another process that receives from the socket.
constexpr Nanoseconds kOursFor = 5 * kMillisecond;
// If a child's program has left a connection at the child's own listener for this long, another process gets it. The child's helper then
// carries its bytes, so the child should be busy for certain.
constexpr Nanoseconds kBusyFor = 20 * kMillisecond;

class SocketProxies {
 public:
  explicit SocketProxies(int helper_event) noexcept : sleeper_(helper_event) {}
  SocketProxies(const SocketProxies&) = delete;
  SocketProxies& operator=(const SocketProxies&) = delete;

  bool empty() const noexcept { return channels_.empty() && proxies_.empty() && draining_.empty(); }
  // Adds a channel: the process at the other end of `fd` has these connections and listeners, too.
  void add_channel(int fd, std::span<File* const> files);
  // Adds a channel for one socket, and kicks the helper.
  void share(File& file, int fd);
  // Carries bytes between the file's connection and `fd`, and owns `fd` from now on. `used` false: the other process may only have failed
  // to close the connection. While it sends nothing, and this process has the connection, too, this process reads the arrivals.
  void add_proxy(File& file, int fd, bool used);
  // add_proxy(), and kicks the helper.
  void proxy(File& file, int fd, bool used = true);

  // Appends the descriptors of this object.
  void append(std::vector<int>& all) const;
  // Appends the descriptors that the helper polls.
  void append(std::vector<pollfd>& to) const;
  // Processes what poll() found ready, carries bytes, and transfers connections and datagrams. True: call this again soon in any case.
  bool process(std::span<const pollfd> ready);
  // Whether process() must be called within kLooksAgain.
  bool has_hung() const noexcept;
  static constexpr Nanoseconds kLooksAgain = kSecond;
  // Whether another process has the file, too.
  bool is_held(const File& file) const noexcept;
  // When this process ends: another process has a connection of its stack, or (`unserved`) has not yet opened a listener or datagram socket
  // of its own. Then an orphan process must go on.
  bool is_needed(bool unserved = true) const noexcept;
  bool carries() const noexcept { return is_needed(); }
  // Another process is about to take over: it has closed or was sent a connection, or has not yet opened a listener or datagram socket of
  // its own.
  bool is_awaited() const noexcept;
  // Whether connections of closed listeners are on their way to other owners.
  bool is_draining() const noexcept { return !draining_.empty(); }

  // ---- listeners that are closed (listener_drain.cc)

  // Whether the listener's queue goes to other owners when this process closes it.
  static bool has_other_owners(const File& file) noexcept;
  // This process closes such a listener, or ends: stops new connections, and passes the queue on.
  void drain(File& listener);

  // Another process waits for a connection of this one's listener. It gets one that the program does not accept for a while.
  void handle_want(File& listener);
  // A connection has arrived at such a listener.
  void handle_arrival(File& listener);

  // ---- datagrams (datagrams.cc)

  // Call when a process began or stopped to read the socket: tells each process whether its claim takes new flows.
  void update_claims(File& file);
  void update_all_claims();
  // Whether a thread of the program waits for the file.
  bool is_waited_for(const File& file) const noexcept;
  // Gives unread datagrams to the owner of the socket, as this program does not read them.
  static void give_back(File& file);
  // Queues a datagram that came by a channel; `behind`: the bytes behind the message's head.
  static void take_in(File& file, std::span<const std::byte> behind);
  // The file is about to be deleted.
  void forget_closed(const File& file) noexcept;
  // Sends a datagram back; `behind` is in message_memory().
  static void send_back(const ParentChannel& channel, int socket, std::span<const std::byte> behind) noexcept;

  // Whether a child that begins now may open a stack for a moved connection. A stack costs some milliseconds, so children must not open one
  // for each request.
  bool may_let_go() noexcept;

  // In a child: closes the parent's descriptors.
  void forget() noexcept;
  // In an orphan process, which has none of the program's threads: only this object holds these files, and waits for them.
  void hold_alone(std::span<File* const> files) const noexcept;

 private:
  struct Held {
    File* file;
    int socket;             // its number at the other process
    bool receives = false;  // a listener or datagram socket: the other process accepts or reads at a socket of its own
    bool wants = false;     // the other process waits for connections or datagrams that arrive at our socket
    bool told = false;      // the other process knows that another one waits for a connection at its socket
  };
  struct ChildChannel {
    uint64_t number = 0;  // unique number of the channel
    int fd = -1;
    std::vector<Held> held{};
    std::vector<Held> closed{};  // datagram sockets that it has closed; it may still return datagrams that it was sent
    Nanoseconds moved_at = 0;  // when a connection last moved to it; 0: never
    std::vector<int> pairs{};  // numbers of connections that it shares by its parent's proxies, as that parent numbers them
  };
  struct SocketProxy {
    int fd = -1;
    File* file = nullptr;
    bool ended_in = false, ended_out = false;  // the pair has ended; the connection has ended
    bool wants_out = false;                    // waits for room in the pair
    bool used = true;                          // `used` of add_proxy()
    bool told_end = false;                     // shutdown() was called, which ends it for all owners
    bool seems_closed = false;                 // the pair's other end looks closed, and no channel has reported a shutdown()
    Nanoseconds hung_since = 0;                // since when the pair's other end is closed while its last bytes find no room; 0: not
    uint64_t channel = 0;                      // channel of the process that asked for or was sent the connection; 0: passed by SCM_RIGHTS
    bool handed = false;                       // the connection arrived at our listener and was sent to a child
    File* listener = nullptr;                  // the listener of a connection that was sent and is not taken yet
  };
  // A connection that one child passed to this process, which sent it to another child. Its descriptor stays here until that child takes
  // it.
  struct InFlight {
    uint64_t channel;     // channel of the process that it was sent to
    int number;           // its number there, a negative one
    File* listener;
    File::PendingAccept accept;
  };
  // The process at the other end of the channel asked for the connection in its own stack. If the connection stays here, its bytes are
  // carried to `fd`.
  struct Move {
    enum class Stage : uint8_t { waits, peer_asked, child_asked, owned };  // child_asked: the child must take over the flow in the NI
    uint64_t channel;
    File* file;
    int fd;
    Nanoseconds since;
    Nanoseconds until;    // MoveMessage::until
    Stage stage = Stage::waits;
  };
  struct DrainingListener {
    File* file;
    Nanoseconds until, last;  // end of draining: `until` moves with each arrival, up to `last`
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
  ChildChannel* find_channel(uint64_t number) noexcept;  // nullptr: the process has ended
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
  std::vector<ChildChannel> new_channels_;  // added while messages of other channels are read
  size_t turn_ = 0;         // index of the channel that is next to get an arrival
  uint64_t last_channel_ = 0;
  std::vector<SocketProxy> proxies_;
  std::vector<DrainingListener> draining_;
  std::vector<Move> moves_;
  std::vector<InFlight> in_flight_;
  int next_in_flight_ = -2;  // counts down; -1 means none
  // At most kMovesMost connections may move. Every 50 ms one more may, and one for each child that has had its connection for a second.
  static constexpr uint32_t kMovesMost = 64;
  static constexpr Nanoseconds kMoveEvery = 50 * kMillisecond;
  uint32_t moves_left_ = kMovesMost;
  Nanoseconds moves_since_ = 0;
  Sleeper sleeper_;  // wakes the helper
};

}  // namespace unet::preload
