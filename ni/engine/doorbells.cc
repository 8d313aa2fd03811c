// doorbells.cc - clients and their doorbells come and go.
#include "ni/engine/doorbells.h"

#include <algorithm>

#include "unet/base/check.h"

namespace unet::engine {

Doorbells::Doorbells(uint32_t engine, uint32_t engines) : engine_(engine), engines_(engines), clients_(kClientsMax) {
  order_.reserve(kClientsMax);
  for (uint32_t word = 0; word < ClientPage::kWords; ++word) {
    if (own_word(word, engine, engines)) own_[word / 64] |= uint64_t{1} << (word % 64);
  }
}

void Doorbells::attach(uint32_t client, ClientPage* page) {
  UNET_CHECK(client < kClientsMax && clients_[client] == nullptr);
  clients_[client] = std::make_unique<Client>();
  clients_[client]->page = page;
  clients_[client]->place = count_;
  order_.push_back(clients_[client].get());
  ++count_;
  tell(*page, false);
}

void Doorbells::detach(uint32_t client) noexcept {
  UNET_CHECK(client < kClientsMax && clients_[client] != nullptr);
  swap_places(clients_[client]->place, count_ - 1);
  order_.pop_back();
  --count_;
  clients_[client].reset();
}

void Doorbells::open(uint32_t client, uint32_t bit, EndpointState& endpoint) {
  UNET_CHECK(client < kClientsMax && clients_[client] != nullptr && bit < kEndpointsPerClientMax);
  Client& c = *clients_[client];
  if (bit >= c.endpoints.size()) {
    const size_t words = std::bit_ceil(size_t{bit} / 64 + 1);
    c.endpoints.resize(words * 64);
    c.valid.resize(words);
  }
  UNET_CHECK(c.endpoints[bit] == nullptr);
  c.endpoints[bit] = &endpoint;
  c.valid[bit / 64] |= uint64_t{1} << (bit % 64);
  c.summary_words = std::max(c.summary_words, bit / (64 * 64) + 1);
}

void Doorbells::close(uint32_t client, uint32_t bit) noexcept {
  if (clients_[client] == nullptr) return;
  Client& c = *clients_[client];
  c.endpoints[bit] = nullptr;
  c.valid[bit / 64] &= ~(uint64_t{1} << (bit % 64));
}

bool Doorbells::any() const noexcept {
  return std::any_of(order_.begin(), order_.end(), [this](const Client* client) {
    for (uint32_t word = 0; word < client->summary_words; ++word) {
      if ((client->page->summary.words[word].load(std::memory_order_relaxed) & own_[word]) != 0) return true;
    }
    return false;
  });
}

void Doorbells::announce_sleep(bool asleep) noexcept {
  for (Client* client : order_) tell(*client->page, asleep);
}

void Doorbells::tell(ClientPage& page, bool asleep) const noexcept {
  std::atomic<uint32_t>& word = page.engine_asleep.value;
  if (engines_ == 1) {
    word.store(asleep ? 1 : 0, std::memory_order_relaxed);
  } else if (asleep) {
    word.fetch_or(1u << engine_, std::memory_order_relaxed);
  } else {
    word.fetch_and(~(1u << engine_), std::memory_order_relaxed);
  }
}

void Doorbells::swap_places(uint32_t a, uint32_t b) noexcept {
  std::swap(order_[a], order_[b]);
  order_[a]->place = a;
  order_[b]->place = b;
}

}  // namespace unet::engine
