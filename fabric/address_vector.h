// address_vector.h - the object of fi_av_open(): numbers for the addresses of peers; used by endpoints that are bound to it.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "fabric/address.h"
#include "fabric/domain.h"

namespace unet::fabric {

// fi_ops_domain::av_open.
int open_address_vector(fid_domain* domain, fi_av_attr* attributes, fid_av** vector, void* context);

class EventQueue;

// Numbers are given out in order and never again, for both kinds of address vectors. Call the functions with the domain's lock.
class AddressVector : public fid_av {
 public:
  AddressVector(Domain& domain, uint64_t flags, void* context) noexcept;

  // The first number that was given to this peer, a target() of this host; FI_ADDR_NOTAVAIL.
  fi_addr_t find(const std::string& target) const noexcept;
  // nullptr: no such number.
  const Address* get(fi_addr_t number) const noexcept {
    return number < addresses_.size() && !addresses_[number].name.empty() ? &addresses_[number] : nullptr;
  }
  fi_addr_t insert(Address address);
  bool remove(fi_addr_t number) noexcept;
  // Changes with each insertion: the answers of find() may have changed.
  size_t size() const noexcept { return addresses_.size(); }

  Domain& domain() noexcept { return domain_; }
  // Where the ends of asynchronous insertions are told; nullptr: nowhere.
  EventQueue* events() noexcept { return events_; }
  void set_events(EventQueue& queue) noexcept { events_ = &queue; }
  bool is_asynchronous() const noexcept { return asynchronous_; }
  // The endpoints that use it. Call these with the domain's lock.
  void add_endpoint(Endpoint& endpoint) { endpoints_.push_back(&endpoint); }
  void remove_endpoint(const Endpoint& endpoint) noexcept { std::erase(endpoints_, &endpoint); }
  bool is_bound() const noexcept { return !endpoints_.empty(); }

 private:
  Domain& domain_;
  const bool asynchronous_;
  EventQueue* events_ = nullptr;
  std::vector<Endpoint*> endpoints_;
  std::vector<Address> addresses_;  // with an empty name: removed
  std::unordered_map<std::string, fi_addr_t> numbers_;
};

}  // namespace unet::fabric
