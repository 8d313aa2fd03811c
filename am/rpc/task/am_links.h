// am_links.h - links of agents and launchers over an Active Message endpoint.
//
// A link is one channel with requests both ways. A record is one request: a short one, or a medium one with the payload.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "am/endpoint.h"
#include "am/rpc/task/job.h"

namespace unet::rpc {

// The machine above the links. No function is called from another one of AmLinks than poll(), but admits().
class LinkOwner {
 public:
  virtual ~LinkOwner() = default;
  // Whether a process may connect: of host `host`, or of user `user` of this host if `host` is empty.
  virtual bool admits(const std::string& host, int user) = 0;
  virtual void receive(const Caller& from, uint64_t key, const TaskRecord& record) = 0;
  virtual void lost(Links::Id link, const TaskFailure& why) = 0;
};

class AmLinks : public Links {
 public:
  // `name`: to bind; empty: none, as no process connects. `secret`: 0, or a number that both ends of a link to another host must know
  // (am::Endpoint::require_tag_bits()).
  // Errors: those of am::Endpoint::create() and bind().
  static Result<std::unique_ptr<AmLinks>> create(Context& context, const std::string& name, uint64_t secret, LinkOwner& owner);
  AmLinks(const AmLinks&) = delete;
  AmLinks& operator=(const AmLinks&) = delete;

  Id open(const std::string& target) override;
  Id open_back(uint64_t source);  // as Site::open_back()
  void close(Id link) override;
  bool send(Id link, uint64_t key, const TaskRecord& record) override;

  // Gives all that has arrived or ended to the owner.
  void poll(Nanoseconds now);
  // For an event loop, as those of am::Endpoint. arm(): false: poll() has work.
  Result<int> descriptor() { return endpoint_->descriptor(); }
  bool arm(Nanoseconds& limit);
  // Waits until all that was sent has arrived, but not for longer.
  void flush(Nanoseconds timeout) { static_cast<void>(endpoint_->flush(timeout)); }

 private:
  static constexpr uint8_t kHandler = 1;
  static constexpr size_t kTagsMax = 4096;
  static constexpr Nanoseconds kIdleMax = 5 * kSecond;  // a link that leads to an agent is cheap to keep, and costly to open
  struct Link {
    std::string target;       // of open()
    uint64_t source = 0;      // of open_back()
    uint32_t users = 0;
    bool used = false;        // false: a free place of the table
    bool lost = false;
    Nanoseconds idle_at = 0;  // since when it has no user; 0: not known yet
  };
  struct Arrival {
    Caller from;
    uint64_t key;
    TaskRecord record;  // payload: that of `bytes`
    std::vector<std::byte> bytes;
  };

  AmLinks(uint64_t secret, LinkOwner& owner) : owner_(owner), tag_(secret == 0 ? am::kAnyTag : secret) {}
  static bool admit(const ConnectionRequest& request, void* self);
  static void arrive(am::Token& token, void* self);
  static void come_back(am::Endpoint& endpoint, const am::Returned& returned, void* self);
  uint32_t add(Link link);
  void lose(uint32_t index, const TaskFailure& why);

  LinkOwner& owner_;
  am::Tag tag_;
  std::vector<Link> links_;  // by translation
  std::map<uint64_t, am::Tag> tags_;  // by caller: its own tag goes back to it, and ours to no caller that does not know it
  bool blocked_ = false;     // a link had no room since the last poll()
  std::vector<Arrival> arrived_;
  std::vector<std::pair<uint32_t, TaskFailure>> failures_;  // of links
  std::unique_ptr<am::Endpoint> endpoint_;
};

}  // namespace unet::rpc
