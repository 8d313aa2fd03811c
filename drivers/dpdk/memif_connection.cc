// memif_connection.cc - how a memif client connects, and connects again; runs in the engine's thread and, by tasks, in EAL's.
#include <utility>

#include <rte_ethdev.h>

#include "drivers/dpdk/dpdk_port.h"
#include "drivers/dpdk/memif_gate.h"

namespace unet::drivers {
namespace {

constexpr Nanoseconds kRetry = 20 * kMillisecond;  // between checks of the connection

}  // namespace

// A memif client must reconnect by itself, at first and after its server has gone. It does not hang up on a slow or stopped server. Hanging
// up would not connect sooner. A foreign DPDK server aborts when a client hangs up before the greeting (memif_greeting.h). A server also
// leaks the descriptor of the client's memory after a hang-up half-way.
void DpdkPort::keep_connected(Nanoseconds now) noexcept {
  using Connection = Memif::Connection;
  Memif& memif = *memif_;
  const bool task_done = memif.task_done.load(std::memory_order_acquire);
  next_check_ = now + (task_done ? kRetry : kMillisecond);
  if (memif.connection == Connection::starting && task_done && memif.start_result == 0) {
    memif.connection = Connection::started;
    closed_.fetch_and(~MemifGate::kStopped, std::memory_order_release);
  }
  const bool up = link_up();
  const bool was_up = std::exchange(link_was_up_, up);
  if (was_up && !up) ++link_losses_;
  if (!memif.client || !task_done) return;
  switch (memif.connection) {
    case Connection::started: {
      if (up) return;
      if (!was_up && !memif.server_ended.load(std::memory_order_acquire)) return;
      closed_.fetch_or(MemifGate::kStopped, std::memory_order_relaxed);
      memif.connection = Connection::stopping;
      MemifGate::post(*this, &DpdkPort::stop_task);
      break;
    }
    case Connection::stopping:
      if (memif.zero_copy) {
        if (!MemoryDescriptors::restore()) return;  // restore() explains; the link stays down
        reclaim_buffers();
      }
      memif.connection = Connection::starting;
      [[fallthrough]];
    case Connection::starting:  // not started yet, or failed
      MemifGate::post(*this, &DpdkPort::start_task);
      break;
  }
  next_check_ = now + (memif.connection == Connection::starting ? kRetry : kMillisecond);
}

// Runs in EAL's interrupt thread. The engine reads the result after task_done. The connection is complete when this thread has handled the
// messages that follow.
void DpdkPort::start_task(DpdkPort& port) noexcept {
  if (port.memif_->zero_copy) MemoryDescriptors::save();
  port.memif_->server_ended.store(false, std::memory_order_relaxed);
  port.memif_->start_result = rte_eth_dev_start(port.port_id_);
}

void DpdkPort::stop_task(DpdkPort& port) noexcept { rte_eth_dev_stop(port.port_id_); }

// One task does all three. Otherwise a client of the socket's other ports could connect to this port between stop and close. DPDK would use
// that connection after the port is gone.
void DpdkPort::close_task(DpdkPort& port) noexcept {
  rte_eth_dev_stop(port.port_id_);
  MemifGate::stop_listening(port);
  rte_eth_dev_close(port.port_id_);
}

}  // namespace unet::drivers
