// node_handle.cc - requests of other ranks for this rank's memory, and answers to its own questions.
#include <cstring>

#include "am/splitc/node.h"

namespace unet::splitc {
namespace {

uint64_t wide(Words words, size_t at) noexcept { return words[at] | uint64_t{words[at + 1]} << 32; }

void answer_value(Answer& answer, uint64_t value) noexcept {
  answer.operation = static_cast<uint8_t>(Operation::value);
  answer.count = 2;
  answer.words[0] = static_cast<uint32_t>(value);
  answer.words[1] = static_cast<uint32_t>(value >> 32);
}
void answer_done(Answer& answer) noexcept { answer.operation = static_cast<uint8_t>(Operation::done); }

bool is_word_size(uint32_t bytes) noexcept { return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8; }

}  // namespace

// Ranks that run the same program send nothing that is refused here. Other processes get no answer.
void Node::handle(const Arrival& arrival, Answer& answer) {
  if (!arrival.is_request) return take_answer(arrival);
  switch (static_cast<Operation>(arrival.operation)) {
    case Operation::wake:
    case Operation::landed: return;
    case Operation::read:
    case Operation::put:
    case Operation::write: return take_word(arrival, answer);
    case Operation::store: return take_store(arrival);
    case Operation::echo: return answer_done(answer);
    case Operation::update: return take_update(arrival, answer);
    case Operation::call:
    case Operation::call_later: return take_call(arrival, answer);
    case Operation::cell:
    case Operation::cells: return take_cells(arrival);
    case Operation::stored:
      if (arrival.words.size() != 1) return refuse();
      stored_by_messages_[arrival.words[0] & 1] += arrival.payload.size();
      return;
    case Operation::got:
    case Operation::value:
    case Operation::done: break;
  }
  refuse();
}

void Node::take_answer(const Arrival& arrival) {
  const auto operation = static_cast<Operation>(arrival.operation);
  if (operation == Operation::got) {
    if (!peers_[arrival.from].gets.arrive(arrival.payload)) return refuse();  // only Active Messages can report it, so this is not a peer's
                                                                              // lie
    --open_gets_;
    return;
  }
  const bool has_value = operation == Operation::value && arrival.words.size() == 2;
  if (!has_value && operation != Operation::done) return refuse();
  if (!peers_[arrival.from].answers.answer(has_value ? wide(arrival.words, 0) : 0)) return refuse();
  --open_answers_;
}

// Returns where `bytes` at the offset in the first two words lie in the heap; nullptr if they do not.
std::byte* Node::own_place(Words words, uint32_t bytes, bool aligned) noexcept {
  const uint64_t offset = wide(words, 0);
  const uint64_t at = offset - heap_begin_;
  if (at > heap_bytes_ || bytes > heap_bytes_ - at) return nullptr;
  return aligned && offset % bytes != 0 ? nullptr : memory_.data() + offset;
}

void Node::take_word(const Arrival& arrival, Answer& answer) {
  const Words words = arrival.words;
  const bool is_read = arrival.operation == static_cast<uint8_t>(Operation::read);
  if (words.size() != (is_read ? 3u : 5u) || !is_word_size(words.back())) return refuse();
  std::byte* const at = own_place(words, words.back(), true);
  if (at == nullptr) return refuse();
  if (is_read) return answer_value(answer, load_word(at, words.back()));
  splitc::store_word(at, wide(words, 2), words.back());
  if (arrival.operation == static_cast<uint8_t>(Operation::write)) answer_done(answer);
}

void Node::take_store(const Arrival& arrival) {
  const Words words = arrival.words;
  if (words.size() != 6 || !is_word_size(words[4])) return refuse();
  std::byte* const at = own_place(words, words[4], true);
  if (at == nullptr) return refuse();
  splitc::store_word(at, wide(words, 2), words[4]);
  stored_by_messages_[words[5] & 1] += words[4];
}

void Node::take_update(const Arrival& arrival, Answer& answer) {
  const Words words = arrival.words;
  if (words.size() != 8 || (words[2] != 4 && words[2] != 8) || words[3] > kUpdateMax) return refuse();
  std::byte* const at = own_place(words, words[2], true);
  if (at == nullptr) return refuse();
  answer_value(answer, apply(at, words[2], static_cast<Update>(words[3]), wide(words, 4), wide(words, 6)));
}

// Also runs functions at their caller's own memory: a call that would hang at another rank ends the job here, too.
uint64_t Node::run_function(OwnerFunction function, std::byte* at, uint64_t a, uint64_t b) {
  struct Inside {  // resets the flag also if the function throws
    bool& flag;
    const bool before = std::exchange(flag, true);
    ~Inside() { flag = before; }
  } const inside{.flag = runs_function_};
  return function(at, a, b);
}

void Node::take_call(const Arrival& arrival, Answer& answer) {
  const Words words = arrival.words;
  if (words.size() != 7) return refuse();
  std::byte* const at = own_place(words.subspan(1), 0, false);
  const uintptr_t function = image_.function_at(words[0]);
  if (at == nullptr || function == 0) return refuse();
  const uint64_t value = run_function(reinterpret_cast<OwnerFunction>(function), at, wide(words, 3), wide(words, 5));
  if (arrival.operation == static_cast<uint8_t>(Operation::call)) answer_value(answer, value);
}

void Node::take_cells(const Arrival& arrival) {
  const Words words = arrival.words;
  const bool is_flat = arrival.operation == static_cast<uint8_t>(Operation::cell);
  if (is_flat != exchange_.flat() || words.size() < (is_flat ? 2u : 3u)) return refuse();
  const Bytes cells = is_flat ? as_bytes(words.data() + 2, (words.size() - 2) * 4) : arrival.payload;
  if (!exchange_.handle(arrival.from, is_flat ? 0 : words[2], wide(words, 0), cells)) refuse();
}

// A wake-up may come back: a rank that has left before it had seen the change by itself. If this rank needs it, its own wait ends the job.
void Node::come_back(Rank rank, uint8_t operation, std::string_view what) {
  if (finished_ || operation == static_cast<uint8_t>(Operation::wake)) return;
  end_job(std::string(call_) + ": rank " + std::to_string(rank) + " " + std::string(what));
}

}  // namespace unet::splitc
