// test_network.h - network interfaces in a simulation, each with stacks of several applications; for tests.
//
// A message travels as it was sent: nothing is cut. A message to an address of the same interface is never lost and arrives at once.
#pragma once

#include <algorithm>
#include <cerrno>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ipstack/sockets/stack.h"
#include "ipstack/tcp/reset.h"
#include "unet/base/check.h"
#include "unet/base/simulator.h"

namespace unet::sockets::sim {

class World : public Simulator, private SimNode {
 public:
  // One application's side of a network interface.
  class Port : public Network {
   public:
    Port(World& world, uint32_t interface) : world_(world), interface_(interface) {}

    Claimed claim(const IpClaim& claim) override {
      auto& claims = world_.interfaces_[interface_].claims;
      const auto joins = [&](const std::vector<Owner>& owners) {
        return claim.group != 0 && std::all_of(owners.begin(), owners.end(), [&](const Owner& each) {
          return each.group == claim.group && each.port != this;
        });
      };
      if (claim.local.is_multicast()) {
        const uint32_t number = ++world_.last_claim_;
        world_.interfaces_[interface_].groups.push_back({claim.local, claim.port, {this, number, 0, AcceptsNewFlows::yes}});
        return {.claim = number, .port = claim.port};
      }
      uint16_t first = claim.port;
      if (first == 0) {
        for (first = 49'152;; first = static_cast<uint16_t>(first + claim.ports)) {
          if (uint32_t{first} + claim.ports > 65'535) return {.error = EADDRINUSE};
          const auto at = claims.lower_bound({claim.protocol, first});
          if (at == claims.end() || at->first >= std::pair(claim.protocol, static_cast<uint16_t>(first + claim.ports))) break;
        }
      }
      for (uint32_t i = 0; i < claim.ports; ++i) {
        const auto at = claims.find({claim.protocol, static_cast<uint16_t>(first + i)});
        if (at != claims.end() && !joins(at->second)) return {.error = EADDRINUSE};
      }
      const uint32_t number = ++world_.last_claim_;
      for (uint32_t i = 0; i < claim.ports; ++i) {
        claims[{claim.protocol, static_cast<uint16_t>(first + i)}].push_back({this, number, claim.group, claim.accepts_new_flows});
      }
      return {.claim = number, .port = first};
    }
    void release(uint32_t claim) override {
      std::erase_if(world_.interfaces_[interface_].groups, [&](const Member& each) { return each.owner.claim == claim; });
      world_.remove_owners(interface_, [&](const Owner& each) { return each.claim == claim; });
    }
    int set_accepts_new_flows(uint32_t claim, AcceptsNewFlows accepts_new_flows) override {
      for (auto& [key, owners] : world_.interfaces_[interface_].claims) {
        for (Owner& each : owners) each.accepts_new_flows = each.claim == claim ? accepts_new_flows : each.accepts_new_flows;
      }
      return 0;
    }
    int own_flow(uint32_t claim, const Address& local, const Address& remote) override {
      for (auto& [flow, owner] : world_.interfaces_[interface_].flows) {
        if (flow == Flow{local, remote}) owner.port = this, owner.claim = claim;
      }
      return 0;
    }
    const IpConfiguration& configuration() override { return world_.interfaces_[interface_].configuration; }
    SocketTableView open_sockets() override {
      if (tables.size() == tables_max) return {};
      const auto geometry = SocketTableGeometry::of_table(static_cast<uint32_t>(tables.size()));
      tables.emplace_back(new Line[geometry.total / sizeof(Line)]());
      return table(tables.size() - 1);
    }
    SocketTableView table(size_t number) const {
      return SocketTableView(tables[number][0].bytes, SocketTableGeometry::of_table(static_cast<uint32_t>(number)));
    }
    MutableBytes reserve(uint32_t bytes) noexcept override {
      if (no_room || bytes > longest) return {};
      room_.resize(bytes);
      return room_;
    }
    void post(uint32_t bytes) noexcept override {
      if (memory_.empty()) return world_.take(*this, Bytes(room_).first(bytes));
      post(bytes, {});
    }
    // Messages with pieces in this memory are sent later, so that tests see pieces that change too early.
    MutableBytes register_send_memory(uint64_t bytes) noexcept override {
      if (world_.lends) memory_.resize(bytes);
      return memory_;
    }
    void post(uint32_t bytes, std::span<const Bytes> kept) noexcept override {
      posts_.push_back({{room_.begin(), room_.begin() + bytes}, {kept.begin(), kept.end()}});
      ++posted_;
      lent += kept.size();
    }
    uint64_t submitted() const noexcept override { return posted_; }
    bool is_polled() const noexcept override { return world_.lends; }
    uint64_t completed() noexcept override { return posted_ - posts_.size(); }

    bool ask_local_peer(uint8_t protocol, const Address& to) override {
      if (!world_.local_peers) return false;
      asked_.push_back({protocol, to});
      ++questions;
      return true;
    }
    bool send_to_local_peer(uint32_t local_peer, Bytes head, Bytes data) noexcept override {
      Link& link = *links_.at(local_peer);
      const uint32_t mine = link.ends[0] == this ? 0 : 1;
      if (link.queues[mine].size() + link.unreleased[mine] >= kLinkDepth || no_room) return false;
      std::vector<std::byte> message(head.begin(), head.end());
      message.insert(message.end(), data.begin(), data.end());
      const bool apart = !data.empty() && message.size() > kInlineMax;  // as of a local channel
      UNET_CHECK(!apart || head.size() <= kHeadedMax);
      link.queues[mine].push_back({std::move(message), apart ? head.size() : 0});
      return true;
    }
    MutableBytes reserve_to_local_peer(uint32_t local_peer, uint32_t bytes) noexcept override {
      if (!has_room(local_peer, bytes)) return {};
      room_.resize(bytes);
      return room_;
    }
    void post_to_local_peer(uint32_t local_peer, Bytes head, uint32_t bytes) noexcept override {
      UNET_CHECK(send_to_local_peer(local_peer, head, Bytes(room_).first(bytes)));
    }
    bool has_room(uint32_t local_peer, uint32_t) noexcept override {
      const Link& link = *links_.at(local_peer);
      const uint32_t mine = link.ends[0] == this ? 0 : 1;
      return link.queues[mine].size() + link.unreleased[mine] < kLinkDepth && !no_room;
    }
    void release(uint32_t local_peer, const Message& message) noexcept override {
      if (local_peer == kNoLocalPeer) {
        const auto at = std::find_if(in_place.begin(), in_place.end(), [&](const auto& each) { return each.data() == message.data; });
        UNET_CHECK(at != in_place.end());
        in_place.erase(at);
        return;
      }
      UNET_CHECK(kept_.erase({local_peer, message.position}) == 1);
      count_unreleased(local_peer);
    }
    size_t kept() const noexcept { return kept_.size(); }

    struct alignas(64) Line {
      std::byte bytes[64];
    };
    std::vector<std::unique_ptr<Line[]>> tables;
    size_t tables_max = 0;  // none
    bool no_room = false;
    uint32_t longest = ~uint32_t{0};  // bytes of a message of IP for which there is room
    bool deaf = false;  // does not look at what local peers say
    Stack* stack = nullptr;
    uint64_t sent = 0, questions = 0, lent = 0;
    std::list<std::vector<std::byte>> in_place;  // messages that the stack keeps
    uint64_t kept_in_place = 0;                  // of all that came
    std::vector<std::byte> last;  // of these

   private:
    friend class World;
    static constexpr size_t kLinkDepth = 256;
    // A local channel. A link that has ended at one side takes what is sent there and forgets it.
    struct Link {
      std::array<Port*, 2> ends{};
      std::array<uint32_t, 2> numbers{};
      struct Sent {
        std::vector<std::byte> bytes;
        size_t apart;  // of these, that came beside the data
      };
      std::array<std::deque<Sent>, 2> queues{};  // by each end
      std::array<size_t, 2> arrived{};
      std::array<size_t, 2> unreleased{};  // of what each has sent: from the oldest that the other keeps to the newest that it has had
    };
    struct Asked {
      uint8_t protocol;
      Address to;
    };

    // The channel to that port, which both ends hear of.
    uint32_t link_to(Port& other) {
      for (uint32_t i = 0; i < links_.size(); ++i) {
        if (links_[i] != nullptr && (links_[i]->ends[0] == &other || links_[i]->ends[1] == &other)) return i;
      }
      const auto link = std::make_shared<Link>();
      link->ends = {this, &other};
      link->numbers = {static_cast<uint32_t>(links_.size()), static_cast<uint32_t>(other.links_.size())};
      links_.push_back(link);
      other.links_.push_back(link);
      stack->handle_local_peer(link->numbers[0], true);
      other.stack->set_time(world_.now());
      other.stack->handle_local_peer(link->numbers[1], true);
      return link->numbers[0];
    }
    // Room comes back in the order of arrival, as of a channel.
    void count_unreleased(uint32_t local_peer) {
      if (links_[local_peer] == nullptr) return;
      Link& link = *links_[local_peer];
      const uint32_t mine = link.ends[0] == this ? 0 : 1;
      const auto oldest = kept_.lower_bound({local_peer, 0});
      const bool some = oldest != kept_.end() && oldest->first.first == local_peer;
      link.unreleased[1 - mine] = some ? link.arrived[1 - mine] - (oldest->second.number - 1) : 0;
    }
    // Now or the next time.
    void read_posts() {
      while (!posts_.empty() && world_.random() % 4 != 0) {
        std::vector<std::byte>& message = posts_.front().head;
        for (const Bytes& each : posts_.front().kept) message.insert(message.end(), each.begin(), each.end());
        world_.take(*this, message);
        posts_.pop_front();
      }
    }
    bool carry() {
      bool moved = !asked_.empty() || !posts_.empty();
      read_posts();
      std::vector<Asked> asked;
      asked.swap(asked_);
      for (const Asked& each : asked) {
        const auto& claims = world_.interfaces_[interface_].claims;
        const auto at = claims.find({each.protocol, each.to.port});
        const Owner* const owner = at == claims.end() ? nullptr : &choose(at->second, world_.turns_++);
        Port* const other = owner == nullptr ? nullptr : owner->port;
        const bool none = other == this || (other != nullptr && other->stack == nullptr);
        stack->handle_local_peer_found(each.protocol, each.to,
                                      other == nullptr ? Stack::kUnclaimed : none ? Stack::kNone : link_to(*other),
                                      owner != nullptr && owner->group != 0 && !none);
      }
      for (size_t i = 0; i < links_.size(); ++i) {
        if (links_[i] == nullptr) continue;
        Link& link = *links_[i];
        const uint32_t mine = link.ends[0] == this ? 0 : 1;
        std::deque<Link::Sent>& queue = link.queues[1 - mine];
        while (!queue.empty() && !deaf) {
          moved = true;
          const uint32_t position = ++position_;
          const size_t apart = queue.front().apart;
          Kept& kept = kept_[{static_cast<uint32_t>(i), position}] = {std::move(queue.front().bytes), ++link.arrived[1 - mine]};
          queue.pop_front();
          const Bytes head = Bytes(kept.bytes).first(apart), data = Bytes(kept.bytes).subspan(apart);
          const Message message{.data = data.data(), .length = static_cast<uint32_t>(data.size()), .from_local = true,
                                .position = position};
          if (!stack->handle_local_peer_message(static_cast<uint32_t>(i), message, head)) {
            kept_.erase({static_cast<uint32_t>(i), position});
          }
          count_unreleased(static_cast<uint32_t>(i));
        }
        if (link.ends[1 - mine] == nullptr) {
          stack->handle_local_peer_gone(static_cast<uint32_t>(i));
          links_[i] = nullptr;
          moved = true;
        }
      }
      return moved;
    }
    void leave() {
      for (const auto& link : links_) {
        if (link != nullptr) link->ends[link->ends[0] == this ? 0 : 1] = nullptr;
      }
    }

    World& world_;
    const uint32_t interface_;
    struct Post {
      std::vector<std::byte> head;
      std::vector<Bytes> kept;
    };
    std::vector<std::byte> room_, memory_;
    std::deque<Post> posts_;
    uint64_t posted_ = 0;
    std::vector<Asked> asked_;
    std::vector<std::shared_ptr<Link>> links_;
    struct Kept {
      std::vector<std::byte> bytes;
      size_t number;  // of those that came by its link
    };
    std::map<std::pair<uint32_t, uint32_t>, Kept> kept_;
    uint32_t position_ = 0;
  };

