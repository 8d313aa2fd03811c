// address_vector.cc - see address_vector.h.
#include "fabric/address_vector.h"

#include <algorithm>
#include <cstring>

#include "fabric/endpoint.h"
#include "fabric/event_queue.h"
#include "fabric/operations_table.h"
#include "fabric/provider.h"

namespace unet::fabric {
namespace {

AddressVector& of(fid_av* vector) noexcept { return *static_cast<AddressVector*>(vector); }
bool takes_strings(fid_av* vector) noexcept { return of(vector).domain().address_format() == kStringFormat; }

int close_vector(fid* fid) {
  auto* const vector = reinterpret_cast<AddressVector*>(fid);
  {
    const Locked held(vector->domain().lock());
    if (vector->is_bound()) return -FI_EBUSY;
  }
  if (vector->events() != nullptr) vector->events()->remove_vector();
  vector->domain().closed();
  delete vector;
  return 0;
}

int bind_vector(fid* fid, struct fid* to, uint64_t flags) {
  if (to->fclass != FI_CLASS_EQ || flags != 0) return -FI_EINVAL;
  auto* const vector = reinterpret_cast<AddressVector*>(fid);
  auto* const queue = reinterpret_cast<EventQueue*>(to);
  if (vector->events() != nullptr) vector->events()->remove_vector();
  queue->add_vector();
  vector->set_events(*queue);
  return 0;
}

// ---- insertion

// Inserts `count` addresses, of which next() returns the next one: nullopt if it is none. Returns how many were inserted; an asynchronous
// address vector tells that by an event.
template <typename Next>
int insert_all(AddressVector& vector, size_t count, fi_addr_t* numbers, uint64_t flags, void* context, const Next& next) {
  if ((flags & ~(FI_MORE | FI_SYNC_ERR)) != 0) return -FI_EINVAL;
  if (vector.is_asynchronous() && vector.events() == nullptr) return -FI_ENOEQ;
  return guarded([&]() -> int {
    const Locked locked(vector.domain().lock());
    int inserted = 0;
    for (size_t i = 0; i < count; ++i) {
      const std::optional<Address> address = next(i);
      if (address) ++inserted;
      const fi_addr_t number = address ? vector.insert(*address) : FI_ADDR_NOTAVAIL;
      if (numbers != nullptr) numbers[i] = number;
      if ((flags & FI_SYNC_ERR) != 0) static_cast<int*>(context)[i] = address ? 0 : FI_EINVAL;
      if (!address) warn(FI_LOG_AV, "an address is neither unet://HOST/NAME nor the binary form of one");
    }
    if (!vector.is_asynchronous()) return inserted;
    vector.events()->write(FI_AV_COMPLETE, {&vector.fid, context, static_cast<uint64_t>(inserted)});
    return 0;
  });
}

int insert(fid_av* vector, const void* addresses, size_t count, fi_addr_t* numbers, uint64_t flags, void* context) {
  const char* const text = static_cast<const char*>(addresses);
  // Both a string and the array of strings that FI_ADDR_STR asks for occur; no pointer looks like the beginning of a string address.
  constexpr char kBegin[] = "unet://";
  const bool is_string = count == 1 && std::strncmp(text, kBegin, sizeof kBegin - 1) == 0;
  return insert_all(of(vector), count, numbers, flags, context, [&](size_t i) -> std::optional<Address> {
    if (is_string) return parse_text(text);
    if (takes_strings(vector)) return parse_text(static_cast<char* const*>(addresses)[i]);
    return parse_binary(text + i * kBinaryBytes);
  });
}

int insert_service(fid_av* vector, const char* node, const char* service, fi_addr_t* number, uint64_t flags, void* context) {
  if (service == nullptr && node == nullptr) return -FI_EINVAL;
  return insert_all(of(vector), 1, number, flags, context, [&](size_t) {
    if (service == nullptr) return parse_text(node);
    return parse_text("unet://" + std::string(node != nullptr ? node : of(vector).domain().host()) + '/' + service);
  });
}

int remove(fid_av* vector, fi_addr_t* numbers, size_t count, uint64_t flags) {
  if (flags != 0) return -FI_EINVAL;
  const Locked locked(of(vector).domain().lock());
  bool known = true;
  for (size_t i = 0; i < count; ++i) known &= of(vector).remove(numbers[i]);
  return known ? 0 : -FI_EINVAL;
}

int lookup(fid_av* vector, fi_addr_t number, void* to, size_t* length) {
  return guarded([&]() -> int {
    const Locked locked(of(vector).domain().lock());
    const Address* const address = of(vector).get(number);
    return address != nullptr ? give(*address, of(vector).domain().address_format(), to, length) : -FI_EINVAL;
  });
}

const char* to_text(fid_av* vector, const void* address, char* to, size_t* length) {
  std::string text = "(no address)";
  const char* const bytes = static_cast<const char*>(address);
  if (takes_strings(vector)) {
    text = bytes;
  } else if (const auto parsed = parse_binary(bytes)) {
    text = parsed->text();
  }
  const size_t room = std::exchange(*length, text.size() + 1);
  if (room > 0) *std::copy_n(text.data(), std::min(room - 1, text.size()), to) = '\0';
  return to;
}

fi_ops kFidOps = fid_ops(close_vector, bind_vector);
fi_ops_av kOps = {
    .size = sizeof(fi_ops_av),
    .insert = insert,
    .insertsvc = insert_service,
    .insertsym = [](fid_av*, const char*, size_t, const char*, size_t, fi_addr_t*, uint64_t, void*) { return -FI_ENOSYS; },
    .remove = remove,
    .lookup = lookup,
    .straddr = to_text,
    .av_set = [](fid_av*, fi_av_set_attr*, fid_av_set**, void*) { return -FI_ENOSYS; },
};

}  // namespace

AddressVector::AddressVector(Domain& domain, uint64_t flags, void* context) noexcept
    : fid_av{{FI_CLASS_AV, context, &kFidOps}, &kOps}, domain_(domain), asynchronous_((flags & FI_EVENT) != 0) {
  domain_.opened();
}

fi_addr_t AddressVector::find(const std::string& target) const noexcept {
  const auto at = numbers_.find(target);
  return at != numbers_.end() ? at->second : FI_ADDR_NOTAVAIL;
}

fi_addr_t AddressVector::insert(Address address) {
  numbers_.try_emplace(address.target(domain_.host()), addresses_.size());
  addresses_.push_back(std::move(address));
  return addresses_.size() - 1;
}

bool AddressVector::remove(fi_addr_t number) noexcept {
  if (get(number) == nullptr) return false;
  const std::string target = addresses_[number].target(domain_.host());
  for (Endpoint* const endpoint : endpoints_) endpoint->forget(number, target);
  const auto at = numbers_.find(target);
  if (at != numbers_.end() && at->second == number) numbers_.erase(at);
  addresses_[number] = {};
  return true;
}

int open_address_vector(fid_domain* domain, fi_av_attr* attributes, fid_av** vector, void* context) {
  if (attributes == nullptr || (attributes->flags & ~uint64_t{FI_EVENT}) != 0 || attributes->rx_ctx_bits != 0) return -FI_EINVAL;
  if (attributes->name != nullptr) return -FI_ENOSYS;
  return guarded([&] {
    *vector = new AddressVector(*static_cast<Domain*>(domain), attributes->flags, context);
    if (attributes->type == FI_AV_UNSPEC) attributes->type = FI_AV_MAP;
    return 0;
  });
}

}  // namespace unet::fabric
