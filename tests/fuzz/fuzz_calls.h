// fuzz_calls.h - an application's calls to its stack, as the input chooses; for fuzz targets.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "ipstack/sockets/stack.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_peer.h"
#include "unet/base/check.h"

namespace unet {

class FuzzCalls {
 public:
  FuzzCalls(FuzzInput& input, sockets::Stack& stack) : input_(input), stack_(stack) {}

  // Addresses of the peer, and of the host with the stack.
  static constexpr const char *kPeer4 = "10.0.0.2", *kPeer6 = "fd00::2", *kOwn4 = "10.0.0.1", *kOwn6 = "fd00::1";
  static FuzzPeer::Ends ends(bool six) { return {.from = address_of(six ? 1 : 0, 0).host, .to = address_of(six ? 3 : 2, 0).host}; }

  // Options of a stack that is short of some resource.
  static sockets::StackOptions options(uint8_t choice) {
    sockets::StackOptions options;
    options.seed = 1;
    options.sockets = (choice & 1) != 0 ? 8 : 64;
    options.chunk_bytes = 1024;
    options.chunks = 1024;
    options.records = (choice & 2) != 0 ? 16 : 1024;
    options.half_open_max = (choice & 4) != 0 ? 1 : 64;
    options.time_waits_max = (choice & 8) != 0 ? 1 : 64;
    options.tcp.mtu_probing = static_cast<tcp::MtuProbing>((choice >> 4) % 3);
    options.tcp.pacing = (choice & 64) != 0;
    options.tcp.ecn = (choice & 128) != 0 ? tcp::Ecn::on : tcp::Ecn::passive;
    return options;
  }

  static constexpr int kKinds = 10;
  void make(int kind, int socket) {
    switch (kind) {
      case 0: return call(socket);
      case 1: {
        const auto to = input_.take<uint8_t>();
        return static_cast<void>(stack_.connect(socket, address_of(to, static_cast<uint16_t>(1 + input_.take<uint8_t>() % 4))));
      }
      case 2: {
        const Bytes all = data();
        return static_cast<void>(stack_.send(socket, all, all.size() % 3 == 0, all.size() % 5 == 0));
      }
      case 3: return read(socket);
      case 4: return static_cast<void>(stack_.close(socket));
      case 5: return static_cast<void>(stack_.shutdown(socket, static_cast<sockets::Stack::How>(input_.take<uint8_t>() % 3)));
      case 6: return option(socket);
      case 7: {
        const auto to = input_.take<uint8_t>();
        return static_cast<void>(stack_.connect_with(socket, data(), address_of(to, static_cast<uint16_t>(1 + (to >> 6)))));
      }
      case 8: return in_place(socket);
      default: return group(socket);
    }
  }
  // Runs the steps of the input. Between two steps, takes some of the stack's changes.
  template <typename Step>
  void steps(Step step) {
    for (int i = 0; i < 400 && !input_.empty(); ++i) {
      step(input_.take<uint8_t>());
      sockets::Change change;
      for (int told = 0; told < 4 && stack_.next_change(change); ++told) UNET_CHECK(stack_.is_open(change.socket));
    }
  }
  void close_all() {
    for (int i = 0; i < 4096; ++i) {
      if (stack_.is_open(i)) UNET_CHECK(stack_.close(i) == 0);
    }
  }

