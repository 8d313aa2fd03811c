// transfer.cc - the handlers of a transfer, and its steps.
#include "apps/unetcat/transfer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace unet::unetcat {
namespace {

constexpr Nanoseconds kRetryTime = 50 * kMillisecond;  // between two calls of a name that is not there
constexpr Nanoseconds kAnswerTime = 10 * kSecond;      // for the answer to a hello
constexpr Nanoseconds kLastTime = 5 * kSecond;         // for the last messages to arrive
constexpr int kReadsMax = 16;                          // per step, so that both directions go on

std::string errno_text(const char* what, int error) { return std::string(what) + ": " + std::strerror(error); }
std::string seconds(Nanoseconds time) {
  std::string text = std::to_string(static_cast<double>(time) / 1e9);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

}  // namespace

Transfer::Transfer(am::Endpoint& endpoint, Input& input, Output& output, const Options& options)
    : endpoint_(endpoint), input_(input), output_(output), options_(options), input_left_(options.bytes) {
  handle<&Transfer::on_hello>(kHello, 2);
  handle<&Transfer::on_heard>(kHeard, 2);
  handle<&Transfer::on_data>(kData, 2);
  handle<&Transfer::on_grant>(kGrant, 2);
  handle<&Transfer::on_end>(kEnd, 3);
  handle<&Transfer::on_done>(kDone, 2);
  handle<&Transfer::on_abort>(kAbort, 1);
  // A message that a closed channel returns needs no handling: the channel's end is an error of its own.
  const auto returned = [](am::Endpoint&, const am::Returned& message, void* self) {
    if (message.status == am::ReturnStatus::unreachable || message.index != kPeer) return;
    static_cast<Transfer*>(self)->fail("the peer is no unetcat: a message came back (" + std::string(to_string(message.status)) + ")");
  };
  endpoint_.set_error_handler(returned, this);
}

void Transfer::begin() {
  const Nanoseconds now = monotonic_now();
  give_up_at_ = options_.wait == kNever ? kNever : now + options_.wait;
  state_ = options_.listen ? State::listening : State::calling;
  due_ = options_.listen ? give_up_at_ : now;
}

void Transfer::give_up(Reason reason, const std::string& text) {
  if (over()) return;
  reason_ = reason;
  fail(text);
}

void Transfer::fail(const std::string& text) {
  if (over()) return;
  failure_ = text;
  state_ = State::over;
}

void Transfer::finish() {
  if (reason_ && endpoint_.has_credit(kPeer)) endpoint_.request(kPeer, kAbort, *reason_);
  if (endpoint_.is_open(kPeer)) endpoint_.flush(kLastTime);
  static_cast<void>(endpoint_.unmap(kPeer));
  failure_.clear();
  reason_.reset();
}

bool Transfer::step() {
  if (state_ == State::open) return move();
  // Bytes of the last peer, which a slow reader of standard output had not taken.
  if (!over() && !output_.empty()) {
    const bool moved = output_.flush();
    if (output_.error() != 0) fail(errno_text("standard output", output_.error()));
    if (moved) return true;
  }
  if (state_ == State::called && !endpoint_.is_open(kPeer)) fail(lost());
  if (over() || (monotonic_now() < due_ && !connecting_)) return false;
  if (state_ == State::calling) return call();
  no_peer_ = state_ == State::listening;
  if (no_peer_) fail("nothing has connected to '" + options_.name + "' within " + seconds(options_.wait));
  if (state_ == State::called) fail("'" + options_.name + "' does not answer");
  return true;
}

// ---- the two sides get to know each other

uint32_t Transfer::flags() const noexcept {
  return (options_.send_only ? kSendsOnly : 0) | (options_.receive_only ? kReceivesOnly : 0) | (options_.hash ? kHashes : 0);
}

bool Transfer::call() {
  due_ = monotonic_now() + kRetryTime;
  if (!endpoint_.in_use(kPeer)) {
    const Status begun = endpoint_.start_map(kPeer, options_.name);
    connecting_ = begun.has_value();
    if (!begun) fail(begun.error().text);
    return true;
  }
  if (const Error* const failure = endpoint_.map_failure(kPeer)) {
    const Error why = *failure;
    connecting_ = false;
    static_cast<void>(endpoint_.unmap(kPeer));
    if (why.code == Errc::not_found) {
      call_later(why.text);
    } else if (why.code == Errc::refused) {
      call_later("'" + options_.name + "' refuses: " + why.text);
    } else {
      fail(why.text);
    }
    return true;
  }
  if (!endpoint_.is_mapped(kPeer)) return false;
  connecting_ = false;
  if (!endpoint_.is_open(kPeer)) {
    static_cast<void>(endpoint_.unmap(kPeer));
    call_later("'" + options_.name + "' has closed the channel");
    return true;
  }
  state_ = State::called;
  due_ = monotonic_now() + kAnswerTime;
  endpoint_.request(kPeer, kHello, kVersion, flags());
  return true;
}

void Transfer::call_later(const std::string& why) {
  const Nanoseconds now = monotonic_now();
  if (now >= give_up_at_) return fail(why + (options_.wait == 0 ? "" : " (waited for " + seconds(options_.wait) + ")"));
  state_ = State::calling;
  due_ = now + kRetryTime;
}

void Transfer::on_hello(am::Token& token) {
  if (of_peer(token)) return check("a second hello");
  Refusal refusal = Refusal::none;
  if (state_ != State::listening || !output_.empty()) {
    refusal = Refusal::busy;
  } else if (token.argument(0) != kVersion) {
    refusal = Refusal::version;
  }
  token.reply(kHeard, refusal, flags());
  if (refusal != Refusal::none) return;
  peer_ = token.source_host().empty() ? "a process of this host" : "a process of " + std::string(token.source_host());
  open_with(token, token.argument(1));
}

void Transfer::on_heard(am::Token& token) {
  if (state_ != State::called || token.is_request()) {
    if (of_peer(token)) check("an answer to a hello that was not sent");
    return;
  }
  const auto refusal = static_cast<Refusal>(token.argument(0));
  const std::string refuses = "'" + options_.name + "' refuses: ";
  peer_ = options_.name;
  if (refusal == Refusal::none) return open_with(token, token.argument(1));
  if (refusal == Refusal::busy) return call_later(refuses + "it serves another peer");
  const bool version = refusal == Refusal::version;
  fail(refuses + (version ? "it speaks another version of the protocol" : "for a reason that this release does not know"));
}

void Transfer::open_with(const am::Token& token, uint32_t theirs) {
  source_ = token.source();
  sends_ = !options_.receive_only && (theirs & kSendsOnly) == 0;
  receives_ = !options_.send_only && (theirs & kReceivesOnly) == 0;
  hashes_ = options_.hash || (theirs & kHashes) != 0;
  done_told_ = false;
  sending_ = {};
  receiving_ = {};
  written_before_ = output_.written();
  began_ = monotonic_now();
  due_ = kNever;
  state_ = State::open;
}

// ---- messages of the peer

// A peer that breaks the protocol ends the transfer.
void Transfer::check(Breach breach) {
  if (breach != nullptr) give_up(Reason::protocol, std::string("the peer broke the protocol: ") + breach);
}

void Transfer::on_data(am::Token& token) {
  if (!of_peer(token)) return;
  const Bytes bytes = token.payload();
  const Breach breach = receives_ ? receiving_.data(token.wide(0), bytes.size()) : "data that is not wanted";
  if (breach != nullptr) return check(breach);
  receiving_.add(bytes, hashes_);
  output_.write(bytes);
}

void Transfer::on_grant(am::Token& token) {
  if (of_peer(token)) check(sending_.grant(token.wide(0)));
}

void Transfer::on_end(am::Token& token) {
  if (!of_peer(token)) return;
  check(receives_ ? receiving_.end(token.wide(0)) : "an end of data that is not wanted");
  if (!over() && hashes_ && token.argument(2) != receiving_.tally().crc32c()) {
    give_up(Reason::digest, "the digest of what was received is another one than the peer's");
  }
}

void Transfer::on_done(am::Token& token) {
  if (of_peer(token)) check(sending_.done(token.wide(0)));
}

void Transfer::on_abort(am::Token& token) {
  if (of_peer(token)) fail("the peer gives up: " + std::string(to_string(static_cast<Reason>(token.argument(0)))));
}

// ---- bytes

bool Transfer::wants_input() const noexcept {
  return open() && sends_ && !input_ended_ && input_left_ != 0 && sending_.room() != 0 && endpoint_.has_credit(kPeer);
}

bool Transfer::move() {
  // A handler cannot map. If this fails, the peer is gone.
  if (!endpoint_.in_use(kPeer)) static_cast<void>(endpoint_.map_back(kPeer, source_));
  bool moved = output_.flush();
  moved |= send_input();
  moved |= send_end();
  moved |= confirm();
  if (!open()) return true;
  if (output_.error() != 0) {
    const bool closed = output_.error() == EPIPE;
    give_up(Reason::output, closed ? "standard output was closed by its reader" : errno_text("standard output", output_.error()));
  } else if ((!sends_ || sending_.confirmed()) && (!receives_ || done_told_)) {
    state_ = State::over;
  } else if (!endpoint_.is_open(kPeer)) {
    fail(lost());
  }
  return moved || over();
}

// Reads straight into the messages.
bool Transfer::send_input() {
  const uint64_t piece = endpoint_.is_local(kPeer) ? am::kMediumMax : am::kPieceMax;  // a lost frame of a wire then costs little
  for (int reads = 0; reads < kReadsMax; ++reads) {
    if (!wants_input()) return reads != 0;
    const auto length = static_cast<uint32_t>(std::min({piece, sending_.room(), input_left_}));
    const MutableBytes room = endpoint_.reserve(kPeer, length, am::Words<uint64_t>::kCount);
    if (room.empty() || !open()) return true;  // the peer is gone, as move() sees
    const ssize_t size = input_.read(room);
    if (size == -EAGAIN) return reads != 0;
    if (size < 0) {
      give_up(Reason::input, errno_text("standard input", static_cast<int>(-size)));
      return true;
    }
    input_ended_ = size == 0;
    if (input_ended_) return true;
    const uint64_t offset = sending_.tally().count();
    const auto taken = static_cast<uint32_t>(size);
    input_left_ -= taken;
    sending_.add(room.first(taken), hashes_);
    if (endpoint_.commit(kData, taken, am::Words<uint64_t>(offset)) != am::Outcome::sent) return true;
  }
  return true;
}

bool Transfer::send_end() {
  if (!sends_ || sending_.ended() || (!input_ended_ && input_left_ != 0) || !endpoint_.has_credit(kPeer)) return false;
  sending_.end();
  endpoint_.request(kPeer, kEnd, sending_.tally().count(), sending_.tally().crc32c());
  return true;
}

// Tells the peer what has been written: room for more data, and at the end all of it.
bool Transfer::confirm() {
  if (!receives_ || done_told_ || !endpoint_.has_credit(kPeer)) return false;
  if (receiving_.ended() && output_.empty() && output_.error() == 0) {
    if (!options_.keep) output_.close();
    if (output_.error() != 0) return true;
    done_told_ = true;
    endpoint_.request(kPeer, kDone, receiving_.tally().count());
    return true;
  }
  const auto to = receiving_.grant(output_.written() - written_before_);
  if (to) endpoint_.request(kPeer, kGrant, *to);
  return to.has_value();
}

std::string Transfer::lost() const {
  const auto why = [&]() -> const char* {
    const auto reason = endpoint_.close_reason(kPeer);
    if (!reason) return "the peer cannot be reached any more";
    switch (*reason) {
      case control::CloseReason::closed_by_peer: return "the peer has ended too early";
      case control::CloseReason::peer_died: return "the peer has died";
      case control::CloseReason::ni_stopped: return "the network interface has stopped";
      case control::CloseReason::wire_lost: return "the wire to the peer is lost";
    }
    return "the channel to the peer has closed";
  };
  return std::string(why()) + ": " + std::to_string(sent().count()) + " bytes were sent and " + std::to_string(received().count()) +
         " received";
}

}  // namespace unet::unetcat
