// test_frames.h - sends and receives frames like the engine, over the udp wrapper; for its tests.
#pragma once

#include <catch2/catch.hpp>  // tidy: allow include because only tests include this file
#include <cstring>
#include <string>
#include <vector>

#include "drivers/udp/udp.h"

namespace unet::drivers {

inline UdpOptions options(bool ipv4, int network, int host = 2) {
  UdpOptions o;
  const std::string n = std::to_string(network), h = std::to_string(host);
  o.address = *parse_ip(ipv4 ? "10.0." + n + "." + h : "fd00:" + n + "::" + h);
  o.gateway = *parse_ip(ipv4 ? "10.0." + n + ".1" : "fd00:" + n + "::1");
  o.prefix = ipv4 ? 24 : 64;
  return o;
}

inline std::unique_ptr<Driver> wrap(std::unique_ptr<Driver> wire, const UdpOptions& o) {
  auto made = Udp::wrap(std::move(wire), o);
  if (!made) FAIL(made.error().text);
  return std::move(*made);
}

// Sends a whole frame as the engine writes it.
inline bool send(Driver& port, const MacAddress& to, Tag tag, uint32_t length, Nanoseconds now) {
  TransmitFrame frame;
  if (port.allocate({&frame, 1}) != 1) return false;
  for (uint32_t i = 0; i < length; ++i) frame.data[kFrameOverhead + i] = static_cast<std::byte>(i);
  frame.length = emit_frame(frame.data, {.to = to, .from = port.capabilities().address, .tag = tag, .total = length}, length);
  if (port.transmit({&frame, 1}, now) == 1) return true;
  port.discard({&frame, 1});
  return false;
}

struct Arrived {
  MacAddress to{};
  FrameView view;
  uint32_t length = 0;
};

// Returns the arrived frames that the engine would accept.
inline std::vector<Arrived> received(Driver& port, Nanoseconds now) {
  std::vector<Arrived> all;
  ReceivedFrame frames[8];
  while (const uint32_t count = port.receive(frames, now)) {
    for (uint32_t i = 0; i < count; ++i) {
      Arrived each;
      if (parse_frame({frames[i].data, frames[i].length}, each.view) != FrameError::none) continue;
      std::memcpy(each.to.data(), frames[i].data, 6);
      each.length = each.view.total;
      for (uint32_t b = 0; b < each.length; ++b) REQUIRE(each.view.payload[b] == static_cast<std::byte>(b));
      all.push_back(each);
    }
    port.release({frames, count});
  }
  return all;
}

inline uint64_t counter(const Driver& port, const std::string& name) {
  for (const DriverCounter& each : port.counters()) {
    if (each.name == name) return each.value;
  }
  return ~uint64_t{0};
}

}  // namespace unet::drivers