 private:
  static sockets::Address address_of(uint8_t choice, uint16_t port) {
    static const std::array hosts{*ip::parse_ip(kPeer4), *ip::parse_ip(kPeer6), *ip::parse_ip(kOwn4), *ip::parse_ip(kOwn6)};
    return {hosts[choice & 3], port};
  }
  Bytes data() {
    static const std::vector<std::byte> kData(70'000);
    return Bytes(kData).first(input_.take<uint16_t>());
  }
  void call(int socket) {
    using sockets::Stack, sockets::Type;
    const auto choice = input_.take<uint8_t>();
    switch (choice % 6) {
      case 0: static_cast<void>(stack_.socket((choice & 8) != 0 ? Type::datagram : Type::stream, (choice & 16) != 0)); break;
      case 1: static_cast<void>(stack_.bind(socket, {{}, static_cast<uint16_t>(choice >> 4)})); break;
      case 2: static_cast<void>(stack_.listen(socket, choice >> 3)); break;
      case 3: static_cast<void>(stack_.accept(socket)); break;
      case 4: {
        const Stack::Sending how{.segment = choice, .more = choice % 5 == 0, .hop_limit = static_cast<int16_t>(choice % 3 - 1)};
        static_cast<void>(stack_.send_to(socket, data(), address_of(choice, 1 + choice % 4), how));
        break;
      }
      default:
        stack_.events(socket), stack_.idle();
        if ((choice & 64) != 0) stack_.end_zero_copy(socket);
        static_cast<void>(stack_.take_queued_error(socket));
        urgent(socket, (choice & 128) != 0);
        break;
    }
  }
  void urgent(int socket, bool peek) {
    std::array<std::byte, 2> room;
    const int64_t got = stack_.receive_urgent(socket, room, peek);
    UNET_CHECK(got <= 1);
    static_cast<void>(stack_.is_at_urgent(socket));
    static_cast<void>(stack_.to_urgent(socket));
  }
  void read(int socket) {
    std::vector<std::byte> room(input_.take<uint16_t>());
    if (room.size() % 3 == 0) {
      std::array<Bytes, 4> pieces;
      const int count = stack_.gather(socket, pieces);
      uint32_t bytes = 0;
      for (int i = 0; i < count; ++i) bytes += static_cast<uint32_t>(pieces[static_cast<size_t>(i)].size());
      if (count > 0) stack_.consume(socket, std::min<uint32_t>(bytes, static_cast<uint32_t>(room.size())));
    } else if (stack_.is_datagram(socket)) {
      sockets::Address from;
      static_cast<void>(stack_.receive_from(socket, room, &from, room.size() % 2 == 0));
    } else {
      static_cast<void>(stack_.receive(socket, room, room.size() % 2 == 0));
    }
  }
  void option(int socket) {
    using Option = sockets::Stack::Option;
    const auto which = static_cast<Option>(input_.take<uint8_t>() % sockets::kSocketOptionCount);
    const auto value = input_.take<int16_t>();
    static_cast<void>(stack_.set_option(socket, which, which == Option::congestion ? value & 3 : value));
    static_cast<void>(stack_.option(socket, which));
  }
  void in_place(int socket) {
    MutableBytes room;
    const auto choice = input_.take<uint8_t>();
    if (stack_.reserve(socket, input_.take<uint16_t>(), room) != 0) return;
    std::fill(room.begin(), room.end(), std::byte{choice});
    if (choice % 8 == 0) stack_.run();  // drops the reservation
    const int64_t sent = stack_.commit(socket, static_cast<uint32_t>(room.size() / (1 + choice % 3)));
    UNET_CHECK(choice % 8 == 0 ? sent == -EINVAL : sent >= 0);
  }
  void group(int socket) {
    static const std::array groups{*ip::parse_address("239.1.2.3"), *ip::parse_address("ff05::1"), *ip::parse_address("239.1.2.4")};
    const auto choice = input_.take<uint8_t>();
    const ip::IpAddress& group = groups[choice % groups.size()];
    switch (choice >> 6) {
      case 0: static_cast<void>(stack_.join(socket, group)); break;
      case 1: static_cast<void>(stack_.leave(socket, group)); break;
      case 2: static_cast<void>(stack_.bind(socket, {group, static_cast<uint16_t>(1 + choice % 4)})); break;
      default: static_cast<void>(stack_.send_to(socket, data(), {group, static_cast<uint16_t>(1 + choice % 4)})); break;
    }
  }

  FuzzInput& input_;
  sockets::Stack& stack_;
};

}  // namespace unet
