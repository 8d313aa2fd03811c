// endpoint_network.h - a stack's network over an endpoint of its own: the IP channel, and local channels to local peers.
//
//   auto network = EndpointNetwork::open(context);
//   Stack stack(**network, {}, now);
//   (*network)->poll(stack);              what has come, to the stack
//   stack.run();
//   (*network)->wait(stack, timeout);     until there is something to do
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ipstack/sockets/network.h"
#include "unet/context.h"
#include "unet/layer_endpoint.h"

namespace unet::sockets {

class Stack;

struct EndpointNetworkOptions {
  // Queues of the IP channel. To receive: 2 MiB, thirty messages of 64 KiB, of which streams hold up to eight until read. To send: 512 KiB,
  // and the stack's chunks, which are lent to the NI.
  EndpointOptions endpoint{.buffers = 1024, .send_bytes = 512 * 1024 + 4 * 1024 * 1024};
  LocalOptions local_peers{};                     // options of each channel to a local peer
  bool use_local_peers = true;                    // false: all messages go through the network interface
  Nanoseconds refresh = 10 * kSecond;            // interval of questions for the configuration
};

class EndpointNetwork : public Network {
 public:
  // Errors: those of create_endpoint() and open_ip().
  static Result<std::unique_ptr<EndpointNetwork>> open(Context& context, const EndpointNetworkOptions& options = {});
  ~EndpointNetwork() override;

  // Passes arrived messages to the stack, about kPollMost at most, and only as many as streams can hold in place (ZeroCopyReceive). Returns
  // 0 if the stack was given nothing. Call Stack::set_time() before. `local_peers`: the most messages of local peers. Further ones stay in
  // their channels, where only these peers wait.
  uint32_t poll(Stack& stack, uint32_t local_peers = kPollMost) { return poll(stack, local_peers, false); }
  // poll() for a caller that waits for a local peer's answer: after a local peer's message it takes only more of that peer's.
  uint32_t poll_for_answer(Stack& stack) { return poll(stack, kPollMost, true); }
  static constexpr uint32_t kPollMost = 64;

  // Waits up to `timeout` for arrivals, or for room that the stack wants. False: the network interface is gone and no local peer is left.
  bool wait(const Stack& stack, Nanoseconds timeout);
  // After arm() returned true, the descriptor becomes readable when poll() may find something. arm() returns false if poll() has work now.
  Result<int> descriptor() { return endpoint_.descriptor(); }
  bool arm(const Stack& stack) noexcept;
  // Instead of arm(), if nothing has arrived or been done since arm() returned true, and the descriptor is not readable.
  void stay_armed() noexcept { news_ = true; }

  // Number of messages taken in so far, and of local peers that came or went. It may count messages that wait for others to be read.
  uint64_t taken_in() const noexcept { return taken_in_; }
  LayerEndpoint& endpoint() noexcept { return endpoint_; }
  // Asks the network interface for its addresses anew, and waits for the answer. False: there was none.
  bool refresh();

  Claimed claim(const IpClaim& claim) override;
  void release(uint32_t claim) override;
  int set_accepts_new_flows(uint32_t claim, AcceptsNewFlows accepts_new_flows) override;
  int own_flow(uint32_t claim, const Address& local, const Address& remote) override;
  const IpConfiguration& configuration() override { return configuration_; }
  SocketTableView open_sockets() override { return endpoint_.open_sockets().value_or(SocketTableView{}); }
  MutableBytes reserve(uint32_t bytes) noexcept override;
  void post(uint32_t bytes) noexcept override;
  MutableBytes register_send_memory(uint64_t bytes) noexcept override { return endpoint_.register_send_memory(bytes); }
  void post(uint32_t bytes, std::span<const Bytes> pieces) noexcept override;
  uint64_t submitted() const noexcept override { return endpoint_.submitted(); }
  uint64_t completed() noexcept override { return endpoint_.completed(); }
  bool is_polled() const noexcept override { return endpoint_.is_embedded(); }
  void notify_completion(uint64_t submitted) noexcept override;
  bool ask_local_peer(uint8_t protocol, const Address& to) override;
  bool send_to_local_peer(uint32_t local_peer, Bytes head, Bytes data) noexcept override;
  bool has_room(uint32_t local_peer, uint32_t bytes) noexcept override;
  MutableBytes reserve_to_local_peer(uint32_t local_peer, uint32_t bytes) noexcept override;
  void post_to_local_peer(uint32_t local_peer, Bytes head, uint32_t bytes) noexcept override;
  void release(uint32_t local_peer, const Message& message) noexcept override;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Asked {
    uint8_t protocol;
    Address to;
    PendingId pending;  // Endpoint::start_connect()
  };

  EndpointNetwork(LayerEndpoint endpoint, Channel ip, const EndpointNetworkOptions& options);

  void poll_service(Stack& stack);
  void poll_requests();
  void take_accepted(Stack& stack);
  void poll_configuration();
  void configure(IpConfiguration configuration);
  Nanoseconds patience() const noexcept;
  void record_patience(const Error& error) noexcept;
  uint32_t poll(Stack& stack, uint32_t local_peers, bool for_answer);
  bool take(Stack& stack, const Message& message);
  bool may_add_local_peer() const noexcept;
  void add_local_peer(Stack& stack, Channel channel);
  void lose_channel(Stack& stack, Channel channel);
  uint32_t local_peer_of(Channel channel) const noexcept;
  LayerEndpoint endpoint_;
  const Channel ip_;
  const EndpointNetworkOptions options_;
  Channel refused_ = ip_;             // the channel that last had no room
  IpConfiguration configuration_;
  Nanoseconds refresh_at_ = 0;
  std::optional<PendingId> refreshing_;  // Endpoint::start_ip_configuration()
  bool is_late_ = false;              // the service has answered nothing since a call timed out
  uint32_t polls_ = 0;
  uint64_t taken_in_ = 0;
  std::vector<Asked> asked_;
  std::vector<PendingId> accepting_;  // Endpoint::start_accept()
  std::vector<uint32_t> channels_;    // channel of each local peer; kNone: unused
  std::vector<uint32_t> local_peers_;  // local peer of each channel; kNone: none
  bool news_ = true;                  // the service may have sent requests, events or answers
};

}  // namespace unet::sockets
