// journal.h - a network interface's end of its journal: what it writes down so that the next one can go on; used by Service and Ni.
//
// Nothing leaves for a client before it counts in the journal, and no request is taken from a client's socket before what came of it
// has left (Service::settle). So whenever the network interface is stopped, the one after it finds all of a request or nothing of it.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "unet/service/journal_link.h"

namespace unet::service {

class Journal {
 public:
  // `socket` leads to the keeper, which is told who we are.
  static Result<std::unique_ptr<Journal>> open(Descriptor socket);

  // Waits until the network interface before this one has gone, and takes what it had; nothing if this is the first. Once.
  // Errors: disconnected (the keeper is gone), protocol.
  Status inherit();
  std::vector<JournalItem> take_inherited() noexcept { return std::move(inherited_); }
  bool resumes() const noexcept { return resumes_; }
  // A descriptor of a record that was inherited and not taken yet; -1 if there is none.
  int inherited_descriptor(JournalKind kind, size_t index) const noexcept;

  template <typename T>
  void put(JournalKind kind, uint32_t a, uint64_t b, const T& value, std::initializer_list<int> descriptors = {}) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_bytes({kind, a, b}, as_bytes(&value, sizeof value), {descriptors.begin(), descriptors.size()});
  }
  void put_bytes(const JournalKey& key, Bytes value, std::span<const int> descriptors);
  void erase(JournalKind kind, uint32_t a, uint64_t b = 0);
  void order(JournalOp op, std::string_view text = {});
  // From here on all of that counts.
  void commit();

  bool pending() const noexcept { return link_.pending(); }

  // What the keeper wants: release or refused.
  std::optional<JournalItem> next_order();
  // The keeper is gone: nobody keeps anything any more.
  bool lost() const noexcept { return lost_; }
  // Readable when there is an order, or when the keeper is gone.
  int descriptor() const noexcept { return link_.descriptor(); }

 private:
  explicit Journal(Descriptor socket) noexcept : link_(std::move(socket)) {}
  void check(const Status& status) noexcept { lost_ = lost_ || !status; }

  JournalLink link_;
  std::vector<JournalItem> inherited_;
  std::vector<JournalItem> orders_;
  bool resumes_ = false;
  bool lost_ = false;
};

}  // namespace unet::service
