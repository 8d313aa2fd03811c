// test_link.h - hosts on one link in a simulation; for tests of ipstack/ip.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "ipstack/ip/host.h"
#include "unet/base/check.h"
#include "unet/base/simulator.h"
#include "unet/wire/udp.h"

namespace unet::ip {

using Frame = std::vector<std::byte>;

// An arrival, with a copy of its payload.
struct Came {
  Arrival::Kind kind;
  IpAddress from, to;
  uint8_t protocol;
  IcmpView icmp;
  IpAddress quoted_to;
  std::vector<std::byte> payload;  // of an echo reply: its data
};

class TestLink : public Simulator, private SimNode {
 public:
  struct Node {
    std::unique_ptr<Host> host;
    std::vector<Came> came;
    bool refuses = true;      // answers TCP, UDP and others with ICMP errors
    uint32_t too_big = 0;     // packet_too_big errors that were believed
  };

  TestLink() : Simulator(1, 10 * kSecond, 1'000'000) { Simulator::add(*this); }

  uint32_t add(HostOptions options) {
    options.mac = mac(nodes.size());
    options.seed = nodes.size() + 1;
    Node node;
    node.host = std::make_unique<Host>(options, now());
    nodes.push_back(std::move(node));
    return static_cast<uint32_t>(nodes.size() - 1);
  }
  static MacAddress mac(size_t index) { return {2, 0, 0, 0, 0, static_cast<uint8_t>(index + 1)}; }
  Host& operator[](uint32_t index) { return *nodes[index].host; }

  // A frame of no host, to all hosts.
  void inject(const Frame& frame, size_t from = ~size_t{0}) {
    frames.push_back(frame);
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (i != from && !lost(frame, i)) take(nodes[i], frame);
    }
  }

  std::vector<Node> nodes;
  std::vector<Frame> frames;  // all frames sent on the link
  bool (*loses)(const Frame& frame, size_t to) = nullptr;

 private:
  bool lost(const Frame& frame, size_t to) const { return loses != nullptr && loses(frame, to); }

  // Each host sends one frame, which arrives at once.
  Nanoseconds process() override {
    Nanoseconds next = kNever;
    for (size_t i = 0; i < nodes.size(); ++i) {
      Frame frame(nodes[i].host->frame_max());
      if (const uint32_t length = nodes[i].host->poll_frame(now(), frame); length != 0) {
        frame.resize(std::max(length, 60u));  // Ethernet's padding
        inject(frame, i);
        wake();
      }
      next = std::min(next, nodes[i].host->next_event());
    }
    return next;
  }

  void take(Node& node, const Frame& frame) {
    // A separate allocation, so that a sanitizer detects reads beyond it.
    const Frame bytes = frame;
    Arrival arrival;
    if (!node.host->handle_frame(bytes, now(), arrival)) return;
    const Bytes payload = arrival.kind == Arrival::Kind::echo_reply ? arrival.icmp.rest : arrival.packet.payload;
    node.came.push_back({arrival.kind, arrival.packet.from, arrival.packet.to, arrival.packet.protocol, arrival.icmp, arrival.quoted.to,
                         {payload.begin(), payload.end()}});
    if (arrival.kind == Arrival::Kind::icmp_error) node.too_big += node.host->believe_too_big(arrival, now()) ? 1 : 0;
    if (arrival.kind != Arrival::Kind::packet || !node.refuses) return;
    if (arrival.packet.protocol == Protocol::kUdp) node.host->refuse_port(arrival, now());
    else node.host->refuse_protocol(arrival, now());
  }
};

}  // namespace unet::ip
