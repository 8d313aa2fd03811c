// sim_transport.cc - messages as packets of flows, and their handling, in virtual time.
#include "am/splitc/sim_transport.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "unet/base/check.h"

namespace unet::splitc {
namespace {

// From the program to SimTransport, with cold caches: 95 % of a radix sort's 1.4 million requests take less.
constexpr Nanoseconds kOwn = 100;
constexpr Nanoseconds kSurelyOwnCore = 20 * kMicrosecond;  // another program that gets this core keeps it for longer
constexpr uint32_t kFlowsMost = 64;  // flows of a rank above which it forgets idle ones
constexpr uint32_t kScanned = 32;    // peers that it scans for them each time

am::FlowOptions flow_options() {
  am::FlowOptions options;
  options.first_timeout = options.timeout_min = options.timeout_max = 10 * kSecond;  // nothing is lost
  options.dead_after = kNever;  // a rank that computes for long is not dead
  options.congestion.no_wire = true;
  return options;
}

void copy(MutableBytes to, Bytes from) noexcept {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

SimMessage make(am::Kind kind, uint8_t operation, Words words) {
  SimMessage message{.kind = kind, .operation = operation, .count = static_cast<uint8_t>(words.size())};
  std::copy(words.begin(), words.end(), message.words.begin());
  return message;
}

}  // namespace

// Pages of spread memory appear at first use. The kernel counts none of them before.
Result<std::unique_ptr<SimTransport>> SimTransport::create(Simulation& simulation, Rank rank, uint64_t memory) {
  void* const at = ::mmap(nullptr, memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return fail(Errc::out_of_memory, std::to_string(memory) + " bytes of spread memory cannot be mapped");
  return std::unique_ptr<SimTransport>(new SimTransport(simulation, rank, {static_cast<std::byte*>(at), memory}));
}

SimTransport::SimTransport(Simulation& simulation, Rank rank, MutableBytes memory)
    : simulation_(simulation), rank_(rank), memory_(memory), peers_(simulation.size()) {
  simulation_.add(rank, *this);
  leave();
}

SimTransport::~SimTransport() { ::munmap(memory_.data(), memory_.size()); }

SimTransport::Store::All::iterator SimTransport::Store::find(am::Sequence at) {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& each) { return each.first == at; });
  UNET_CHECK(found != all_.end());
  return found;
}

SimTransport::MessagePtr SimTransport::Store::take(am::Sequence at) {
  const auto found = find(at);
  MessagePtr message = std::move(found->second);
  all_.erase(found);
  return message;
}

SimTransport::Peer& SimTransport::peer(Rank rank) {
  std::unique_ptr<Peer>& at = peers_[rank];
  if (at != nullptr) return *at;
  if (++flows_ > kFlowsMost) forget_idle();
  at = std::make_unique<Peer>(flow_options());
  return *at;
}

// Both ends forget flows that are idle, and which begin anew when needed. A thousand ranks have a million flows of 7 KB.
void SimTransport::forget_idle() {
  for (uint32_t i = 0; i < kScanned; ++i) {
    scanned_ = (scanned_ + 1) % size();
    SimTransport& other = simulation_.transport(scanned_);
    std::unique_ptr<Peer>&mine = peers_[scanned_], &its = other.peers_[rank_];
    if (mine == nullptr || !mine->is_idle() || (its != nullptr && !its->is_idle())) continue;
    mine.reset();
    --flows_;
    if (its != nullptr) --other.flows_;
    its.reset();
  }
}

// ---- time

// Never less than at an earlier time, because a clock does not go back.
Nanoseconds SimTransport::computed(Nanoseconds real) const noexcept {
  if (real > kSurelyOwnCore) real = std::max(kSurelyOwnCore, real - std::min(real, simulation_.stolen_time()));
  return slowed(real - std::min(real, kOwn));
}

void SimTransport::enter() {
  const Nanoseconds real = am::flow_now() - left_at_;
  simulation_.work(rank_, computed(real));
  if (real > kSurelyOwnCore) simulation_.begin_stolen_time();
  simulation_.let_others_catch_up(rank_);
}

Nanoseconds SimTransport::now() const noexcept { return simulation_.clock(rank_) + computed(am::flow_now() - left_at_); }

// ---- sending

void SimTransport::begin(Rank to, SimMessage message) {
  Peer& at = peer(to);
  const auto bytes = static_cast<uint32_t>(sizeof(am::PacketHeader) + 4 * message.count + message.payload.size());
  const am::Sequence sequence = at.flow.begin(am::is_request(message.kind), bytes);
  at.sent.put(sequence, std::make_shared<const SimMessage>(std::move(message)));
  pump(to);
}

void SimTransport::pump(Rank to) {
  Peer& at = peer(to);
  while (const auto released = at.flow.poll_released()) at.sent.take(*released);
  while (const auto transmit = at.flow.poll_transmit(simulation_.clock(rank_))) {
    SimPacket packet{.fields = transmit->fields, .body = transmit->arrived};
    uint64_t bytes = 0;
    if (transmit->numbered) {
      packet.message = at.sent.get(transmit->fields.sequence);
      packet.fields.kind = packet.message->kind;
      bytes = packet.message->payload.size();
      simulation_.work(rank_, simulation_.machine().send);
    }
    ++at.under_way;
    simulation_.send(rank_, to, std::move(packet), bytes);
  }
  const Nanoseconds next = std::max(at.flow.next_timeout(), simulation_.clock(rank_) + 1);
  if (next >= at.timer) return;
  at.timer = next;
  timers_.emplace(next, to);
}

template <typename Send>
bool SimTransport::send_with_credit(Rank to, const Send& send) {
  enter();
  const bool may = has_credit(to);
  if (may) send();
  leave();
  return may;
}

template <typename Send>
void SimTransport::for_each_packet(size_t bytes, const Send& send) const {
  const size_t most = simulation_.machine().packet;
  size_t done = 0;
  for (; bytes - done > most; done += most) send(done, most, false);
  send(done, bytes - done, true);
}

bool SimTransport::request(Rank to, uint8_t operation, Words words) {
  return send_with_credit(to, [&] { begin(to, make(am::Kind::short_request, operation, words)); });
}

bool SimTransport::request_medium(Rank to, uint8_t operation, Bytes payload, Words words) {
  return send_with_credit(to, [&] {
    SimMessage message = make(am::Kind::medium_request, operation, words);
    message.payload.assign(payload.begin(), payload.end());
    begin(to, std::move(message));
  });
}

void SimTransport::begin_when_possible(Rank to, SimMessage message) {
  while (!has_credit(to)) {
    if (take_arrivals() == 0) simulation_.wait(rank_, next_timer());
  }
  begin(to, std::move(message));
}

bool SimTransport::request_long(Rank to, uint8_t operation, uint64_t offset, Bytes payload, Words words) {
  return send_with_credit(to, [&] {
    for_each_packet(payload.size(), [&](size_t done, size_t bytes, bool last) {
      const Bytes piece = payload.subspan(done, bytes);
      SimMessage message = last ? make(am::Kind::long_request, operation, words) : make(am::Kind::long_piece, 0, {});
      message.payload.assign(piece.begin(), piece.end());
      message.offset = offset + done;
      message.before = done;
      begin_when_possible(to, std::move(message));
    });
  });
}

bool SimTransport::request_get(Rank from, uint8_t operation, uint64_t offset, MutableBytes memory, Words words) {
  return send_with_credit(from, [&] {
    for_each_packet(memory.size(), [&](size_t done, size_t bytes, bool last) {
      SimMessage message = make(am::Kind::get_request, last ? operation : uint8_t{0}, words);
      message.offset = offset + done;
      message.wanted = bytes;
      message.to = memory.subspan(done, bytes);
      message.whole = memory;
      begin_when_possible(from, std::move(message));
    });
  });
}

// ---- receiving

uint32_t SimTransport::poll() {
  enter();
  const uint32_t count = take_arrivals();
  if (count != 0) {
    empty_polls_ = 0;
  } else {
    // A program that polls in a loop finds a packet when it arrives. It may also wait for a time, which it finds late by half of the wait.
    // The first poll of a loop may stand in a computation.
    const Machine& machine = simulation_.machine();
    const Nanoseconds first = machine.receive / 8 + 1, later = (machine.latency + machine.gap + 1) << std::min(empty_polls_, 6u);
    const Nanoseconds time = empty_polls_++ == 0 ? first : later;
    simulation_.wait(rank_, std::min(next_timer(), simulation_.clock(rank_) + time));
  }
  leave();
  return count;
}

void SimTransport::wait(Nanoseconds limit) {
  enter();
  if (take_arrivals() == 0) {
    simulation_.wait(rank_, std::min(next_timer(), simulation_.clock(rank_) + limit));
    take_arrivals();
  }
  leave();
}

// Returns the number of packets and of timers that have come.
uint32_t SimTransport::take_arrivals() {
  uint32_t count = 0;
  for (SimPacket packet; simulation_.receive(rank_, packet); ++count) {
    Peer& at = peer(packet.from);
    --simulation_.transport(packet.from).peers_[rank_]->under_way;
    const Nanoseconds clock = simulation_.clock(rank_);
    const Bytes body = as_bytes(&packet.body, sizeof packet.body);
    const auto arrival = at.flow.handle_packet(packet.fields, body, true, clock, clock - packet.arrival);
    if (arrival == am::Flow::Arrival::fresh) at.arrived.put(packet.fields.sequence, std::move(packet.message));
    while (const auto next = at.flow.poll_delivery()) handle(packet.from, *at.arrived.take(*next));
    pump(packet.from);
  }
  for (; next_timer() <= simulation_.clock(rank_); ++count) {
    const auto [time, rank] = timers_.top();
    timers_.pop();
    Peer* const at = peers_[rank].get();
    if (at == nullptr || time != at->timer) continue;
    at->timer = kNever;
    at->flow.handle_timeout(simulation_.clock(rank_));
    pump(rank);
  }
  return count;
}

void SimTransport::handle(Rank from, const SimMessage& message) {
  simulation_.work(rank_, simulation_.machine().receive);
  am::Flow& flow = peer(from).flow;
  switch (message.kind) {
    case am::Kind::get_request: {
      SimMessage answer = message;
      answer.kind = am::Kind::long_reply;
      const Bytes bytes = memory_.subspan(message.offset, message.wanted);
      answer.payload.assign(bytes.begin(), bytes.end());
      return begin(from, std::move(answer));
    }
    case am::Kind::long_reply:
      copy(message.to, message.payload);
      if (message.operation != 0) run_handler(from, message, false, message.whole);
      return;
    case am::Kind::short_reply: run_handler(from, message, false, {}); return;
    case am::Kind::long_piece:
    case am::Kind::long_request: copy(memory_.subspan(message.offset), message.payload); break;
    default: break;
  }
  Answer answer;
  if (message.operation != 0) {
    const bool is_long = message.kind == am::Kind::long_request;
    const Bytes whole = memory_.subspan(message.offset - message.before, message.before + message.payload.size());
    answer = run_handler(from, message, true, is_long ? whole : Bytes(message.payload));
  }
  if (answer.operation == 0) return flow.handled();
  begin(from, make(am::Kind::short_reply, answer.operation, {answer.words.data(), answer.count}));
}

Answer SimTransport::run_handler(Rank from, const SimMessage& message, bool is_request, Bytes payload) {
  Answer answer;
  receiver_->handle({.from = from, .operation = message.operation, .is_request = is_request,
                     .words = {message.words.data(), message.count}, .payload = payload},
                    answer);
  return answer;
}

// ---- the end

// A rank that has left cannot acknowledge, so all leave together.
void SimTransport::finish() {
  enter();
  const auto is_settled = [this] {
    return std::all_of(peers_.begin(), peers_.end(), [](const auto& each) { return each == nullptr || each->flow.unacknowledged() == 0; });
  };
  for (bool all = false; !all;) {
    if (is_settled()) all = simulation_.finish(rank_);
    if (!all && take_arrivals() == 0) simulation_.wait(rank_, std::min(next_timer(), simulation_.clock(rank_) + kMillisecond));
  }
}

void SimTransport::end_job(const std::string& text) {
  std::fprintf(stderr, "splitc: rank %u of %u: %s\n", rank_, size(), text.c_str());
  std::fflush(nullptr);
  std::_Exit(1);
}

}  // namespace unet::splitc
