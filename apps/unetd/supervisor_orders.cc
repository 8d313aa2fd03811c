// supervisor_orders.cc - the supervisor's messages from and to its children: hello, journal, readiness, upgrades and their outcome.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "apps/unetd/supervisor_machine.h"
#include "apps/unetd/notify.h"
#include "ni/service/log.h"
#include "ni/service/names.h"

namespace unet::unetd {

using service::JournalItem;
using service::JournalLink;
using service::JournalOp;

namespace {

constexpr Nanoseconds kTellAgain = kMillisecond;  // retry after the kernel lacked memory
constexpr uint32_t kPacketsPerTurn = 64;          // of one child, which may write without end

}  // namespace

void Supervisor::give_all(Child& child) {
  if (std::exchange(child.has_all, true) || !child.link) return;
  child.giving.emplace();
  push_on(child);
}

void Supervisor::tell(Child& child, JournalOp op, Bytes text) {
  if (!child.link || child.giving) return;
  if (!child.link->fits(text.size(), 0)) return kill_child(child, "was ended, as it does not read what it is told");
  if (Status status = child.link->add(op, {}, text); !status) return kill_child(child, status.error().text);
  push_on(child);
}

// Sends as much of the journal as the child takes now.
void Supervisor::push_on(Child& child) {
  if (!child.link || !(child.giving || child.link->pending())) return;
  const Result<JournalLink::Sent> sent =
      child.giving ? store_.send_some(*child.link, *child.giving) : child.link->send_now(true);
  child.full = sent && *sent == JournalLink::Sent::no_room;
  if (sent && *sent == JournalLink::Sent::no_memory) tell_at_ = monotonic_now() + kTellAgain;
  if (!sent || *sent == JournalLink::Sent::all) child.giving.reset();
  if (!sent) kill_child(child, sent.error().text);
}

void Supervisor::drain(Child& child, uint32_t packets_max) {
  for (uint32_t packets = 0; child.link && packets < packets_max; ++packets) {
    std::vector<JournalItem> items, orders;
    bool last = false;
    const JournalLink::Received received = child.link->receive(items, last);
    if (received == JournalLink::Received::nothing || received == JournalLink::Received::closed) return;
    if (received == JournalLink::Received::broken || !store_.take(std::move(items), last, orders)) {
      service::log::error("what the network interface writes is no journal: it is ended");
      store_.forget_pending();
      kill_child(child, "was ended, as it wrote what is no journal");
      child.link.reset();
      return;
    }
    for (const JournalItem& order : orders) on_order(child, order);
  }
}

void Supervisor::on_link(Child& child) {
  // A child that is not active yet may only send hello.
  const bool spare = spare_ && &child == &*spare_;
  if (spare || (next_ && &child == &*next_)) {
    std::vector<JournalItem> items;
    bool last = false;
    const JournalLink::Received received = child.link->receive(items, last);
    if (received == JournalLink::Received::items && items.size() == 1 && items[0].op == JournalOp::hello) return on_hello(child, items[0]);
    if (received == JournalLink::Received::closed) child.link.reset();  // its exit follows
    else if (received != JournalLink::Received::nothing && spare) {
      on_spare_end("wrote what is no journal");
    } else if (received != JournalLink::Received::nothing) {
      end_candidate("the new unetd (" + child.origin.path + ") wrote what is no journal");
    }
    return;
  }
  push_on(child);
  if (child.giving) return;  // no packet is expected before it has all
  drain(child, kPacketsPerTurn);
  if (child.released && next_) return hand_over();
  if (!child.link) return;
  pollfd ended{.fd = child.link->descriptor(), .events = POLLIN, .revents = 0};
  if (::poll(&ended, 1, 0) == 1 && (ended.revents & POLLHUP) != 0) {
    drain(child);
    child.link.reset();  // its exit follows
  }
}

void Supervisor::on_order(Child& child, const JournalItem& item) {
  switch (item.op) {
    case JournalOp::hello: return on_hello(child, item);
    case JournalOp::ready: return on_ready(child);
    case JournalOp::upgrade: return on_upgrade(item);
    case JournalOp::stop:
      told_to_keep_nothing_ = true;
      return store_.clear();
    case JournalOp::released:
      child.released = true;
      return;
    default: return;
  }
}

void Supervisor::on_hello(Child& child, const JournalItem& item) {
  const bool upgrade = next_ && &child == &*next_, spare = spare_ && &child == &*spare_;
  service::JournalHello hello{};
  if (child.greeted || !item.read(hello)) {
    const std::string why = "said hello in a way that is not known";
    if (upgrade) return end_candidate("the new unetd (" + child.origin.path + ") " + why + ": it is of another release");
    if (spare) return on_spare_end(why);
    return kill_child(child, "was ended, as it " + why);
  }
  child.greeted = true;
  hello.version[sizeof hello.version - 1] = hello.socket[sizeof hello.socket - 1] = '\0';
  if (store_.size() != 0 && hello.format != format_) {
    const std::string why = "unetd " + service::in_quotes(hello.version) + " writes journals of format " + std::to_string(hello.format) +
                            ", and cannot go on with one of format " + std::to_string(format_) +
                            ": drain and stop the network interface, then start the new one (unetctl drain --wait)";
    if (upgrade) return end_candidate(why);
    if (spare) return on_spare_end("is of another release: " + why);
    return can_fall_back(child) ? kill_child(child, "is of another release: " + why) : give_up(why);
  }
  if (const std::string why = what_cannot_change(hello); child.candidate && !why.empty()) {
    return upgrade ? end_candidate(why) : kill_child(child, "cannot go on: " + why);  // the old NI has ended meanwhile
  }
  if (spare) return;
  if (store_.size() == 0) format_ = hello.format;
  if (upgrade) {
    next_by_ = ~Nanoseconds{0};
    deadline_ = monotonic_now() + patience();
    active_.told_release = true;
    return tell(active_, JournalOp::release);  // fails if the active NI has ended, which is handled next
  }
  give_all(child);
}

// Facts that clients and the supervisor rely on, and that a takeover cannot change. Empty: they are unchanged.
std::string Supervisor::what_cannot_change(const service::JournalHello& hello) const {
  const std::string socket = hello.socket;
  if (socket != options_.config.ni.socket) {
    return "its configuration names the control socket " + service::in_quotes(socket) + ", and clients are connected at " +
           service::in_quotes(options_.config.ni.socket) + ": a takeover cannot change that";
  }
  if (hello.user == options_.config.ni.service.own_user) return {};
  return "its configuration makes it user " + std::to_string(hello.user) + "'s, and it is user " +
         std::to_string(options_.config.ni.service.own_user) + "'s: a takeover cannot change that";
}

void Supervisor::on_ready(Child& child) {
  if (std::exchange(child.ready, true)) return;
  fell_back_ = false;
  if (!stopping_) deadline_ = ~Nanoseconds{0};
  if (child.candidate) outcome_ = std::string();
  good_ = child.origin.again();
  program_ = good_.path;
  named_ = good_.named;
  if (spare_ && !spare_->origin.same_program(good_)) end_spare();
  spare_by_path_ = true;
  spare_at_ = monotonic_now() + kSpareAfter;
  tell_outcome();
  // The child may have ended after its message; a signal to pid -1 would go to every process.
  if (child.pid > 0 && std::exchange(reload_asked_, false)) ::kill(child.pid, SIGHUP);
  if (child.pid > 0 && stopping_) ::kill(child.pid, SIGTERM);
  if (std::exchange(announced_, true)) return;
  socket_file_ = socket_file_at(options_.config.ni.socket);
  announce_ready(options_.config.ni.socket, options_.ready_fd);
}

void Supervisor::on_upgrade(const JournalItem& item) {
  const std::string wanted(reinterpret_cast<const char*>(item.value.data()), item.value.size());
  const std::string path = wanted.empty() ? program_ : wanted;
  outcome_.reset();
  const bool has_less_rights = options_.account && options_.account->user != geteuid();
  if (!wanted.empty() && has_less_rights) {
    return tell_upgrade("the supervisor has rights that the network interface has not, and runs no program but " + program_ +
                        ": put the new one there, and upgrade without naming it");
  }
  Origin origin = Origin::at(path, named_ || !wanted.empty());
  if (Status status = origin.check(); !status) return tell_upgrade(status.error().text);
  if (next_ || stopping_) return tell_upgrade("another upgrade or a stop is under way");
  end_spare();
  Result<Child> child = start(std::move(origin), Reads::anew);
  if (!child) return tell_upgrade(child.error().text);
  next_ = std::move(*child);
  next_->candidate = true;
  next_by_ = monotonic_now() + patience();
}

// Ends a candidate that has not taken over; the serving NI goes on.
void Supervisor::end_candidate(const std::string& why) {
  const bool serves = active_.pid > 0 && active_.ready && !active_.told_release;
  if (serves) reload_asked_ = false;  // it got the signal
  let_go_of(*next_);
  next_.reset();
  next_by_ = ~Nanoseconds{0};
  if (serves && !stopping_) deadline_ = ~Nanoseconds{0};
  spare_at_ = monotonic_now() + kSpareAfter;
  tell_upgrade(why);
}

void Supervisor::tell_upgrade(const std::string& refusal) {
  outcome_ = refusal;
  tell_outcome();
}

// The serving NI reports the outcome to the client that requested the upgrade; if it ends first, the next NI does. The request stays in the
// journal until it is answered.
void Supervisor::tell_outcome() {
  if (!store_.holds(service::JournalKind::upgrade)) outcome_.reset();
  if (!outcome_ || !active_.ready || active_.pid <= 0) return;
  const Bytes why = as_bytes(outcome_->data(), std::min(outcome_->size(), JournalLink::kValueMax));
  tell(active_, outcome_->empty() ? JournalOp::upgraded : JournalOp::refused, why);
}

}  // namespace unet::unetd
