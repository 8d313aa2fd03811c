// info.cc - fi_getinfo(): compares the hints with what the provider has, and fills the answer.
#include "fabric/info.h"

#include <cstdlib>
#include <cstring>

#include "fabric/address.h"
#include "fabric/network_interface.h"
#include "fabric/provider.h"

namespace unet::fabric {
namespace {

constexpr uint64_t kMessages = FI_MSG | FI_TAGGED, kRemote = FI_RMA | FI_ATOMIC, kKinds = kMessages | kRemote;
constexpr uint64_t kDirections = FI_SEND | FI_RECV, kRemoteDirections = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr uint64_t kReceiveExtras = FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV | FI_RMA_EVENT;
constexpr uint64_t kReach = FI_LOCAL_COMM | FI_REMOTE_COMM;
constexpr uint64_t kTransmitCaps = kKinds | FI_FENCE | FI_SEND | FI_READ | FI_WRITE;
constexpr uint64_t kReceiveCaps = kKinds | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | kReceiveExtras;
constexpr uint64_t kCaps = kTransmitCaps | kReceiveCaps | kReach;
constexpr uint64_t kDatagramCaps = FI_MSG | kDirections | FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV | kReach;
constexpr uint64_t kTransmitFlags = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
constexpr uint64_t kReceiveFlags = FI_COMPLETION | FI_MULTI_RECV;
constexpr size_t kRegionsMax = 1024 * 1024;
constexpr size_t kObjectsMax = 4096;  // completion queues, endpoints and others of a domain
constexpr uint64_t kTagFormat = ~uint64_t{0};
constexpr char kFabricName[] = "unet";
constexpr uint64_t kByUtility = uint64_t{1} << 59;  // a flag of calls by libfabric's layers ofi_rxd and ofi_rxm

// Explains in the log why hints are refused.
class Judge {
 public:
  explicit Judge(const fi_info* hints) noexcept : hints_(hints) {}
  bool accepts() noexcept {
    if (hints_ == nullptr) return true;
    may(hints_->caps, kCaps, "caps");
    may_be(hints_->addr_format, kBinaryFormat, kStringFormat, "addr_format");
    if (hints_->tx_attr != nullptr) transmit(*hints_->tx_attr);
    if (hints_->rx_attr != nullptr) receive(*hints_->rx_attr);
    if (hints_->ep_attr != nullptr) endpoint(*hints_->ep_attr);
    if (hints_->domain_attr != nullptr) domain(*hints_->domain_attr);
    if (hints_->fabric_attr != nullptr && hints_->fabric_attr->name != nullptr) {
      require(std::strcmp(hints_->fabric_attr->name, kFabricName) == 0, "fabric_attr->name");
    }
    return accepted_;
  }

 private:
  void require(bool met, const char* what) noexcept {
    if (met) return;
    accepted_ = false;
    inform(FI_LOG_CORE, std::string("no endpoint can have the hint ") + what);
  }
  void may(uint64_t wanted, uint64_t had, const char* what) noexcept { require((wanted & ~had) == 0, what); }
  void at_most(uint64_t wanted, uint64_t had, const char* what) noexcept { require(wanted <= had, what); }
  void may_be(uint64_t wanted, uint64_t one, uint64_t other, const char* what) noexcept {
    require(wanted == 0 || wanted == one || wanted == other, what);
  }
  void transmit(const fi_tx_attr& of) noexcept {
    may(of.caps, kCaps, "tx_attr->caps");
    may(of.op_flags, kTransmitFlags, "tx_attr->op_flags");
    may(of.msg_order, kOrder, "tx_attr->msg_order");
    may(of.comp_order, 0, "tx_attr->comp_order");
    at_most(of.inject_size, kEagerMax, "tx_attr->inject_size");
    at_most(of.size, kTransmitSize, "tx_attr->size");
    at_most(of.iov_limit, kIovMax, "tx_attr->iov_limit");
    at_most(of.rma_iov_limit, 1, "tx_attr->rma_iov_limit");
  }
  void receive(const fi_rx_attr& of) noexcept {
    may(of.caps, kCaps, "rx_attr->caps");
    may(of.op_flags, kReceiveFlags, "rx_attr->op_flags");
    may(of.msg_order, kOrder, "rx_attr->msg_order");
    may(of.comp_order, 0, "rx_attr->comp_order");
    at_most(of.size, kReceiveSize, "rx_attr->size");
    at_most(of.iov_limit, kIovMax, "rx_attr->iov_limit");
  }
  void endpoint(const fi_ep_attr& of) noexcept {
    may_be(of.type, FI_EP_RDM, FI_EP_DGRAM, "ep_attr->type");
    if (of.type == FI_EP_DGRAM) may(hints_->caps, kDatagramCaps, "caps of datagrams");
    require(of.protocol == FI_PROTO_UNSPEC || of.protocol == kBinaryFormat, "ep_attr->protocol");
    at_most(of.max_msg_size, of.type == FI_EP_DGRAM ? kEagerMax : kMessageMax, "ep_attr->max_msg_size");
    at_most(of.max_order_raw_size | of.max_order_war_size | of.max_order_waw_size, 0, "ep_attr->max_order sizes");
    require(of.tx_ctx_cnt <= 1 && of.rx_ctx_cnt <= 1, "ep_attr->tx_ctx_cnt or rx_ctx_cnt");
    require(of.auth_key_size == 0, "ep_attr->auth_key");
  }
  void domain(const fi_domain_attr& of) noexcept {
    may_be(of.control_progress, FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO, "domain_attr->control_progress");
    may_be(of.data_progress, FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO, "domain_attr->data_progress");
    may_be(of.av_type, FI_AV_MAP, FI_AV_TABLE, "domain_attr->av_type");
    may(of.caps, kReach, "domain_attr->caps");
    at_most(of.mr_key_size, sizeof(uint64_t), "domain_attr->mr_key_size");
    at_most(of.cq_data_size, sizeof(uint64_t), "domain_attr->cq_data_size");
    at_most(of.cq_cnt, kObjectsMax, "domain_attr->cq_cnt");
    at_most(of.ep_cnt, kObjectsMax, "domain_attr->ep_cnt");
    at_most(of.tx_ctx_cnt, kObjectsMax, "domain_attr->tx_ctx_cnt");
    at_most(of.rx_ctx_cnt, kObjectsMax, "domain_attr->rx_ctx_cnt");
    at_most(of.cntr_cnt, kObjectsMax, "domain_attr->cntr_cnt");
    require(of.max_ep_tx_ctx <= 1 && of.max_ep_rx_ctx <= 1, "domain_attr->max_ep_tx_ctx or max_ep_rx_ctx");
    require(of.max_ep_stx_ctx == 0 && of.max_ep_srx_ctx == 0, "domain_attr->max_ep_stx_ctx or max_ep_srx_ctx");
    require(of.auth_key_size == 0, "domain_attr->auth_key");
  }

