// file.h - what this library keeps of a descriptor that is, or may become, ours: a socket, or an epoll set that has some; and the table of
// them by descriptor.
//
// Each of our sockets has a socket of the kernel's at its descriptor, its shadow: so the number is taken, and flags, stat() and /proc are
// right. The shadow is asked for whatever the stack does not know, and takes part where a socket belongs to both, as a listener at all
// addresses does.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "ipstack/sockets/address.h"
#include "ipstack/sockets/stream_options.h"
#include "unet/base/time.h"

namespace unet::preload {

class EpollSet;
struct Sleeper;
struct Registration;
struct ParentChannel;

struct Entry {
  enum class Kind : uint8_t { socket, epoll } kind;
  std::vector<int> fds{};  // that name it
  int holds = 0;           // calls that use it while they do not have the lock
  std::vector<Registration*> registrations{};  // in epoll sets

  explicit Entry(Kind what) : kind(what) {}
  virtual ~Entry() = default;
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
};

// An open socket, whatever the number of descriptors that name it.
struct File : Entry {
  // A socket option, for the stack's socket that is still to be made, or to be made again.
  struct Option {
    int level, name;
    std::vector<std::byte> value;
  };
  // A parent's socket, from which the child opens its own when it first uses it.
  struct Inherited {
    bool listens = false, connected = false;
    int backlog = 0;
    sockets::Address local{}, remote{};
    uint64_t group = 0;          // of the claim of its port,
    sockets::Address claimed{};  // which is of that address
    std::optional<sockets::StreamOptions> options{};  // of a connection
  };

  // Control data for recvmsg(), as socket options have asked.
  struct Tells {
    int time = 0;                // the one of SO_TIMESTAMP's options that was set last; 0: none
    bool lost = false;           // SO_RXQ_OVFL
    bool unread = false;         // TCP_INQ
    bool destination4 = false, hops4 = false, class4 = false;  // IP_PKTINFO, IP_RECVTTL, IP_RECVTOS
    bool destination6 = false, hops6 = false, class6 = false;  // IPV6_RECVPKTINFO, IPV6_RECVHOPLIMIT, IPV6_RECVTCLASS
  };

  // The names of a connection. A file with a Pair: another process's stack has the connection, and our descriptor is a socket pair to that
  // process (socket_proxies.h).
  struct Pair {
    sockets::Address local{}, remote{};
  };

  // Whether a datagram socket that several processes have gets what comes for a process: nothing, what comes of some flows, or all.
  enum class Part : uint8_t { none, share, all };

  // A socket of another process, from which this one is: inherited, or passed (parent_channels.h).
  struct Origin {
    std::shared_ptr<ParentChannel> channel{};
    int socket = -1;             // as that process numbers it
    Part part = Part::none;      // of a datagram socket: what that process says of ours
  };

  // A connection that the helper of the owner's stack accepted, for a process that accepts from the listener.
  struct PendingAccept {
    int fd = -1;                 // a pair's end, of another process's,
    Pair names{};
    Origin from{};               // the sender, and its number there; none if another process passed it on (listener_drain.cc)
    File* own = nullptr;         // else: of this process's stack, which holds it
  };

  File(int domain_, int type_) : Entry(Kind::socket), domain(domain_), type(type_) {}

  bool is_stream() const noexcept { return type == SOCK_STREAM; }
  bool in_stack() const noexcept { return socket >= 0; }
  // Each process that has such a socket opens one of its own at the same port.
  bool is_joined() const noexcept { return listens || !is_stream(); }
  int fd() const noexcept { return fds.front(); }
  // A datagram socket that may become ours by what is sent next, be it by another thread while this one waits for what comes.
  bool is_undecided() const noexcept { return !is_stream() && !in_stack() && kernel && !lost && !left_to_kernel && !inherited; }
  // Until there is a network interface; of a connection there is nothing to wait for.
  bool waits_back() const noexcept { return inherited && !inherited->connected && !in_stack(); }

