// dpdk_port.h - a wire driven by DPDK: any port that EAL can open, hardware or virtual; made by apps/drivers.
//
// A frame is a packet buffer (mbuf) of the port's own pool. The costs of receive(), transmit(), allocate() and release() are those of
// rte_eth_rx_burst, rte_eth_tx_burst, rte_pktmbuf_alloc_bulk and rte_pktmbuf_free_bulk. Each adds one virtual call and 24 - 56 bytes of
// descriptor per frame. This driver copies nothing. The kinds of port copy:
//   net_memif             sender into the shared ring, receiver out of it; with zero-copy=yes only the server's side copies
//   net_af_xdp on veth    the kernel, once, into the receiver's buffer
//   net_af_packet         the kernel's ring to the buffer and back, plus the kernel's own
//   a NIC                 nothing
//
// Defaults of this driver, where the device string does not say otherwise:
//   net_memif             bsize= one frame; rsize=10 as in DPDK (256 slots pass frames of 1.5 KB 10 % more slowly, 2,048
//                         and 4,096 have the longer round trips)
//   net_af_xdp on veth    busy_budget=0 (no system call to receive nothing: round trips 5.0 instead of 5.4 us, 0.74 instead
//                         of 0.62 M frames/s; a NIC keeps DPDK's busy polling)
//   net_af_packet         qdisc_bypass=1 (no queueing discipline on the way out); framesz and blocksz that hold the MTU
// With queues=N a port has N receive and N transmit queues. Each is a Driver with its own pool, so that threads share nothing here. The
// port chooses the queue of an arriving frame: by a hash over IP addresses and UDP ports if it has RSS. Payloads are copied then, because
// the count of frames that the port still reads belongs to one thread. A zero-copy memif client maps all packet memory of its process into
// the server's. Neither side of a memif checks the other's descriptors. Use memif only between parties that trust each other.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drivers/dpdk/eal.h"
#include "drivers/dpdk/memif_gate.h"
#include "ni/driver.h"
#include "unet/limits.h"

struct rte_mbuf;
struct rte_mempool;
struct rte_mempool_cache;

namespace unet::drivers {

struct DpdkOptions {
  std::string device;         // "net_memif0,role=server,socket=/run/x", "net_af_xdp0,iface=veth0", "0000:03:00.0", ...
  uint32_t mtu = 0;           // 0: the interface's own, or 1500
  uint32_t buffers = 0;       // packet buffers of the port; 0: enough for its queues and 2,048 frames in the engine
  bool checksums = true;      // whether the port may fill in and check checksums of TCP and UDP; false: frames are as on any wire
  uint32_t queues = 1;        // receive queues, and as many transmit queues; each is used by a thread of its own
  Nanoseconds wait_link = 0;  // how long open() waits for the link (a memif's peer); 0: not at all, it may come later
  EalOptions eal;
};

// What only a memif port has.
struct Memif {
  bool client = false, zero_copy = false;
  std::string socket;    // as in the device string
  uint32_t id = 0;
  std::atomic<bool> task_done{true};  // set by the interrupt thread after it has run the posted task
  MemifListener listener;             // of a server

  // A client's connection; see keep_connected().
  enum class Connection : uint8_t { stopping, starting, started };
  Connection connection = Connection::stopping;
  int start_result = 0;                   // of the last start_task
  std::atomic<bool> server_ended{false};  // since that task: set by the interrupt thread
};

class alignas(kCacheLine) DpdkPort final : public Driver {
 public:
  // Opens and starts the port. Interface names are resolved in the calling thread's network namespace. Once EAL has failed to start, every
  // call returns that error.
  static Result<std::unique_ptr<DpdkPort>> open(const DpdkOptions& options);
  // Starts EAL early, if these ports need it: opening them takes less time afterwards. See eal::start_early().
  static void prepare(const std::vector<DpdkOptions>& ports);
  // Whether EAL has failed to start: then this process can open no port any more.
  static bool environment_failed();
  ~DpdkPort() override;