  const fi_info* hints_;
  bool accepted_ = true;
};

// ---- the answer

struct FreeInfo {
  void operator()(fi_info* info) const noexcept { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// What the answer has: the capabilities of the hints, or all; each with both directions if the hints name none.
uint64_t caps_of(const fi_info* hints, bool datagrams) noexcept {
  if (hints == nullptr || hints->caps == 0) return datagrams ? kDatagramCaps : kCaps;
  uint64_t caps = hints->caps | kReach;
  if ((caps & kKinds) == 0) caps |= datagrams ? FI_MSG : kKinds;
  if ((caps & kMessages) != 0 && (caps & kDirections) == 0) caps |= kDirections;
  if ((caps & kRemote) != 0 && (caps & kRemoteDirections) == 0) caps |= kRemoteDirections;
  return caps;
}

// Registration: keys and addresses are the program's, unless it asks for FI_MR_BASIC by name.
int mr_mode_of(uint32_t version, const fi_info* hints) noexcept {
  const int wanted = hints != nullptr && hints->domain_attr != nullptr ? hints->domain_attr->mr_mode : 0;
  if (wanted == FI_MR_BASIC || wanted == FI_MR_SCALABLE) return wanted;
  return FI_VERSION_LT(version, FI_VERSION(1, 5)) ? FI_MR_SCALABLE : 0;
}

template <typename T>
T or_else(T wanted, T otherwise) noexcept {
  return wanted != T{} ? wanted : otherwise;
}

bool set_address(const Address& address, uint32_t format, void*& to, size_t& length) {
  if (format == kStringFormat) {
    to = ::strdup(address.text().c_str());
    length = address.text().size() + 1;
  } else {
    const auto binary = address.binary();
    if (!binary) return false;
    to = std::malloc(binary->size());
    if (to != nullptr) std::memcpy(to, binary->data(), binary->size());
    length = binary->size();
  }
  return to != nullptr;
}

// The address that `node` and `service` name: a string address, or a host and an endpoint's name.
std::optional<Address> named(const char* node, const char* service, const std::string& own_host) {
  if (node != nullptr && service == nullptr) return parse_text(node);
  if (service == nullptr) return std::nullopt;
  const std::string host = node != nullptr ? node : own_host;
  return parse_text("unet://" + host + '/' + service);
}

int set_addresses(fi_info& info, const char* node, const char* service, uint64_t flags, const fi_info* hints, const std::string& host) {
  std::optional<Address> source, destination;
  if (node != nullptr || service != nullptr) {
    auto& to = (flags & FI_SOURCE) != 0 ? source : destination;
    if (to = named(node, service, host); !to) return -FI_ENODATA;
    if ((flags & FI_SOURCE) != 0 && source->host != host) return -FI_ENODATA;
  }
  if (hints != nullptr && hints->src_addr != nullptr && !source) {
    if (source = parse_bytes(hints->src_addr, hints->src_addrlen, hints->addr_format); !source) return -FI_ENODATA;
  }
  if (!source) source = Address{new_name(), host};
  if (hints != nullptr && hints->dest_addr != nullptr && !destination) {
    if (destination = parse_bytes(hints->dest_addr, hints->dest_addrlen, hints->addr_format); !destination) return -FI_ENODATA;
  }
  if (source && !set_address(*source, info.addr_format, info.src_addr, info.src_addrlen)) return -FI_ENODATA;
  if (destination && !set_address(*destination, info.addr_format, info.dest_addr, info.dest_addrlen)) return -FI_ENODATA;
  return 0;
}

void fill(fi_info& info, uint32_t version, const fi_info* hints, const std::string& host) {
  static constexpr fi_tx_attr kNoTransmit{};
  static constexpr fi_rx_attr kNoReceive{};
  static constexpr fi_domain_attr kNoDomain{};
  const fi_tx_attr& transmit = hints != nullptr && hints->tx_attr != nullptr ? *hints->tx_attr : kNoTransmit;
  const fi_rx_attr& receive = hints != nullptr && hints->rx_attr != nullptr ? *hints->rx_attr : kNoReceive;
  const fi_domain_attr& domain = hints != nullptr && hints->domain_attr != nullptr ? *hints->domain_attr : kNoDomain;
  const bool datagrams = hints != nullptr && hints->ep_attr != nullptr && hints->ep_attr->type == FI_EP_DGRAM;
  info.caps = caps_of(hints, datagrams);
  // A host's name may leave no room for a binary address.
  const uint32_t format = host.size() < kBinaryBytes / 2 ? kBinaryFormat : kStringFormat;
  info.addr_format = or_else(hints != nullptr ? hints->addr_format : 0, format);
  *info.tx_attr = {
      .caps = info.caps & kTransmitCaps,
      .mode = 0,
      .op_flags = transmit.op_flags,
      .msg_order = kOrder,
      .comp_order = FI_ORDER_NONE,
      .inject_size = kEagerMax,
      .size = or_else(transmit.size, kTransmitSize),
      .iov_limit = kIovMax,
      .rma_iov_limit = 1,
      .tclass = FI_TC_UNSPEC,
  };
  *info.rx_attr = {
      .caps = info.caps & kReceiveCaps,
      .mode = 0,
      .op_flags = receive.op_flags,
      .msg_order = kOrder,
      .comp_order = FI_ORDER_NONE,
      .total_buffered_recv = 0,
      .size = or_else(receive.size, kTransmitSize),
      .iov_limit = kIovMax,
  };
  fi_ep_attr& endpoint = *info.ep_attr;
  endpoint.type = datagrams ? FI_EP_DGRAM : FI_EP_RDM;  // datagrams are messages, and reliable too
  endpoint.protocol = kBinaryFormat;
  endpoint.protocol_version = 1;
  endpoint.max_msg_size = datagrams ? kEagerMax : kMessageMax;
  endpoint.mem_tag_format = kTagFormat;
  endpoint.tx_ctx_cnt = endpoint.rx_ctx_cnt = 1;
  fi_domain_attr& to = *info.domain_attr;
  to.name = ::strdup(host.c_str());
  to.threading = or_else(domain.threading, FI_THREAD_SAFE);
  to.control_progress = or_else(domain.control_progress, FI_PROGRESS_MANUAL);
  to.data_progress = or_else(domain.data_progress, FI_PROGRESS_MANUAL);
  to.resource_mgmt = FI_RM_ENABLED;
  to.av_type = domain.av_type;
  to.mr_mode = mr_mode_of(version, hints);
  to.mr_key_size = to.cq_data_size = sizeof(uint64_t);
  to.cq_cnt = to.ep_cnt = to.tx_ctx_cnt = to.rx_ctx_cnt = to.cntr_cnt = kObjectsMax;
  to.max_ep_tx_ctx = to.max_ep_rx_ctx = 1;
  to.mr_iov_limit = 1;
  to.caps = kReach;
  to.mr_cnt = kRegionsMax;
  info.fabric_attr->name = ::strdup(kFabricName);
}

}  // namespace

int get_info(uint32_t version, const char* node, const char* service, uint64_t flags, const fi_info* hints, fi_info** info) {
  return guarded([&]() -> int {
    if (!Judge(hints).accepts()) return -FI_ENODATA;
    // libfabric lists `unet;ofi_rxd` before `unet`.
    if ((flags & kByUtility) != 0 && ::secure_getenv("UNET_RXD") == nullptr) return -FI_ENODATA;
    const auto ni = open_network_interface();
    if (!ni) {
      warn(FI_LOG_CORE, ni.error().text);
      return -FI_ENODATA;
    }
    if (hints != nullptr && hints->domain_attr != nullptr && hints->domain_attr->name != nullptr && ni->host != hints->domain_attr->name) {
      inform(FI_LOG_CORE, "the domain of this network interface is " + ni->host);
      return -FI_ENODATA;
    }
    const Info made(fi_allocinfo());
    if (made == nullptr) return -FI_ENOMEM;
    fill(*made, version, hints, ni->host);
    if (const int error = set_addresses(*made, node, service, flags, hints, ni->host); error != 0) return error;
    *info = const_cast<Info&>(made).release();
    return 0;
  });
}

}  // namespace unet::fabric
