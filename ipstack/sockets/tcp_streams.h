// tcp_streams.h - streams by TCP: a connection per socket, its segments, its end; used by the stack, which checks the socket.
//
// Calls return what Linux's return, but an error as -errno. A call or a segment may end the socket's life: see advance().
#pragma once

#include <cstdint>
#include <optional>

#include "ipstack/ip/path_mtu.h"
#include "ipstack/sockets/connection_hashes.h"
#include "ipstack/sockets/fast_open_handshake.h"
#include "ipstack/sockets/option_sets.h"
#include "ipstack/sockets/reservation.h"
#include "ipstack/sockets/socket_names.h"
#include "ipstack/sockets/socket_options.h"
#include "ipstack/sockets/stack_core.h"
#include "ipstack/sockets/stack_secrets.h"
#include "ipstack/sockets/tcp_output.h"
#include "ipstack/sockets/time_waits.h"
#include "unet/wire/icmp.h"
#include "unet/wire/tcp.h"

namespace unet::sockets {

inline bool is_opening(tcp::State state) noexcept { return state == tcp::State::syn_sent || state == tcp::State::syn_received; }
// Linux's sockets are closed while their connections are in TIME-WAIT.
inline bool is_over(tcp::State state) noexcept { return state == tcp::State::closed || state == tcp::State::time_wait; }

class TcpStreams {
 public:
  TcpStreams(StackCore& core, SocketNames& names, const StackSecrets& secrets);

  // ---- a connection begins

  // connect(): chooses both ends of the stream to `to`, and its port. 0, or -errno.
  int take_ends(uint32_t index, Address to);
  // The handshake of a socket that knows both its ends. True: it begins with the first data.
  bool open(uint32_t index);
  // A connection for a socket that knows both its ends. It sends nothing yet.
  void make_connection(Socket& socket);

  // ---- calls

  int64_t send(uint32_t index, Bytes data, bool more, bool urgent);
  int64_t receive(uint32_t index, MutableBytes data, bool peek);
  void consume(uint32_t index, uint32_t bytes);
  int reserve(uint32_t index, uint32_t bytes, Reservation& reserved, MutableBytes& room);
  void commit(uint32_t index, uint32_t bytes, const Reservation& reserved);
  // Nothing is to be sent behind what was sent.
  void shut_down(uint32_t index);
  // The application is gone: the connection ends well, or by a reset (SO_LINGER).
  void close(uint32_t index);
  // As Linux's tcp_disconnect(): resets the connection. The socket still has it.
  void disconnect(uint32_t index);
  // The network interface is asked once to send the reset. False: it had no room.
  bool reset(uint32_t index);
  int set_option(uint32_t index, SocketOption option, int64_t value);
  int64_t path_mtu(const Socket& socket);

  // ---- what comes, and what goes

  // After whatever may have changed a connection: what it has to send, its timer, its application. The socket may be gone then.
  void advance(uint32_t index);
  void handle_segment(uint32_t index, const ip::TcpView& segment, uint8_t ecn);
  // An ICMP error. `quoted`: the segment that it is about. One about no segment under way is ignored.
  void handle_error(uint32_t index, const ip::IpAddress& from, const ip::IcmpView& error, Bytes quoted);
  // False: no connection is in TIME-WAIT between these ends, or a new one takes its place; the numbers of that one begin after `begin`.
  bool handle_time_wait(uint32_t hash, const Address& local, const Address& remote, const ip::TcpView& segment,
                        std::optional<tcp::Sequence>& begin);
  // A connection in TIME-WAIT that still has its socket makes way for a new one. The socket goes if its application has closed it.
  void make_way(uint32_t index);
  void run_timer(uint32_t index);
  // Parts of Stack::run(): what waited for chunks that the network has read by now, or behind other messages.
  void take_back_chunks() noexcept {
    if (core_.memory.chunks.has_waiting()) core_.memory.chunks.take_back(core_.network.completed());
  }
  void run_held() {
    if (output_.has_held()) output_.run_held([this](uint32_t index) { advance(index); });
  }

  bool has_held() const noexcept { return output_.has_held(); }
  // Streams need chunks that the network still reads: it does not tell when it has, so run() must look.
  bool waits_for_chunks() const noexcept { return !core_.starved.empty() && core_.memory.chunks.has_waiting(); }
  bool may_notify_starved() const noexcept { return !core_.starved.empty() && core_.memory.chunks.may_send(); }

  TcpOutput& output() noexcept { return output_; }
  TimeWaits& time_waits() noexcept { return time_waits_; }
  const TimeWaits& time_waits() const noexcept { return time_waits_; }
  FastOpen& fast_open() noexcept { return fast_open_; }
  const ConnectionHashes& hashes() const noexcept { return hashes_; }
  // Options of this content.
  SharedOptions options(const tcp::Options& content) { return option_sets_.get(content); }
  const SharedOptions& default_options() const noexcept { return default_options_; }

 private:
  static constexpr uint32_t kNone = StackCore::kNone;

  void take_failure(Socket& socket);
  void embryo_changed(uint32_t index);

  // tcp_stream_ends.cc
  void begin_time_wait(uint32_t index);
  bool is_free(const Address& local, const Address& remote) const noexcept;
  void leave_port(uint32_t index);
  void call_again(Socket& socket);

  StackCore& core_;
  SocketNames& names_;
  const ConnectionHashes hashes_;
  OptionSets option_sets_;
  const SharedOptions default_options_;
  ip::PathMtu path_mtus_;           // that connections have found, for those that come after them
  FastOpen fast_open_;
  TimeWaits time_waits_;
  TcpOutput output_;
};

}  // namespace unet::sockets
