// file.h - the state of each descriptor that names a socket of the stack, a socket that may become one, or an epoll set; and the table of
// descriptors.
//
// Each such socket has a kernel socket at its descriptor, its shadow. The shadow occupies the number, so flags, stat() and /proc are right.
// It answers what the stack does not know. A dual socket, as a listener at all addresses, uses it beside the stack.
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

// What a descriptor names: a socket or an epoll set.
struct Entry {
  enum class Kind : uint8_t { socket, epoll } kind;
  std::vector<int> fds{};                      // descriptors that name it
  int holds = 0;                               // calls and objects that need it although they do not have the lock
  std::vector<Registration*> registrations{};  // in epoll sets

  explicit Entry(Kind what) : kind(what) {}
  virtual ~Entry() = default;
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
};

// A socket, as the kernel's struct file: several descriptors may name it after dup().
struct File : Entry {
  // A socket option, for a socket that the stack does not have yet, or has to make again.
  struct Option {
    int level, name;
    std::vector<std::byte> value;
  };
  // A socket of a parent, from which this process opens its own at the first use (adoption.h).
  struct Inherited {
    bool listens = false, connected = false;
    int backlog = 0;
    sockets::Address local{}, remote{};
    uint64_t group = 0;          // group of the claim of its port
    sockets::Address claimed{};  // address of that claim
    std::optional<sockets::StreamOptions> options{};  // options of a connection
  };

  // Control data that the program has asked for by socket options; recvmsg() has it.
  struct Tells {
    int time = 0;         // the option of SO_TIMESTAMP's kind that was set last; 0: none
    bool lost = false;    // SO_RXQ_OVFL
    bool unread = false;  // TCP_INQ
    bool destination4 = false, hops4 = false, class4 = false;  // IP_PKTINFO, IP_RECVTTL, IP_RECVTOS
    bool destination6 = false, hops6 = false, class6 = false;  // IPV6_RECVPKTINFO, IPV6_RECVHOPLIMIT, IPV6_RECVTCLASS
  };

  // The addresses of a connection that another process's stack has. A socket pair to that process is at its descriptors (socket_proxies.h).
  struct Pair {
    sockets::Address local{}, remote{};
  };

  // The flows that a datagram socket of several processes takes for this process: none, some (its share), or all.
  enum class Part : uint8_t { none, share, all };

  // The socket of another process that this one was inherited from, or passed by (parent_channels.h).
  struct Origin {
    std::shared_ptr<ParentChannel> channel{};
    int socket = -1;         // its number in that process's stack
    Part part = Part::none;  // what that process allows a datagram socket of this one
  };

  // A connection that the helper of the process with the listener's stack has accepted, for a process that accepts.
  struct PendingAccept {
    int fd = -1;          // the end of a pair to another process; -1: `own`
    Pair names{};
    Origin from{};        // the sender, and the connection's number there; none: another process has passed it on (listener_drain.cc)
    File* own = nullptr;  // the connection in this process's stack
  };

  File(int domain_, int type_) : Entry(Kind::socket), domain(domain_), type(type_) {}

  bool is_stream() const noexcept { return type == SOCK_STREAM; }
  bool in_stack() const noexcept { return socket >= 0; }
  // Several processes may each have such a socket in their stacks, at one port.
  bool is_joined() const noexcept { return listens || !is_stream(); }
  int fd() const noexcept { return fds.front(); }
  // A datagram socket of the kernel. The next send may give it to the stack, also while another thread waits to receive.
  bool is_undecided() const noexcept { return !is_stream() && !in_stack() && kernel && !lost && !left_to_kernel && !inherited; }
  // It waits for the network interface. A connection would wait in vain.
  bool waits_back() const noexcept { return inherited && !inherited->connected && !in_stack(); }

  const int domain, type;       // AF_INET or AF_INET6; SOCK_STREAM or SOCK_DGRAM
  int socket = -1;              // its number in the stack; -1: the stack does not have it
  uint64_t shadow = 0;          // the inode of its shadow, or of its pair
  bool kernel = true;           // the shadow takes part: the socket is undecided, or dual
  uint32_t scope = 0;           // the link of a link-local address, as the program numbers it
  bool kernel_peer = false;     // a dual datagram socket that the kernel has connected
  bool bound = false;           // by bind(), in each of its backends
  bool listens = false;
  bool draining = false;        // a closed listener; its queue goes to its other owners (listener_drain.cc)
  bool lost = false;            // a connection that ended with the network interface
  bool left_to_kernel = false;  // for good: the table has none of its descriptors any longer
  int error = 0;                // of a lost one, until the program has learnt it