  explicit World(uint64_t seed = 1, bool lends_in_place = false) : Simulator(seed), lends(lends_in_place) { add(*this); }

  uint32_t add_interface(std::vector<const char*> addresses, uint32_t mtu = 1500) {
    Interface made;
    for (const char* each : addresses) {
      const ip::IpAddress address = *ip::parse_ip(each);
      made.configuration.addresses.push_back({address, static_cast<uint8_t>(address.is_ipv4() ? 24 : 64), false, 0});
    }
    made.configuration.interfaces.push_back({0, mtu, {}, {}});
    interfaces_.push_back(std::move(made));
    return static_cast<uint32_t>(interfaces_.size() - 1);
  }

  // Afterwards all stacks know the time.
  void run(Nanoseconds until = kNever) {
    Simulator::run(until);
    for (Port* port : ports) {
      if (port->stack != nullptr) port->stack->set_time(now());
    }
  }
  void run_for(Nanoseconds time) { run(now() + time); }

  // Removes the process's claims and groups, as the service does when a process is gone.
  void leave(Port& port) {
    port.leave();
    Interface& interface = interfaces_[port.interface_];
    remove_owners(port.interface_, [&](const Owner& each) { return each.port == &port; });
    std::erase_if(interface.groups, [&](const Member& each) { return each.owner.port == &port; });
  }