  const DriverCapabilities& capabilities() const noexcept override { return capabilities_; }
  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override;
  void release(std::span<const ReceivedFrame> frames) noexcept override;
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override;
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override;
  void discard(std::span<const TransmitFrame> frames) noexcept override;
  void poll(Nanoseconds now) noexcept override;
  Nanoseconds next_event() const noexcept override;
  int wait_descriptor() const noexcept override { return wait_descriptor_; }
  bool register_memory(std::span<std::byte> memory) noexcept override;
  void forget_memory(std::span<std::byte> memory) noexcept override;
  uint32_t queues() const noexcept override { return queues_; }
  std::vector<std::unique_ptr<Driver>> take_queues() override;
  std::vector<DriverCounter> counters() const override;
  std::string description() const override;
  std::shared_ptr<WireState> state() const override;  // tidy: allow shared_ptr because the service has it, too

  // Whether frames can pass. A memif's link is up while its peer is connected; transmit() takes nothing before.
  bool link_up() const noexcept;

  // Waits for the link, and keeps trying to connect. The error says what is missing.
  Status wait_link(Nanoseconds timeout) noexcept;

  // For raw_bench, which measures the bare port: DPDK's port number and its pool.
  uint16_t port_id() const noexcept { return port_id_; }
  rte_mempool* pool() const noexcept { return pool_; }

 private:
  friend class MemifGate;
  struct Setup;
  struct Opened;
  struct ExternalFrame;
  DpdkPort() = default;

  Status probe(Setup& setup);
  Status check_queues(Setup& setup);
  Status configure(Setup& setup);
  Status make_queues(Setup& setup);
  Status make_pools(Setup& setup);
  Status make_external_pool(const std::string& driver, bool multi_segment);
  Status start(Setup& setup);
  void find_wait_descriptor(const Setup& setup) noexcept;

  bool is_checked(const rte_mbuf& buffer) const noexcept;
  bool enter() noexcept;
  void leave() noexcept;
  uint32_t linearise(std::span<rte_mbuf*> buffers) noexcept;
  bool attach_external(TransmitFrame& frame) noexcept;
  void take_back(std::span<TransmitFrame> frames) noexcept;
  void keep_connected(Nanoseconds now) noexcept;
  static void start_task(DpdkPort& port) noexcept;
  static void stop_task(DpdkPort& port) noexcept;
  static void close_task(DpdkPort& port) noexcept;
  void reclaim_buffers() noexcept;
  void refresh_cache() noexcept;
  static void external_done(void* address, void* frame) noexcept;

  // Used for every burst
  uint16_t port_id_ = 0xffff;
  uint16_t queue_ = 0;
  std::atomic<uint32_t> busy_{0};    // the engine's thread is inside the port; read by the gate
  std::atomic<uint32_t> closed_{0};  // reasons to stay out of the port: kStopped, kGate
  rte_mempool* pool_ = nullptr;
  rte_mempool_cache* cache_ = nullptr;  // of pool_, for the thread that polled last
  unsigned lcore_ = 0;                  // EAL's number of that thread
  uint32_t room_ = 0;                   // bytes of a frame that fit into a buffer
  bool checks_ = false;                 // the port checks the checksums of arriving frames
  bool unfinished_ = false;             // it also delivers frames of this host with an incomplete checksum, as virtio does
  Nanoseconds next_check_ = ~Nanoseconds{0};  // when to check the link next

  // Used rarely
  uint64_t linearised_ = 0;
  uint64_t rx_oversize_ = 0;
  uint64_t tx_oversize_ = 0;
  uint64_t rx_no_buffer_ = 0;
  uint64_t link_losses_ = 0;
  uint64_t external_in_flight_ = 0;
  rte_mempool* external_pool_ = nullptr;
  DriverCapabilities capabilities_;
  // Shared with the port's other queues.
  std::shared_ptr<Opened> opened_;  // tidy: allow shared_ptr because set-up and end alone touch it
  uint32_t queues_ = 1;             // of the port
  std::string device_;   // "net_memif0"
  std::string options_;  // the rest of the device string
  int wait_descriptor_ = -1;
  bool tap_ = false;  // a tap with a descriptor to wait for
  bool dma_ = false;  // external memory has to be mapped for the device
  bool link_was_up_ = false;
  std::optional<Memif> memif_;  // nullopt: another kind of port
};

}  // namespace unet::drivers
