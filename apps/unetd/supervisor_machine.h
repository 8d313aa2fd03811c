// supervisor_machine.h - the supervisor behind supervisor.h: its children, the state it holds for them, and its reactions to events; used
// by supervisor.cc (processes, signals, time) and supervisor_orders.cc (messages from and to children).
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/unetd/supervisor_origin.h"
#include "apps/unetd/options.h"
#include "apps/unetd/privileges.h"
#include "ni/service/journal_store.h"
#include "unet/base/time.h"

namespace unet::unetd {

// A child process, which is an NI.
struct Child {
  pid_t pid = -1;
  std::unique_ptr<service::JournalLink> link;
  Origin origin;
  bool candidate = false;   // started for an upgrade
  std::string failure;      // why the supervisor killed it; empty: it did not
  bool greeted = false;   // its hello came and was valid
  bool has_all = false;   // the whole journal was sent to it
  std::optional<service::JournalStore::Progress> giving;  // progress of sending the journal
  bool full = false;      // its socket has no room
  bool ready = false;
  bool told_release = false;
  bool released = false;  // it has closed its wires, and is exiting
};

class Supervisor {
 public:
  Supervisor(const Options& options, std::vector<std::string> arguments)
      : options_(options), program_(path_of(arguments.at(0))), arguments_(std::move(arguments)) {}
  int run();

 private:
  static constexpr Nanoseconds kSpareAfter = 50 * kMillisecond;  // after readiness: applications get the cores first

  // Whether a child reads configuration and policy anew, or takes those in force.
  enum class Reads { anew, as_before };

  // supervisor.cc
  Status set_up();
  Result<Child> start(Origin origin, Reads reads);
  [[noreturn]] void become(const Origin& origin, Reads reads, int link);
  Origin newest();
  void wait();
  void on_time(Nanoseconds now);
  void on_deadline(Nanoseconds now);
  void on_signals();
  void on_stop();
  void on_reload();
  void on_end(pid_t pid, int status);
  void on_active_end(int status);
  void hand_over();
  void replace();
  void start_spare();
  void end_spare();
  void on_spare_end(const std::string& why);
  bool can_fall_back(const Child& child) const;
  void fall_back(const Child& failed, const std::string& why);
  bool too_many_faults(const Child& child, int status);
  static void kill_child(Child& child, std::string why);
  void let_go_of(Child& child);
  void end_children();
  void remove_control_socket();
  void give_up(const std::string& why);
  void end(int status) { exit_status_ = exit_status_ ? exit_status_ : std::optional<int>(status); }

  // supervisor_orders.cc
  void give_all(Child& child);
  void tell(Child& child, service::JournalOp op, Bytes text = {});
  void push_on(Child& child);
  void drain(Child& child, uint32_t packets_max = ~uint32_t{0});  // without a limit for a dead child
  void on_link(Child& child);
  void on_order(Child& child, const service::JournalItem& item);
  void on_hello(Child& child, const service::JournalItem& item);
  std::string what_cannot_change(const service::JournalHello& hello) const;
  void on_ready(Child& child);
  void on_upgrade(const service::JournalItem& item);
  void end_candidate(const std::string& why);
  void tell_upgrade(const std::string& refusal);
  void tell_outcome();

  Nanoseconds patience() const { return options_.config.takeover; }

  const Options& options_;
  std::string program_;            // path of the next program
  bool named_ = false;             // an NI named that path
  Origin good_;                    // of the last NI that served
  std::vector<std::string> arguments_;
  sigset_t signals_before_{};
  Descriptor signals_;
  service::JournalStore store_;
  Child active_;
  std::optional<Child> next_;
  std::optional<Child> spare_;     // standby: has loaded, and waits until the active one ends
  bool spare_by_path_ = true;      // false: from the serving NI's file, because the one at the path did not come up
  std::vector<pid_t> leaving_;     // exiting children; their status does not matter
  uint32_t format_ = service::kJournalFormat;  // of the journal
  std::optional<std::string> outcome_;  // of the last upgrade, until reported: why it was refused; empty: it succeeded
  std::optional<SocketFile> socket_file_;
  bool announced_ = false;
  bool stopping_ = false;          // after a signal to stop
  bool reload_asked_ = false;      // a SIGHUP came while no NI could handle it
  bool fell_back_ = false;         // since the last NI that became ready
  bool told_to_keep_nothing_ = false;
  Nanoseconds deadline_ = ~Nanoseconds{0};  // for the one that must become ready
  Nanoseconds next_by_ = ~Nanoseconds{0};   // when the candidate must have said hello
  Nanoseconds again_ = ~Nanoseconds{0};     // when to start the next one
  Nanoseconds spare_at_ = ~Nanoseconds{0};  // when to start a standby NI
  Nanoseconds tell_at_ = ~Nanoseconds{0};   // when to go on sending
  uint32_t faults_ = 0;
  Nanoseconds first_fault_ = 0;
  std::optional<int> exit_status_;
};

}  // namespace unet::unetd
