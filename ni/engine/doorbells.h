// doorbells.h - finds endpoints with a rung doorbell, without visiting any other; used by the engine's poll.
//
// A client that sends on an unwatched endpoint sets a bit in its doorbell words and one in its summary. A poll reads the summaries of a few
// clients: always those that rang lately, the others in rotation. Whatever a client writes there costs a bounded amount of work per poll.
// Bits of endpoints that it does not own are cleared and ignored.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "ni/engine/endpoint_state.h"
#include "unet/layout.h"

namespace unet::engine {

class Doorbells {
 public:
  // One of `engines` engines: it reads and writes only the words of each page that own_word() gives to `engine`.
  explicit Doorbells(uint32_t engine = 0, uint32_t engines = 1);
  static constexpr bool own_word(uint32_t word, uint32_t engine, uint32_t engines) noexcept { return word % engines == engine; }

  void attach(uint32_t client, ClientPage* page);
  void detach(uint32_t client) noexcept;
  void open(uint32_t client, uint32_t bit, EndpointState& endpoint);
  void close(uint32_t client, uint32_t bit) noexcept;

  // Calls activate(endpoint) for every endpoint with a rung bell. Returns how many clients it scanned.
  template <typename Activate>
  uint32_t scan(Activate&& activate) noexcept {
    const uint32_t recent = count_ < kRecent ? count_ : kRecent;
    for (uint32_t i = 0; i < recent; ++i) scan_client(i, activate);
    const uint32_t others = count_ - recent < kOthers ? count_ - recent : kOthers;
    for (uint32_t i = 0; i < others; ++i) {
      if (next_ >= count_) next_ = kRecent;
      scan_client(next_++, activate);
    }
    return recent + others;
  }

  // True if some client has rung unseen. It scans all: only for an engine that is about to sleep.
  bool any() const noexcept;
  // Tells all clients whether to write the wake descriptor when they ring.
  void announce_sleep(bool asleep) noexcept;

 private:
  static constexpr uint32_t kRecent = 4;           // clients scanned in each poll
  static constexpr uint32_t kOthers = 4;           // further clients, in rotation
  static constexpr uint32_t kWordsPerClient = 4;   // doorbell words taken from a client in a poll

  struct Client {
    ClientPage* page = nullptr;
    uint32_t place = 0;          // in order_
    uint32_t summary_words = 0;  // number of summary words that can have bits
    std::vector<uint64_t> valid;             // by doorbell word: bits of endpoints that exist
    std::vector<EndpointState*> endpoints;   // by doorbell
  };

  template <typename Activate>
  void scan_client(uint32_t place, Activate& activate) noexcept {
    Client& client = *order_[place];
    for (uint32_t word = 0; word < client.summary_words; ++word) {
      const uint64_t bits = client.page->summary.words[word].load(std::memory_order_relaxed) & own_[word];
      if (bits == 0) [[likely]] continue;
      take(client, word, bits, activate);
      if (place >= kRecent) swap_places(place, recent_next_++ % kRecent);
      return;
    }
  }

  template <typename Activate>
  void take(Client& client, uint32_t summary_word, uint64_t bits, Activate& activate) noexcept {
    for (uint32_t taken = 0; bits != 0 && taken < kWordsPerClient; ++taken, bits &= bits - 1) {
      const uint64_t lowest = bits & (~bits + 1);
      const uint32_t word = summary_word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
      // The summary first, then the word: a bell that rings in between is seen now, or sets the summary again.
      client.page->summary.words[summary_word].fetch_and(~lowest, std::memory_order_acq_rel);
      uint64_t rung = client.page->doorbells[word].exchange(0, std::memory_order_acq_rel);
      rung &= word < client.valid.size() ? client.valid[word] : 0;
      for (; rung != 0; rung &= rung - 1) {
        activate(*client.endpoints[word * 64 + static_cast<uint32_t>(std::countr_zero(rung))]);
      }
    }
  }

  void tell(ClientPage& page, bool asleep) const noexcept;
  void swap_places(uint32_t a, uint32_t b) noexcept;

  const uint32_t engine_, engines_;
  std::array<uint64_t, ClientPage::kWords / 64> own_{};  // bits of the summary
  uint32_t count_ = 0;
  uint32_t next_ = kRecent;      // place in order_ of the next client in rotation
  uint32_t recent_next_ = 0;
  std::vector<Client*> order_;   // attached clients; the first kRecent rang last
  std::vector<std::unique_ptr<Client>> clients_;  // by number
};

}  // namespace unet::engine