  const int domain, type;        // AF_INET or AF_INET6; SOCK_STREAM or SOCK_DGRAM
  int socket = -1;               // the stack's; -1: it has none of it
  uint64_t shadow = 0;           // the inode of what is at its descriptors
  bool kernel = true;            // the shadow takes part: it is not decided yet, or the socket is both's
  uint32_t scope = 0;            // the program's number of the link of a link-local address
  bool kernel_peer = false;      // a datagram socket of both is connected by the kernel
  bool bound = false;            // by bind(), at both if both take part
  bool listens = false;
  bool draining = false;         // a listener closed here, which has other owners: they get its queue (listener_drain.cc)
  bool lost = false;             // its connection, with the network interface
  bool left_to_kernel = false;   // to the kernel, for good: none of its descriptors is in the table any more
  int error = 0;                 // of one that is lost: what was not told
  bool receives = false;           // its program accepts or reads from it, or waits for it
  bool in_other_process = false;          // a parent or a child has its descriptors, and the kernel's part of epoll sets, too
  bool wanted = false;           // of a listener from elsewhere: another process waits for a connection
  bool asked = false;            // those it is from have been asked for a connection, or datagrams, and none was taken since
  bool nonblocking = false;
  int async_fd = -1;           // O_ASYNC: the descriptor by which it was said; -1: it is not
  static constexpr uint32_t kUnconnected = EPOLLOUT | EPOLLHUP;  // as `signalled`
  uint32_t signalled = 0;        // of the events that O_ASYNC tells of: those that have been, and are still; but room, if a call found none
  int backlog = 0;
  int receive_low_water = 1;         // SO_RCVLOWAT
  int reported_receive_buffer = 0;  // SO_RCVBUF as Linux reports it; 0: the program has not set it
  int reported_send_buffer = 0;     // SO_SNDBUF
  Tells tells{};
  Nanoseconds received_at = 0;          // the datagram that was received last, when; 0: there was none, or it was the kernel's
  Nanoseconds receive_timeout = 0, send_timeout = 0;  // SO_RCVTIMEO, SO_SNDTIMEO; 0: for ever
  std::vector<Option> options{};
  std::vector<Sleeper*> sleepers{};  // threads that wait for it
  std::optional<Inherited> inherited{};
  std::optional<Pair> pair{};
  std::vector<Origin> origins{};
  std::shared_ptr<ParentChannel> moved_by{};  // its end tells that process how long the connection was needed here
  std::deque<PendingAccept> pending_accepts{};
  Nanoseconds unserved_since = 0;  // a connection or a datagram has come, and this process does not take it
  Nanoseconds busy_since = 0;      // the same of a `wanted` listener, for its owner
};

// Entries by descriptor, and files by their socket in the stack. find() needs no lock. All else needs the runtime's, also use of an entry.
class Table {
 public:
  static constexpr int kMax = 1 << 20;

  Entry* find(int fd) const noexcept { return fd >= 0 && fd < kMax ? entries_[fd].load(std::memory_order_acquire) : nullptr; }
  File* file(int fd) const noexcept { return as<File>(fd, Entry::Kind::socket); }
  template <typename T>
  T* as(int fd, Entry::Kind kind) const noexcept {
    Entry* const entry = find(fd);
    return entry != nullptr && entry->kind == kind ? static_cast<T*>(entry) : nullptr;
  }
  void put(int fd, Entry& entry);
  // Behind the last descriptor that was ever one of ours.
  int end() const noexcept { return end_; }
  // The descriptor names nothing of ours any longer; the entry, if no other does either: it is the caller's then.
  Entry* take(int fd) noexcept;

  // The file has this socket of the stack from now on.
  void give_socket(File& file, int socket);
  // The file has no socket any longer. Returns the socket, which is the caller's then.
  int take_socket(File& file) noexcept;
  void forget_sockets() noexcept { by_socket_.clear(); }
  // By the stack's number of their socket; null: there is none.
  const std::vector<File*>& by_socket() const noexcept { return by_socket_; }
  File* by_socket(int socket) const noexcept {
    const auto index = static_cast<size_t>(socket);
    return index < by_socket_.size() ? by_socket_[index] : nullptr;
  }

 private:
  int end_ = 0;
  std::atomic<Entry*> entries_[kMax];
  std::vector<File*> by_socket_;
};

}  // namespace unet::preload