  // ---- shared with other processes

  std::optional<Inherited> inherited{};
  std::optional<Pair> pair{};
  std::vector<Origin> origins{};
  std::shared_ptr<ParentChannel> moved_by{};  // the channel that a connection moved by; its end tells how long the connection was used
  std::deque<PendingAccept> pending_accepts{};
  bool in_other_process = false;   // a parent or a child has its descriptors, and its place in epoll sets of the kernel
  bool receives = false;           // this program accepts or reads from it, or waits for it (reception.h)
  bool asked = false;              // its origins were asked for an arrival, and this program has taken none since
  bool wanted = false;             // a listener with origins: another process waits for a connection
  Nanoseconds unserved_since = 0;  // since when an arrival waits here that this program has not taken; 0: none
  Nanoseconds busy_since = 0;      // since when a connection waits at a `wanted` listener; 0: none

  // ---- options and waiting threads

  bool nonblocking = false;
  int async_fd = -1;                // the descriptor by which the program has set O_ASYNC; -1: it is off
  static constexpr uint32_t kUnconnected = EPOLLOUT | EPOLLHUP;  // `signalled` of an unconnected socket
  uint32_t signalled = 0;           // events that O_ASYNC has signalled and that last; without EPOLLOUT if a call found no room
  int backlog = 0;
  int receive_low_water = 1;        // SO_RCVLOWAT
  int reported_receive_buffer = 0;  // SO_RCVBUF as Linux reports it; 0: the program has not set it
  int reported_send_buffer = 0;     // SO_SNDBUF
  Tells tells{};
  Nanoseconds received_at = 0;      // arrival of the datagram that was received last; 0: none, or the kernel's
  Nanoseconds receive_timeout = 0, send_timeout = 0;  // SO_RCVTIMEO, SO_SNDTIMEO; 0: none
  std::vector<Option> options{};
  std::vector<Sleeper*> sleepers{};  // threads that wait for it
};

// Entries by descriptor, and files by their socket in the stack. find() needs no lock. All else needs the runtime's, also use of an entry.
class Table {
 public:
  static constexpr int kMax = 1 << 20;

  Entry* find(int fd) const noexcept {
    return fd >= 0 && fd < kMax ? std::atomic_ref(entries_[fd]).load(std::memory_order_acquire) : nullptr;
  }
  File* file(int fd) const noexcept { return as<File>(fd, Entry::Kind::socket); }
  template <typename T>
  T* as(int fd, Entry::Kind kind) const noexcept {
    Entry* const entry = find(fd);
    return entry != nullptr && entry->kind == kind ? static_cast<T*>(entry) : nullptr;
  }
  void put(int fd, Entry& entry);
  // One more than the highest descriptor that ever had an entry.
  int end() const noexcept { return end_; }
  // The descriptor has no entry any longer. Returns the entry if that was its last descriptor; the caller then owns it.
  Entry* take(int fd) noexcept;

  // The file has this socket of the stack from now on.
  void give_socket(File& file, int socket);
  // The file has no socket any longer. Returns the socket, which the caller then owns.
  int take_socket(File& file) noexcept;
  void forget_sockets() noexcept { by_socket_.clear(); }
  // By the stack's number of their socket; null: there is none.
  const std::vector<File*>& by_socket() const noexcept { return by_socket_; }
  File* by_socket(int socket) const noexcept {
    const auto index = static_cast<size_t>(socket);
    return index < by_socket_.size() ? by_socket_[index] : nullptr;
  }

 private:
  void set(int fd, Entry* entry) noexcept { std::atomic_ref(entries_[fd]).store(entry, std::memory_order_release); }

  static constinit Entry* entries_[kMax];  // by descriptor; static and zero, so that only pages in use take memory
  int end_ = 0;
  std::vector<File*> by_socket_;
};

}  // namespace unet::preload