  // Puts a message into the world as if it came by a wire.
  void inject(std::vector<std::byte> message) { pass_on({~0u, std::move(message)}); }

  SimLink wire{*this, {.delay = 100 * kMicrosecond}};  // between all interfaces
  uint32_t narrow = 0;     // packets of more bytes are lost on wires without an ICMP error; 0: none is
  bool keeps = true;       // messages may stay where they came
  bool lends;              // applications may send from memory in place
  bool local_peers = true;  // applications of one interface have channels to each other
  std::vector<Port*> ports;
  uint64_t resets = 0;  // that interfaces have sent for ports without an owner
  uint64_t stolen = 0;  // segments that were not sent, as their connections are another's that shares the port

 private:
  friend class Port;
  struct Owner {
    Port* port;
    uint32_t claim;
    uint64_t group;
    AcceptsNewFlows accepts_new_flows;
  };
  // Chooses a member as an NI does. But a member that joins or leaves also moves flows between the others.
  static const Owner& choose(const std::vector<Owner>& owners, uint64_t by) {
    std::vector<const Owner*> takers;
    for (const Owner& each : owners) {
      if (!takers.empty() && each.accepts_new_flows < takers.front()->accepts_new_flows) continue;
      if (!takers.empty() && each.accepts_new_flows > takers.front()->accepts_new_flows) takers.clear();
      takers.push_back(&each);
    }
    return *takers[by % takers.size()];
  }
  template <typename Goes>
  void remove_owners(uint32_t interface, Goes goes) {
    auto& claims = interfaces_[interface].claims;
    for (auto& [key, owners] : claims) std::erase_if(owners, goes);
    std::erase_if(claims, [](const auto& each) { return each.second.empty(); });
    std::erase_if(interfaces_[interface].flows, [&](const auto& each) { return goes(each.second); });
  }
  using Flow = std::pair<Address, Address>;  // ours first
  struct Member {
    ip::IpAddress group;
    uint16_t port;
    Owner owner;
  };
  struct Interface {
    IpConfiguration configuration;
    std::map<std::pair<uint8_t, uint16_t>, std::vector<Owner>> claims;
    std::vector<std::pair<Flow, Owner>> flows;  // of TCP, on which a member of a shared port has sent
    std::vector<Member> groups;
  };
  struct Travelling {
    uint32_t from;  // interface
    std::vector<std::byte> message;
    bool here = true;  // it did not leave that
  };

