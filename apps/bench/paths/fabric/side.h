// side.h - one process's endpoint of libfabric: made by name of a provider, and joined with the other side's by shared memory; path.cc.
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <atomic>
#include <string>

#include "apps/bench/frame/path.h"
#include "apps/bench/paths/fabric/library.h"
#include "apps/bench/workloads/messages.h"

namespace unet::bench {

// A side tells the other one this, in memory that both share.
struct FabricCard {
  std::atomic<uint32_t> is_written{0};
  size_t name_size = 0;
  char name[512] = {};
  uint64_t key = 0, base = 0;  // of its region
};

class FabricSide {
 public:
  FabricSide() = default;
  FabricSide(const FabricSide&) = delete;
  FabricSide& operator=(const FabricSide&) = delete;
  ~FabricSide() { close(); }

  // `own`, `other`: the cards of both sides. The region of each has kRegionBytes.
  Status open(const std::string& provider, const std::string& node, FabricCard& own, const FabricCard& other, const StopFlag& stop);
  void close();

  fid_ep* endpoint() const { return endpoint_; }
  fid_cq* queue() const { return queue_; }
  fi_addr_t peer() const { return peer_; }
  size_t inject_size() const { return info_->tx_attr->inject_size; }
  uint64_t peer_key() const { return peer_key_; }
  uint64_t peer_base() const { return peer_base_; }
  MutableBytes region() { return {region_.out.data(), region_.out.size()}; }
  std::string text_of(int error) const { return library_.strerror(error); }

 private:
  Status open_endpoint(const std::string& provider, const std::string& node);
  Status write_card(FabricCard& card);
  Status check(int result, const char* call) const;

  FabricLibrary library_{};
  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* vector_ = nullptr;
  fid_cq* queue_ = nullptr;
  fid_ep* endpoint_ = nullptr;
  fid_mr* registration_ = nullptr;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  uint64_t peer_key_ = 0, peer_base_ = 0;
  MessageBuffers region_{0};
};

}  // namespace unet::bench
