// endpoint_network.h - a stack's network over an endpoint of its own: the IP channel, and local channels to neighbours.
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
#include "unet/endpoint.h"

namespace unet::sockets {

class Stack;

struct EndpointNetworkOptions {
  // Queues of the IP channel; 2 MiB for what comes, thirty messages of 64 KiB, of which streams keep eight until they are read; for what
  // goes 512 KiB and a stack's lendable chunks.
  EndpointOptions endpoint{.buffers = 1024, .send_bytes = 512 * 1024 + 4 * 1024 * 1024};
  LocalOptions neighbours{};                     // of a channel to each neighbour
  bool use_neighbours = true;                    // false: everything goes through the network interface
  Nanoseconds refresh = 10 * kSecond;            // the service is asked so often for the configuration
};

class EndpointNetwork : public Network {
 public:
  // Errors: those of create_endpoint() and open_ip().
  static Result<std::unique_ptr<EndpointNetwork>> open(Context& context, const EndpointNetworkOptions& options = {});
  ~EndpointNetwork() override;

  // Brings what has come to the stack, at most about kPollMost messages, and no more than streams keep (KeptMessages) while those are being
  // read; 0: none, nor anything else that a stack is told. The stack has its time. `neighbours`: so many of theirs at most, who wait for
  // room then; the network interface would have none for others.
  uint32_t poll(Stack& stack, uint32_t neighbours = kPollMost) { return poll(stack, neighbours, false); }
  // The same for one who waits for an answer, and is waited for with the next: behind what a neighbour says it looks at nobody else.
  uint32_t poll_for_answer(Stack& stack) { return poll(stack, kPollMost, true); }
  static constexpr uint32_t kPollMost = 64;

  // Until there is something to poll, or room that the stack waits for, at most `timeout`. False: the network interface is gone and no
  // neighbour is left.
  bool wait(const Stack& stack, Nanoseconds timeout);
  // Becomes readable when poll() may have something, after arm() said true. arm() says false if there is something already.
  Result<int> descriptor() { return endpoint_->descriptor(); }
  bool arm(const Stack& stack) noexcept;
  // Instead of arm(), if nothing has come or been done since that said true, and the descriptor is not readable.
  void stay_armed() noexcept { news_ = true; }

  // Messages that have come so far or, perhaps, wait for others to be read, and neighbours that came or went.
  uint64_t taken_in() const noexcept { return taken_in_; }
  Endpoint& endpoint() noexcept { return *endpoint_; }
  // Asks the network interface for its addresses anew, and waits for the answer. False: it says nothing.
  bool refresh();

  Claimed claim(const IpClaim& claim) override;
  void release(uint32_t claim) override;
  int set_accepts_new_flows(uint32_t claim, AcceptsNewFlows accepts_new_flows) override;
  int own_flow(uint32_t claim, const Address& local, const Address& remote) override;
  const IpConfiguration& configuration() override { return configuration_; }
  SocketTableView open_sockets() override { return endpoint_->open_sockets().value_or(SocketTableView{}); }
  MutableBytes reserve(uint32_t bytes) noexcept override;
  void post(uint32_t bytes) noexcept override;
  MutableBytes keep(uint64_t bytes) noexcept override { return endpoint_->keep(bytes); }
  void post(uint32_t bytes, std::span<const Bytes> kept) noexcept override;
  uint64_t posted() const noexcept override { return endpoint_->posted(); }
  uint64_t taken() noexcept override { return endpoint_->taken(); }
  bool is_polled() const noexcept override { return endpoint_->is_embedded(); }
  void await_taken(uint64_t posted) noexcept override;
  bool ask_neighbour(uint8_t protocol, const Address& to) override;
  bool send_to_neighbour(uint32_t neighbour, Bytes head, Bytes data) noexcept override;
  bool has_room(uint32_t neighbour, uint32_t bytes) noexcept override;
  MutableBytes reserve_to_neighbour(uint32_t neighbour, uint32_t bytes) noexcept override;
  void post_to_neighbour(uint32_t neighbour, Bytes head, uint32_t bytes) noexcept override;
  void release(uint32_t neighbour, const Message& message) noexcept override;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Asked {
    uint8_t protocol;
    Address to;
    uint64_t pending;  // Endpoint::start_connect()
  };

  EndpointNetwork(std::unique_ptr<Endpoint> endpoint, Channel ip, const EndpointNetworkOptions& options);

  void look(Stack& stack);
  void look_for_requests();
  void take_accepted(Stack& stack);
  void look_for_configuration();
  void configure(IpConfiguration configuration);
  Nanoseconds patience() const noexcept;
  void note_patience(const Error& error) noexcept;
  uint32_t poll(Stack& stack, uint32_t neighbours, bool for_answer);
  bool take(Stack& stack, const Message& message);
  bool may_add_neighbour() const noexcept;
  void add_neighbour(Stack& stack, Channel channel);
  void lose_channel(Stack& stack, Channel channel);
  uint32_t neighbour_of(Channel channel) const noexcept;
  std::unique_ptr<Endpoint> endpoint_;
  const Channel ip_;
  const EndpointNetworkOptions options_;
  Channel refused_ = ip_;             // that had no room last
  IpConfiguration configuration_;
  Nanoseconds refresh_at_ = 0;
  std::optional<uint64_t> refreshing_;  // Endpoint::start_ip_configuration()
  bool is_late_ = false;              // the service: it has answered nothing since a call lost its patience
  uint32_t polls_ = 0;
  uint64_t taken_in_ = 0;
  std::vector<Asked> asked_;
  std::vector<uint64_t> accepting_;   // Endpoint::start_accept()
  std::vector<uint32_t> channels_;    // by neighbour; kNone: unused
  std::vector<uint32_t> neighbours_;  // by channel; kNone: it is none's
  bool news_ = true;                  // requests, events and answers may be there
};

}  // namespace unet::sockets