  // All applications process, and once more where a message moved: it may have made room for another application of its interface.
  Nanoseconds process() override {
    bool moved = std::exchange(arrived_, false);
    Nanoseconds next = kNever;
    for (Port* port : ports) {
      if (port->stack == nullptr) continue;
      port->stack->set_time(now());
      moved = port->carry() || moved;
      port->stack->run();
      next = std::min(next, port->stack->next_event());
    }
    return moved ? now() : next;
  }

  void take(Port& port, Bytes bytes) {
    ++port.sent;
    port.last.assign(bytes.begin(), bytes.end());
    std::vector<std::byte> message(bytes.begin(), bytes.end());
    ip::IpView packet;
    ip::Problem problem;
    UNET_CHECK(parse_ip_packet(bytes.subspan(sizeof(IpMessageHeader)), packet, problem) == ip::IpError::none);
    if (packet.protocol == ip::Protocol::kTcp && !learn(port, packet)) return;
    if (has(port.interface_, packet.to)) return pass_on({port.interface_, std::move(message)});
    IpMessageHeader header;
    std::memcpy(&header, message.data(), sizeof header);
    const bool group = packet.to.is_multicast() && (header.flags & IpMessageFlags::kNoLoop) == 0;
    if (group) pass_on({port.interface_, message});
    const size_t size = header.segment_size != 0 ? header.segment_size + size_t{52} : packet.packet.size();
    if (narrow != 0 && size > narrow) return;
    const Travelling each{port.interface_, std::move(message), false};
    wire.send(now(), static_cast<uint32_t>(size), [this, each](bool) { deliver(each); });
  }
  // A message arrives at once.
  void pass_on(Travelling each) {
    at(now(), [this, each = std::move(each)] { deliver(each); });
  }
  static Flow flow_of(const ip::IpView& packet, bool sent) {
    be16 ports_[2];
    std::memcpy(ports_, packet.payload.data(), sizeof ports_);
    const Address from{packet.from, ports_[0]}, to{packet.to, ports_[1]};
    return sent ? Flow{from, to} : Flow{to, from};
  }
  // At a shared port, the sender owns the connection from now on. False: another member owns it, so nothing is sent.
  bool learn(Port& port, const ip::IpView& packet) {
    Interface& interface = interfaces_[port.interface_];
    const Flow flow = flow_of(packet, true);
    const auto claim = interface.claims.find({packet.protocol, flow.first.port});
    if (claim == interface.claims.end() || claim->second.front().group == 0) return true;
    const auto own = std::find_if(claim->second.begin(), claim->second.end(), [&](const Owner& each) { return each.port == &port; });
    const auto known = std::find_if(interface.flows.begin(), interface.flows.end(), [&](const auto& each) { return each.first == flow; });
    const bool others = known != interface.flows.end() && known->second.port != &port;
    if (own != claim->second.end() && known == interface.flows.end()) interface.flows.push_back({flow, *own});
    stolen += others ? 1 : 0;
    return !others;
  }
  static const Owner& owner_of(const Interface& interface, const std::vector<Owner>& owners, uint8_t protocol, const ip::IpView& packet) {
    const Flow flow = flow_of(packet, false);
    const auto known = std::find_if(interface.flows.begin(), interface.flows.end(), [&](const auto& each) { return each.first == flow; });
    if (protocol == ip::Protocol::kTcp && known != interface.flows.end()) return known->second;
    return choose(owners, flow.second.port * 2654435761u >> 16);
  }
  bool has(uint32_t interface, const ip::IpAddress& address) const {
    for (const auto& each : interfaces_[interface].configuration.addresses) {
      if (each.address == address) return true;
    }
    return false;
  }
  void deliver(const Travelling& travelling) {
    arrived_ = true;
    wake();
    const Bytes bytes(travelling.message);
    ip::IpView packet;
    ip::Problem problem;
    if (parse_ip_packet(bytes.subspan(sizeof(IpMessageHeader)), packet, problem) != ip::IpError::none) return;
    for (uint32_t i = 0; i < interfaces_.size(); ++i) {
      if (has(i, packet.to) || is_broadcast(i, packet.to)) deliver(i, packet, travelling.message);
      if (packet.to.is_multicast() && (i == travelling.from) == travelling.here) deliver_to_group(i, packet, travelling.message);
    }
  }
  bool is_broadcast(uint32_t interface, const ip::IpAddress& to) const {
    for (const auto& each : interfaces_[interface].configuration.addresses) {
      if (each.address.is_ipv4() && (to.is_limited_broadcast() || is_directed_broadcast(to, each.address, each.prefix))) return true;
    }
    return false;
  }
  void deliver_to_group(uint32_t interface, const ip::IpView& packet, std::vector<std::byte> message) {
    be16 ports_[2];
    std::memcpy(ports_, packet.payload.data(), sizeof ports_);
    const IpMessageHeader header{.flags = IpMessageFlags::kChecked};
    std::memcpy(message.data(), &header, sizeof header);
    for (const Member& each : interfaces_[interface].groups) {
      if (each.group != packet.to || each.port != ports_[1] || each.owner.port->stack == nullptr) continue;
      each.owner.port->stack->set_time(now());
      each.owner.port->stack->handle_message(message);
    }
  }
  void deliver(uint32_t interface, const ip::IpView& packet, std::vector<std::byte> message) {
    if (packet.payload.size() < 4) return;
    be16 ports_[2];
    std::memcpy(ports_, packet.payload.data(), sizeof ports_);
    uint8_t protocol = packet.protocol;
    uint16_t port = ports_[1];
    ip::IcmpView icmp;
    ip::QuotedPacket quoted;
    const bool error = protocol == ip::Protocol::kIcmp || protocol == ip::Protocol::kIcmp6;
    if (error && parse_icmp(packet, icmp) == ip::IcmpError::none && parse_quoted(icmp.rest, packet.ipv4, quoted) &&
        quoted.payload.size() >= 4) {
      std::memcpy(ports_, quoted.payload.data(), sizeof ports_);
      protocol = quoted.protocol;
      port = ports_[0];
    }
    const auto at = interfaces_[interface].claims.find({protocol, port});
    if (at == interfaces_[interface].claims.end()) return refuse(interface, packet);
    Port* const to = (error ? at->second.front() : owner_of(interfaces_[interface], at->second, protocol, packet)).port;
    if (to->stack == nullptr) return refuse(interface, packet);
    IpMessageHeader header;
    std::memcpy(&header, message.data(), sizeof header);
    const bool same = has(interface, packet.from);
    header.flags = same ? IpMessageFlags::kChecked | IpMessageFlags::kSameNi : IpMessageFlags::kChecked;
    std::memcpy(message.data(), &header, sizeof header);
    to->stack->set_time(now());
    if (!keeps) return to->stack->handle_message(Bytes(message));
    to->in_place.push_back(std::move(message));
    const std::vector<std::byte>& stays = to->in_place.back();
    const Message came{.data = stays.data(), .length = static_cast<uint32_t>(stays.size())};
    if (to->stack->handle_message(came)) ++to->kept_in_place;
    else to->release(Port::kNoLocalPeer, came);
  }
  // An interface's answer for a port without an owner.
  void refuse(uint32_t interface, const ip::IpView& packet) {
    std::vector<std::byte> answer(sizeof(IpMessageHeader) + 2048);
    const auto put = [&](uint8_t protocol, Bytes payload) {
      const ip::IpFields fields{.from = packet.to, .to = packet.from, .protocol = protocol, .hop_limit = 64};
      const uint32_t head = emit_ip_header(answer.data() + sizeof(IpMessageHeader), fields, static_cast<uint32_t>(payload.size()));
      std::memcpy(answer.data() + sizeof(IpMessageHeader) + head, payload.data(), payload.size());
      answer.resize(sizeof(IpMessageHeader) + head + payload.size());
      const Nanoseconds delay = has(interface, packet.from) ? 0 : wire.options.delay;
      at(now() + delay, [this, each = Travelling{interface, answer}] { deliver(each); });
    };
    if (packet.protocol == ip::Protocol::kTcp) {
      ip::TcpView segment;
      if (parse_tcp(packet.payload, segment) != ip::TcpError::none) return;
      const auto reset = tcp::reset_for(segment);
      if (!reset) return;
      ++resets;
      std::array<std::byte, ip::kTcpHeaderMax> head;
      put(ip::Protocol::kTcp, Bytes(head).first(emit_tcp(head.data(), *reset)));
    } else if (packet.protocol == ip::Protocol::kUdp) {
      std::array<std::byte, ip::kIcmpBytes + ip::kIcmpQuote6Max> error;
      const uint32_t size = emit_icmp_error(error.data(), packet.to, packet.from, {}, packet.packet);
      put(packet.ipv4 ? ip::Protocol::kIcmp : ip::Protocol::kIcmp6, Bytes(error).first(size));
    }
  }

