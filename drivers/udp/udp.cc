// udp.cc - wraps frames into datagrams and unwraps them.
#include "drivers/udp/udp.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "unet/base/bytes.h"
#include "unet/limits.h"

namespace unet::drivers {
namespace {

constexpr uint32_t kBurstMax = 64;
constexpr uint32_t kHeardAtOnce = 64;  // entries of other queues that are handled per call
constexpr Nanoseconds kTellEvery = 100 * kMillisecond;  // how often a queue announces a peer that signals
constexpr uint32_t kIpv4MtuMin = 576, kIpv6MtuMin = 1280;  // every path supports these

uint32_t headers_of(const IpAddress& ip) noexcept { return (ip.is_ipv4() ? kIpv4Bytes : kIpv6Bytes) + kUdpBytes; }

tl::unexpected<Error> refuse(const std::string& why) { return fail(Errc::invalid_argument, "udp: " + why); }

Status check(const UdpOptions& o, const DriverCapabilities& wire) {
  const bool ipv4 = o.address.is_ipv4();
  const auto same_version = [&](const IpAddress& ip) -> Status {
    if (ip == o.address) return refuse(text_of(ip) + " is this NI's own address");
    if (ip.is_ipv4() == ipv4) return {};
    return refuse(text_of(o.address) + " and " + text_of(ip) + " are not of the same version of IP");
  };
  if (o.prefix == 0 || o.prefix > (ipv4 ? 32 : 128)) return refuse("address: the prefix is 1 to " + std::string(ipv4 ? "32" : "128"));
  if (o.peers.size() > kUdpPeersMax) return refuse("at most " + std::to_string(kUdpPeersMax) + " peers are allowed");
  if (o.gateway) {
    if (Status status = same_version(*o.gateway); !status) return status;
    if (!same_network(*o.gateway, o.address, o.prefix)) {
      return refuse("the gateway " + text_of(*o.gateway) + " is not in the network of " + text_of(o.address) + "/" +
                    std::to_string(o.prefix));
    }
  }
  for (const IpAddress& peer : o.peers) {
    if (Status status = same_version(peer); !status) return status;
    if (o.gateway || same_network(peer, o.address, o.prefix)) continue;
    return refuse("peer " + text_of(peer) + " is in another network: it needs gateway=ADDRESS");
  }
  for (const StaticNeighbour& neighbour : o.neighbours) {
    if (Status status = same_version(neighbour.ip); !status) return status;
    if (same_network(neighbour.ip, o.address, o.prefix)) continue;
    return refuse("neighbour " + text_of(neighbour.ip) + " is not in the network");
  }
  if (o.ports == 0 || o.ports > kUdpPortsMax || o.port > 65536 - o.ports) {
    return refuse("ports: from port " + std::to_string(o.port) + " on 1 to " + std::to_string(kUdpPortsMax) + ", up to 65535, are allowed");
  }
  if (o.port < 1024 && o.port + o.ports > 1024) {
    return refuse("ports: " + std::to_string(o.ports) + " from " + std::to_string(o.port) +
                  " on are not all below 1024, as the first is: everybody may send from the others");
  }
  const uint32_t least = ipv4 ? kIpv4MtuMin : kIpv6MtuMin;
  if (wire.mtu < least) {
    return refuse("the wire's MTU is " + std::to_string(wire.mtu) + ", less than the " + std::to_string(least) + " that IP needs");
  }
  if (o.mtu != 0 && (o.mtu < least || o.mtu > wire.mtu)) {
    return refuse("mtu: " + std::to_string(o.mtu) + " is not " + std::to_string(least) + " to the wire's " + std::to_string(wire.mtu));
  }
  return {};
}

std::string counter_name(DatagramError error) {
  switch (error) {
    case DatagramError::not_ip: return "udp_not_ip";
    case DatagramError::bad_header: return "udp_bad_header";
    case DatagramError::bad_length: return "udp_bad_length";
    case DatagramError::fragment: return "udp_fragment";
    case DatagramError::wrong_address: return "udp_wrong_address";
    case DatagramError::not_udp: return "udp_not_udp";
    case DatagramError::wrong_port: return "udp_wrong_port";
    case DatagramError::bad_checksum: return "udp_bad_checksum";
    case DatagramError::none:
    case DatagramError::count: break;
  }
  return "udp_received";
}

}  // namespace

Result<std::unique_ptr<Driver>> Udp::wrap(std::unique_ptr<Driver> wire, const UdpOptions& options) {
  if (Status status = check(options, wire->capabilities()); !status) return tl::unexpected(status.error());
  return std::unique_ptr<Driver>(new Udp(std::move(wire), options));
}

Udp::Udp(std::unique_ptr<Driver> wire, const UdpOptions& options)
    : Wrapper(std::move(wire)),
      options_(options),
      own_{.mac = wire_->capabilities().address, .ip = options.address, .port = options.port, .ports = options.ports},
      shift_(headers_of(options.address)),
      peers_(static_cast<uint32_t>(options.peers.size()) + options.learned),
      neighbours_(own_, static_cast<uint32_t>(options.peers.size()) + options.learned + 1) {
  capabilities_.address = address_for(options.address);
  capabilities_.mtu = (options.mtu != 0 ? options.mtu : capabilities_.mtu) - shift_;
  const auto gateway = static_cast<uint32_t>(peers_.all().size());
  if (options.gateway) {
    std::optional<MacAddress> mac;
    for (const StaticNeighbour& each : options.neighbours) {
      if (each.ip == *options.gateway) mac = each.mac;
    }
    neighbours_.set(gateway, *options.gateway, mac);
  }
  for (const IpAddress& ip : options.peers) {
    Peer* const known = peers_.find(Peers::key_of(address_for(ip)));
    if (known != nullptr) continue;  // named twice; of two peers with one hash the first counts
    Peer& peer = *add_peer(ip, 0);
    peer.configured = true;
    to_all_.push_back(peer.key);
  }
}

// ---- Arriving

uint32_t Udp::receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept {
  const uint32_t count = wire_->receive(frames, now);
  if (hearsay_ != nullptr) [[unlikely]] listen(now);  // after receive(): other queues may have announced the senders of these frames
  for (uint32_t i = 0; i < count; ++i) {
    if (i + 1 < count) __builtin_prefetch(frames[i + 1].data);
    // Frames that are not for the engine stay in the burst with length 0: the engine counts them and releases them with the others.
    if (!accept(frames[i], now)) frames[i].length = 0;
  }
  if (hearsay_ != nullptr) [[unlikely]] tell_of_peers(frames.first(count), now);
  return count;
}

// Checks a frame and puts the engine's Ethernet header before its payload.
bool Udp::accept(ReceivedFrame& frame, Nanoseconds now) noexcept {
  const Bytes bytes(frame.data, frame.length);
  DatagramView view;
  const DatagramError error = parse_datagram(bytes, own_, view);
  if (error != DatagramError::none) [[unlikely]] {
    const bool may_be = error == DatagramError::not_ip || error == DatagramError::wrong_address || error == DatagramError::not_udp;
    if (!may_be || !meet_neighbour(bytes, now)) ++counters_.errors[static_cast<size_t>(error)];
    return false;
  }
  ++counters_.errors[static_cast<size_t>(DatagramError::none)];
  if (view.from == own_.ip) {  // our own datagram, reflected
    ++counters_.reflected;
    return false;
  }
  const EthernetHeader header{.to = capabilities_.address, .from = address_for(view.from), .type = kEtherType};
  const std::byte* const start = view.payload.data() - kEthernetBytes;
  // The driver's memory is writable, and ours until release() (driver.h).
  std::memcpy(const_cast<std::byte*>(start), &header, sizeof header);
  frame.data = start;
  frame.length = static_cast<uint32_t>(kEthernetBytes + view.payload.size());
  return know_sender(view.from, header.from, {start, frame.length}, now);
}

// Returns false if the sender is not a peer and cannot become one.
bool Udp::know_sender(const IpAddress& ip, const MacAddress& address, Bytes frame, Nanoseconds now) noexcept {
  Peer* const known = peers_.find(Peers::key_of(address));
  if (known != nullptr) {
    known->used = now;
    if (known->ip == ip) return true;
    ++counters_.unknown_peer;  // an address with the same hash
    return false;
  }
  // Only a sender of a whole signalling frame becomes a peer: others have nothing to say to the NI.
  FrameView view;
  if (parse_frame(frame, view) != FrameError::none || view.tag != kSignallingTag) {
    ++counters_.unknown_peer;
    return false;
  }
  if (add_peer(ip, now) != nullptr) return true;
  ++counters_.peers_full;
  return false;
}

// Returns false if the frame is not a message between neighbours.
bool Udp::meet_neighbour(Bytes frame, Nanoseconds now) noexcept {
  Neighbours::Message reply;
  std::optional<uint32_t> changed;
  if (!neighbours_.handle(frame, now, reply, changed)) return false;
  if (hearsay_ != nullptr && reply.length == 0) hearsay_->tell_frame(queue_, frame);  // questions to us are answered here
  if (reply.length != 0 && !send_message(reply, now)) ++counters_.no_frame;
  return true;
}

// Handles what arrived at other queues of the wire.
void Udp::listen(Nanoseconds now) noexcept {
  Hearsay::Item item;
  // Limit the number: others may announce faster than one queue can handle.
  for (uint32_t count = 0; count < kHeardAtOnce && hearsay_->hear(queue_, heard_, item); ++count) {
    if (!item.peer) {
      Neighbours::Message answered_elsewhere;
      std::optional<uint32_t> changed;
      neighbours_.handle({item.frame.data(), item.length}, now, answered_elsewhere, changed);
      continue;
    }
    Peer* peer = peers_.find(Peers::key_of(address_for(*item.peer)));
    if (peer == nullptr) peer = add_peer(*item.peer, now);
    if (peer == nullptr || !(peer->ip == *item.peer)) continue;
    peer->used = now;
    neighbours_.want(peer->neighbour, now);  // so that it is known when this queue sends
  }
}

// Announces to all queues the peers that signal. `frames` were accepted.
void Udp::tell_of_peers(std::span<const ReceivedFrame> frames, Nanoseconds now) noexcept {
  for (const ReceivedFrame& frame : frames) {
    if (frame.length < kFrameOverhead) continue;
    be32 tag;
    std::memcpy(&tag, frame.data + kEthernetBytes + offsetof(FrameHeader, tag), sizeof tag);
    if (Tag{uint32_t{tag}} != kSignallingTag) continue;
    MacAddress from;
    std::memcpy(from.data(), frame.data + offsetof(EthernetHeader, from), from.size());
    Peer* const peer = peers_.find(Peers::key_of(from));
    if (peer == nullptr || now < peer->next_tell) continue;
    peer->next_tell = now + kTellEvery;
    hearsay_->tell_peer(queue_, peer->ip);
  }
}

Peer* Udp::add_peer(const IpAddress& ip, Nanoseconds now) noexcept {
  const auto gateway = static_cast<uint32_t>(peers_.all().size());
  // The gateway's own address uses the gateway's place. With a second place, two places would wait for one station's answers.
  const bool direct = same_network(ip, own_.ip, options_.prefix) && ip != options_.gateway;
  if (!direct && !options_.gateway) return nullptr;
  Peer* const peer = peers_.add(ip, now);
  if (peer == nullptr) return nullptr;
  const uint32_t place = peers_.place_of(*peer);
  peer->neighbour = direct ? place : gateway;
  if (direct) {
    std::optional<MacAddress> mac;
    for (const StaticNeighbour& each : options_.neighbours) {
      if (each.ip == ip) mac = each.mac;
    }
    neighbours_.set(place, ip, mac);
  } else {
    neighbours_.clear(place);
  }
  peer->headers = DatagramTemplate(own_, ip, options_.hop_limit);
  return peer;
}

// ---- Leaving

uint32_t Udp::allocate(std::span<TransmitFrame> frames) noexcept {
  const uint32_t count = wire_->allocate(frames);
  for (TransmitFrame& frame : frames.first(count)) frame.data += shift_;
  return count;
}

Peer* Udp::peer_for(const std::byte* to, Nanoseconds now) noexcept {
  MacAddress address;
  std::memcpy(address.data(), to, address.size());
  if (Peer* const peer = peers_.find(Peers::key_of(address))) return peer;
  if (hearsay_ != nullptr && hearsay_->news(heard_)) {
    listen(now);
    if (Peer* const peer = peers_.find(Peers::key_of(address))) return peer;
  }
  // A restarted NI knows its channels' peers only by these addresses.
  const std::optional<IpAddress> ip = own_.ip.is_ipv4() ? ip_of(address) : std::nullopt;
  return ip ? add_peer(*ip, now) : nullptr;
}

bool Udp::ready(Peer& peer, Nanoseconds now) noexcept {
  peer.used = now;
  neighbours_.want(peer.neighbour, now);
  return neighbours_.known(peer.neighbour);
}

// All frames of a channel get the same port.
uint16_t Udp::port_for(const std::byte* frame) const noexcept {
  if (own_.ports == 1) return 0;
  be32 tag;
  std::memcpy(&tag, frame + kEthernetBytes + offsetof(FrameHeader, tag), sizeof tag);
  return static_cast<uint16_t>((uint32_t{tag} * 0x9e3779b1u >> 16) % own_.ports);
}

uint32_t Udp::transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept {
  uint32_t done = 0;
  while (done < frames.size()) {
    TransmitFrame burst[kBurstMax];
    MacAddress to[kBurstMax];
    uint64_t* reason = nullptr;  // why the frame after the burst is not sent
    uint32_t count = 0;
    // Collect a burst. It ends at a frame to all peers, or at one that cannot be sent.
    for (; count < kBurstMax && done + count < frames.size(); ++count) {
      const TransmitFrame& frame = frames[done + count];
      std::memcpy(to[count].data(), frame.data, to[count].size());
      if (to[count] == kBroadcast) [[unlikely]] break;
      Peer* const peer = peer_for(frame.data, now);
      if (peer == nullptr || !ready(*peer, now)) [[unlikely]] {
        reason = peer == nullptr ? &counters_.unknown_peer : &counters_.no_neighbour;
        break;
      }
      TransmitFrame& out = burst[count] = frame;
      out.data -= shift_;
      out.length += shift_;
      peer->headers.write(out.data, neighbours_.mac(peer->neighbour), frame.length - kEthernetBytes + frame.external_length,
                          frame.external, frame.external_length, port_for(frame.data));
    }
    const uint32_t taken = count == 0 ? 0 : wire_->transmit({burst, count}, now);
    done += taken;
    if (taken < count) {
      // The engine gets the refused frames back, with the headers that it wrote.
      for (uint32_t i = taken; i < count; ++i) {
        const EthernetHeader header{.to = to[i], .from = capabilities_.address, .type = kEtherType};
        std::memcpy(frames[done + i - taken].data, &header, sizeof header);
      }
      break;
    }
    if (done == frames.size() || count == kBurstMax) continue;
    if (reason != nullptr) ++*reason;
    else send_to_all(frames[done], now);
    drop(frames[done]);
    ++done;
  }
  return done;
}

// Sends a copy to each peer. Only signals go to all, and signals are repeated.
void Udp::send_to_all(const TransmitFrame& frame, Nanoseconds now) noexcept {
  for (const uint64_t key : to_all_) {
    Peer& peer = *peers_.find(key);
    TransmitFrame copy;
    if (!ready(peer, now)) {
      ++counters_.no_neighbour;
      continue;
    }
    if (wire_->allocate({&copy, 1}) == 0) {
      ++counters_.no_frame;
      return;
    }
    const uint32_t payload = frame.length - kEthernetBytes;
    copy.length = frame.length + shift_;
    copy_bytes(copy.data + peer.headers.size(), frame.data + kEthernetBytes, payload);
    peer.headers.write(copy.data, neighbours_.mac(peer.neighbour), payload, nullptr, 0);
    if (wire_->transmit({&copy, 1}, now) == 0) {
      wire_->discard({&copy, 1});
      ++counters_.no_frame;
    }
  }
}

void Udp::drop(const TransmitFrame& frame) noexcept {
  if (frame.external != nullptr && frame.completion != nullptr) --frame.completion->pending;
  wire_->discard({&frame, 1});
}

bool Udp::send_message(const Neighbours::Message& message, Nanoseconds now) noexcept {
  TransmitFrame frame;
  if (wire_->allocate({&frame, 1}) == 0) return false;
  std::memcpy(frame.data, message.bytes.data(), message.length);
  frame.length = message.length;
  if (wire_->transmit({&frame, 1}, now) == 1) return true;
  wire_->discard({&frame, 1});
  return false;
}

// Asks for neighbours before they are needed, so that they also learn our address.
void Udp::begin(Nanoseconds now) noexcept {
  begun_ = true;
  // The router learns our address from our questions, and would forget an NI that only receives.
  if (options_.gateway) neighbours_.want_always(static_cast<uint32_t>(peers_.all().size()), now);
  for (const uint64_t key : to_all_) neighbours_.want(peers_.find(key)->neighbour, now);
}

void Udp::poll(Nanoseconds now) noexcept {
  if (!begun_) [[unlikely]] begin(now);
  Neighbours::Message question;
  for (uint32_t i = 0; i < kBurst && now >= neighbours_.next_event() && neighbours_.ask(question, now); ++i) {
    if (!send_message(question, now)) ++counters_.no_frame;
  }
  wire_->poll(now);
}

Nanoseconds Udp::next_event() const noexcept { return std::min(wire_->next_event(), neighbours_.next_event()); }

std::vector<std::unique_ptr<Driver>> Udp::take_queues() {
  std::vector<std::unique_ptr<Driver>> all = wire_->take_queues();
  if (!all.empty()) hearsay_ = std::make_shared<Hearsay>();
  for (uint32_t i = 0; i < all.size(); ++i) {
    std::unique_ptr<Udp> queue(new Udp(std::move(all[i]), options_));
    queue->hearsay_ = hearsay_;
    queue->queue_ = i + 1;
    all[i] = std::move(queue);
  }
  return all;
}

std::vector<DriverCounter> Udp::counters() const {
  std::vector<DriverCounter> all = wire_->counters();
  for (size_t i = 0; i < static_cast<size_t>(DatagramError::count); ++i) {
    all.push_back({counter_name(static_cast<DatagramError>(i)), counters_.errors[i]});
  }
  all.push_back({"udp_unknown_peer", counters_.unknown_peer});
  all.push_back({"udp_peers_full", counters_.peers_full});
  all.push_back({"udp_reflected", counters_.reflected});
  all.push_back({"udp_no_neighbour", counters_.no_neighbour});
  all.push_back({"udp_no_frame", counters_.no_frame});
  all.push_back({"udp_peers", queue_ == 0 ? peers_.used() : 0});  // all queues know the same peers
  all.push_back({"udp_neighbours_asked", neighbours_.asked()});
  all.push_back({"udp_neighbours_answered", neighbours_.answered()});
  return all;
}

std::string Udp::description() const {
  std::string text = "udp from " + text_of(options_.address) + "/" + std::to_string(options_.prefix) + " port " +
                     std::to_string(options_.port);
  if (options_.ports > 1) text += " to " + std::to_string(options_.port + options_.ports - 1);
  if (options_.gateway) text += " by " + text_of(*options_.gateway);
  return text + ", mtu " + std::to_string(capabilities_.mtu) + ", over " + wire_->description();
}

}  // namespace unet::drivers