  std::vector<Interface> interfaces_;
  bool arrived_ = false;  // since the last process()
  uint32_t last_claim_ = 0;
  uint64_t turns_ = 0;
};

// An application.
struct Application {
  Application(World& world, uint32_t interface, StackOptions options = {}) : port(world, interface), world_(world) {
    options.seed = options.seed == 0 ? world.random() | 1 : options.seed;
    options.chunks = std::min(options.chunks, 2560u);
    stack = std::make_unique<Stack>(port, options, world.now());
    port.stack = stack.get();
    world.ports.push_back(&port);
  }
  ~Application() { end(); }
  // Ends the application as a process that exits.
  void end() {
    if (stack == nullptr) return;
    stack->set_time(world_.now());
    stack.reset();
    port.stack = nullptr;
    world_.leave(port);
    std::erase(world_.ports, &port);
  }

  World::Port port;
  std::unique_ptr<Stack> stack;

 private:
  World& world_;
};

inline Address at(const char* host, uint16_t port) { return {*ip::parse_address(host), port}; }

inline std::vector<std::byte> pattern(size_t bytes, size_t from = 0) {
  std::vector<std::byte> made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>((i + from) * 31 + (i + from) / 251);
  return made;
}

// All that has come to a socket.
inline std::vector<std::byte> receive(Stack& stack, int socket) {
  std::vector<std::byte> got(1 << 20);
  const int64_t bytes = stack.receive(socket, got);
  UNET_CHECK(bytes >= 0);
  got.resize(static_cast<size_t>(bytes));
  return got;
}

}  // namespace unet::sockets::sim
