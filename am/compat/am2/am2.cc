// am2.cc - AM-2 (am.h beside it) on the C ABI of Active Messages: everything except the life of bundles and endpoints (life.cc).
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "am/am.h"
#include "am/compat/am2/am.h"
#include "am/compat/am2/objects.h"

using namespace unet::am::am2;  // NOLINT

namespace {

constexpr int64_t kHour = 3'600'000'000'000;  // long, because a peer accepts a channel only when it polls

// Translates return codes of libunet_am to those of AM-2. The error handler has got a returned message.
int to_am(int result) noexcept {
  switch (result) {
    case 0:
    case UNET_AM_ERETURNED: return AM_OK;
    case UNET_AM_ENOTSENT: return AM_ERR_NOT_SENT;
    case UNET_EINVALID: return AM_ERR_BAD_ARG;
    default: return AM_ERR_RESOURCE;
  }
}

// ---- calls of the program's functions, with as many arguments as the message has

template <typename... Before, size_t... kIndex>
void call_with(unet_am2_function function, const uint32_t* words, std::index_sequence<kIndex...>, Before... before) {
  reinterpret_cast<void (*)(Before..., decltype(static_cast<int>(kIndex))...)>(function)(before..., static_cast<int>(words[kIndex])...);
}

template <typename... Before>
void call(unet_am2_function function, const uint32_t* words, unsigned count, Before... before) {
  using Caller = void (*)(unet_am2_function, const uint32_t*, Before...);
  static constexpr auto kCallers = []<size_t... kCount>(std::index_sequence<kCount...>) {
    return std::array<Caller, sizeof...(kCount)>{[](unet_am2_function to, const uint32_t* from, Before... first) {
      call_with<Before...>(to, from, std::make_index_sequence<kCount>(), first...);
    }...};
  }(std::make_index_sequence<UNET_AM_ARGUMENTS_MAX + 1>());
  kCallers[count](function, words, before...);
}

void run_handler(unet_am_token* token, void* context) {
  const auto function = static_cast<const std::atomic<unet_am2_function>*>(context)->load(std::memory_order_relaxed);
  unsigned count = 0;
  const uint32_t* words = unet_am_arguments(token, &count);
  const int kind = unet_am_kind(token);
  if (kind == UNET_AM_SHORT_REQUEST || kind == UNET_AM_SHORT_REPLY) return call<void*>(function, words, count, token);
  size_t length = 0;
  void* payload = unet_am_payload(token, &length);
  // Programs copy from the payload without checking the length, so never pass NULL.
  static char nothing;
  if (payload == nullptr) payload = &nothing;
  call<void*, void*, int>(function, words, count, token, payload, static_cast<int>(length));
}

// ---- names

bool ends(const en_t& name) noexcept { return std::memchr(name.text, '\0', sizeof name.text) != nullptr; }

bool has_index(ep_t endpoint, int index) noexcept {
  return index >= 0 && static_cast<size_t>(index) < endpoint->translations.size();
}

// Returns the translation if it is in use.
const unet_am2_endpoint::Translation* find(ep_t endpoint, int index) noexcept {
  if (!has_index(endpoint, index)) return nullptr;
  const auto& translation = endpoint->translations[static_cast<size_t>(index)];
  return translation.in_use ? &translation : nullptr;
}

// Opens a translation that is marked as in use already.
int map(ep_t endpoint, int index, const en_t& name, tag_t tag) {
  unet_connect_options options{};
  options.size = sizeof options;
  options.timeout_ns = kHour;
  const int started = unet_am_start_map(endpoint->endpoint, static_cast<uint32_t>(index), name.text, tag, &options);
  if (started != 0) {
    const std::lock_guard held(endpoint->mutex);
    if (has_index(endpoint, index)) endpoint->translations[static_cast<size_t>(index)].in_use = false;
  }
  return to_am(started);
}

// Returns the error of a request, or AM_OK.
int check_request(ep_t endpoint, int to, handler_t handler, const void* source, size_t bytes, int most) noexcept {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr || handler < 0 || handler >= UNET_AM_HANDLERS_MAX) return AM_ERR_BAD_ARG;
  if (bytes > static_cast<size_t>(most) || (source == nullptr && bytes != 0)) return AM_ERR_BAD_ARG;
  return to >= 0 && to < endpoint->limit.load(std::memory_order_relaxed) ? AM_OK : AM_ERR_BAD_ARG;
}

int check_reply(const void* token, handler_t handler, const void* source, size_t bytes, int most) noexcept {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (token == nullptr || handler < 0 || handler >= UNET_AM_HANDLERS_MAX) return AM_ERR_BAD_ARG;
  return bytes > static_cast<size_t>(most) || (source == nullptr && bytes != 0) ? AM_ERR_BAD_ARG : AM_OK;
}

// An int travels as the word with the same bits.
const uint32_t* words_of(const int* words) noexcept { return reinterpret_cast<const uint32_t*>(words); }

}  // namespace

extern "C" {

// ---- translations

int AM_Map(ep_t endpoint, int index, en_t name, tag_t tag) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr || !ends(name)) return AM_ERR_BAD_ARG;
  {
    const std::lock_guard held(endpoint->mutex);
    if (!has_index(endpoint, index)) return AM_ERR_BAD_ARG;
    if (find(endpoint, index) != nullptr) return AM_ERR_RESOURCE;
    endpoint->translations[static_cast<size_t>(index)] = {true, name, tag};
  }
  return map(endpoint, index, name, tag);
}

int AM_MapAny(ep_t endpoint, int* index, en_t name, tag_t tag) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr || index == nullptr || !ends(name)) return AM_ERR_BAD_ARG;
  int found = 0;
  {
    const std::lock_guard held(endpoint->mutex);
    auto& all = endpoint->translations;
    const auto unused = std::find_if(all.begin(), all.end(), [](const auto& each) { return !each.in_use; });
    if (unused == all.end()) return AM_ERR_RESOURCE;
    *unused = {true, name, tag};
    found = static_cast<int>(unused - all.begin());
  }
  const int mapped = map(endpoint, found, name, tag);
  if (mapped == AM_OK) *index = found;
  return mapped;
}

int AM_UnMap(ep_t endpoint, int index) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr) return AM_ERR_BAD_ARG;
  {
    const std::lock_guard held(endpoint->mutex);
    if (!has_index(endpoint, index)) return AM_ERR_BAD_ARG;
    if (find(endpoint, index) == nullptr) return AM_ERR_RESOURCE;
  }
  unmapping = {endpoint, index};
  const int result = unet_am_unmap(endpoint->endpoint, static_cast<uint32_t>(index));
  unmapping = {};
  if (result < 0) return AM_ERR_RESOURCE;
  const std::lock_guard held(endpoint->mutex);
  endpoint->translations[static_cast<size_t>(index)].in_use = false;
  return AM_OK;
}

int AM_Unmap(ep_t endpoint, int index) { return AM_UnMap(endpoint, index); }

int AM_GetTranslationInuse(ep_t endpoint, int index) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr) return AM_ERR_BAD_ARG;
  const std::lock_guard held(endpoint->mutex);
  if (!has_index(endpoint, index)) return AM_ERR_BAD_ARG;
  return find(endpoint, index) != nullptr ? AM_OK : AM_ERR_RESOURCE;
}

int AM_GetTranslationTag(ep_t endpoint, int index, tag_t* tag) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr || tag == nullptr) return AM_ERR_BAD_ARG;
  const std::lock_guard held(endpoint->mutex);
  if (!has_index(endpoint, index)) return AM_ERR_BAD_ARG;
  const auto* translation = find(endpoint, index);
  if (translation == nullptr) return AM_ERR_RESOURCE;
  *tag = translation->tag;
  return AM_OK;
}

int AM_GetTranslationName(ep_t endpoint, int index, en_t* name) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr || name == nullptr) return AM_ERR_BAD_ARG;
  const std::lock_guard held(endpoint->mutex);
  if (!has_index(endpoint, index)) return AM_ERR_BAD_ARG;
  const auto* translation = find(endpoint, index);
  if (translation == nullptr) return AM_ERR_RESOURCE;
  *name = translation->name;
  return AM_OK;
}

int AM_MaxNumTranslations(int* number) {
  if (number == nullptr) return AM_ERR_BAD_ARG;
  *number = UNET_AM_TRANSLATIONS_MAX;
  return AM_OK;
}

int AM_GetNumTranslations(ep_t endpoint, int* number) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr || number == nullptr) return AM_ERR_BAD_ARG;
  const std::lock_guard held(endpoint->mutex);
  *number = static_cast<int>(endpoint->translations.size());
  return AM_OK;
}

int AM_SetNumTranslations(ep_t endpoint, int number) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr || number < 1) return AM_ERR_BAD_ARG;
  return guarded([&] {
    const std::lock_guard held(endpoint->mutex);
    if (number > UNET_AM_TRANSLATIONS_MAX) return AM_ERR_RESOURCE;
    const auto size = static_cast<size_t>(number);
    auto& all = endpoint->translations;
    const auto in_use = [](const auto& each) { return each.in_use; };
    if (size < all.size() && std::any_of(all.begin() + number, all.end(), in_use)) return AM_ERR_RESOURCE;
    all.resize(size);
    endpoint->limit.store(number, std::memory_order_relaxed);
    return AM_OK;
  });
}

int AM_SetExpectedResources(ep_t endpoint, int endpoints, int outstanding_requests) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr || endpoints < 1 || outstanding_requests < 1) return AM_ERR_BAD_ARG;
  const std::lock_guard held(endpoint->mutex);
  return std::exchange(endpoint->expects, true) ? AM_ERR_RESOURCE : AM_OK;
}

// ---- tags, handlers, segment

int AM_SetTag(ep_t endpoint, tag_t tag) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr) return AM_ERR_BAD_ARG;
  unet_am_set_tag(endpoint->endpoint, tag);
  return AM_OK;
}

int AM_GetTag(ep_t endpoint, tag_t* tag) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr || tag == nullptr) return AM_ERR_BAD_ARG;
  *tag = unet_am_tag(endpoint->endpoint);
  return AM_OK;
}

int AM_MaxNumHandlers(void) { return UNET_AM_HANDLERS_MAX; }

int AM_GetNumHandlers(ep_t endpoint, int* number) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr || number == nullptr) return AM_ERR_BAD_ARG;
  const std::lock_guard held(endpoint->mutex);
  *number = endpoint->handlers;
  return AM_OK;
}

int AM_SetNumHandlers(ep_t endpoint, int number) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr || number < 1) return AM_ERR_BAD_ARG;
  if (number > UNET_AM_HANDLERS_MAX) return AM_ERR_RESOURCE;
  const std::lock_guard held(endpoint->mutex);
  endpoint->handlers = number;
  return AM_OK;
}

int unet_am2_set_handler(ep_t endpoint, handler_t handler, unet_am2_function function) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr || function == nullptr) return AM_ERR_BAD_ARG;
  {
    const std::lock_guard held(endpoint->mutex);
    if (handler < 0 || handler >= endpoint->handlers) return AM_ERR_BAD_ARG;
  }
  auto& slot = endpoint->functions[static_cast<size_t>(handler)];
  slot.store(function, std::memory_order_relaxed);
  if (handler != 0) unet_am_set_handler(endpoint->endpoint, static_cast<unsigned>(handler), run_handler, &slot);
  return AM_OK;
}

int unet_am2_set_handler_any(ep_t endpoint, handler_t* handler, unet_am2_function function) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr || handler == nullptr || function == nullptr) return AM_ERR_BAD_ARG;
  int unused = 1;
  {
    const std::lock_guard held(endpoint->mutex);
    const auto is_set = [&](int index) {
      return endpoint->functions[static_cast<size_t>(index)].load(std::memory_order_relaxed) != nullptr;
    };
    while (unused < endpoint->handlers && is_set(unused)) ++unused;
    if (unused == endpoint->handlers) return AM_ERR_RESOURCE;
  }
  *handler = unused;
  return unet_am2_set_handler(endpoint, unused, function);
}

int AM_SetSeg(ep_t endpoint, void* address, uintptr_t bytes) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr || (address == nullptr && bytes != 0)) return AM_ERR_BAD_ARG;
  return to_am(unet_am_set_segment(endpoint->endpoint, address, bytes));
}

int AM_GetSeg(ep_t endpoint, void** address, uintptr_t* bytes) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (endpoint == nullptr || address == nullptr || bytes == nullptr) return AM_ERR_BAD_ARG;
  uint64_t length = 0;
  *address = unet_am_segment(endpoint->endpoint, &length);
  *bytes = length;
  return AM_OK;
}

int AM_MaxSegLength(uintptr_t* bytes) {
  if (bytes == nullptr) return AM_ERR_BAD_ARG;
  *bytes = ~uintptr_t{0};
  return AM_OK;
}

// ---- events

int AM_GetEventMask(eb_t bundle, int* mask) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (bundle == nullptr || mask == nullptr) return AM_ERR_BAD_ARG;
  *mask = bundle->mask.load(std::memory_order_relaxed);
  return AM_OK;
}

int AM_SetEventMask(eb_t bundle, int mask) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (bundle == nullptr || (mask != AM_NOEVENTS && mask != AM_NOTEMPTY)) return AM_ERR_BAD_ARG;
  bundle->mask.store(mask, std::memory_order_relaxed);
  return AM_OK;
}

int AM_Wait(eb_t bundle) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (bundle == nullptr) return AM_ERR_BAD_ARG;
  // Without an event mask nothing would ever end the wait.
  if (bundle->mask.load(std::memory_order_relaxed) == AM_NOEVENTS) return AM_ERR_RESOURCE;
  int result = 0;
  do {
    result = unet_am_wait(bundle->bundle, UNET_FOREVER, UNET_SPIN_DEFAULT);
  } while (result == UNET_EINTERRUPTED || result == UNET_TIMED_OUT);
  return result < 0 ? AM_ERR_RESOURCE : AM_OK;
}

int AM_WaitSema(eb_t bundle) { return AM_Wait(bundle); }

int AM_Poll(eb_t bundle) {
  if (!initialised()) return AM_ERR_NOT_INIT;
  if (bundle == nullptr) return AM_ERR_BAD_ARG;
  unet_am_poll(bundle->bundle);
  return AM_OK;
}

// ---- questions of a handler about its message

int AM_GetSourceEndpoint(void* token, en_t* name) {
  if (token == nullptr || name == nullptr) return AM_ERR_BAD_ARG;
  char text[sizeof name->text];
  if (unet_am_source_name(static_cast<unet_am_token*>(token), text, sizeof text) == 0) return AM_ERR_RESOURCE;
  return guarded([&] {
    std::string whole = text;
    if (whole.find('@') == std::string::npos) whole += "@" + state.host;
    *name = to_name(whole);
    return AM_OK;
  });
}

int AM_GetDestEndpoint(void* token, ep_t* endpoint) {
  if (token == nullptr || endpoint == nullptr) return AM_ERR_BAD_ARG;
  *endpoint = static_cast<ep_t>(unet_am_attachment(unet_am_token_endpoint(static_cast<unet_am_token*>(token))));
  return AM_OK;
}

int AM_GetMsgTag(void* token, tag_t* tag) {
  if (token == nullptr || tag == nullptr) return AM_ERR_BAD_ARG;
  auto* const self = static_cast<unet_am_token*>(token);
  if (unet_am_is_request(self)) {
    *tag = unet_am_message_tag(self);
    return AM_OK;
  }
  // A reply has the tag of its request.
  ep_t endpoint = nullptr;
  AM_GetDestEndpoint(token, &endpoint);
  return AM_GetTranslationTag(endpoint, static_cast<int>(unet_am_index(self)), tag);
}

int AM_MaxShort(void) { return UNET_AM_ARGUMENTS_MAX; }
int AM_MaxMedium(void) { return UNET_AM_MEDIUM_MAX; }
int AM_MaxLong(void) { return UNET_AM_LONG_REPLY_MAX; }

// ---- requests and replies

int unet_am2_request(ep_t endpoint, int to, handler_t handler, const int* words, int count) {
  if (const int wrong = check_request(endpoint, to, handler, nullptr, 0, 0); wrong != AM_OK) return wrong;
  return to_am(unet_am_request_short(endpoint->endpoint, static_cast<uint32_t>(to), static_cast<unsigned>(handler), words_of(words),
                                     static_cast<unsigned>(count)));
}

int unet_am2_request_medium(ep_t endpoint, int to, handler_t handler, const void* source, size_t bytes, const int* words, int count) {
  if (const int wrong = check_request(endpoint, to, handler, source, bytes, AM_MaxMedium()); wrong != AM_OK) return wrong;
  return to_am(unet_am_request_medium(endpoint->endpoint, static_cast<uint32_t>(to), static_cast<unsigned>(handler), source, bytes,
                                      words_of(words), static_cast<unsigned>(count)));
}

int unet_am2_request_long(ep_t endpoint, int to, uintptr_t offset, handler_t handler, const void* source, size_t bytes, int asynchronous,
                          const int* words, int count) {
  if (const int wrong = check_request(endpoint, to, handler, source, bytes, AM_MaxLong()); wrong != AM_OK) return wrong;
  const auto index = static_cast<uint32_t>(to);
  const auto there = static_cast<unsigned>(handler), number = static_cast<unsigned>(count);
  const uint32_t* const arguments = words_of(words);
  if (asynchronous == 0) {
    return to_am(unet_am_request_long(endpoint->endpoint, index, there, offset, source, bytes, arguments, number));
  }
  return to_am(
      unet_am_request_long_async(endpoint->endpoint, index, there, offset, source, bytes, arguments, number, nullptr, nullptr));
}

int unet_am2_get(ep_t endpoint, int from, uintptr_t source_offset, handler_t handler, uintptr_t offset, size_t bytes, const int* words,
                 int count) {
  if (const int wrong = check_request(endpoint, from, handler, "", bytes, AM_MaxLong()); wrong != AM_OK) return wrong;
  uint64_t length = 0;
  auto* const segment = static_cast<char*>(unet_am_segment(endpoint->endpoint, &length));
  if (offset > length || bytes > length - offset) return AM_ERR_BAD_ARG;
  return to_am(unet_am_get(endpoint->endpoint, static_cast<uint32_t>(from), static_cast<unsigned>(handler), source_offset, segment + offset,
                           bytes, words_of(words), static_cast<unsigned>(count)));
}

int unet_am2_reply(void* token, handler_t handler, const int* words, int count) {
  if (const int wrong = check_reply(token, handler, nullptr, 0, 0); wrong != AM_OK) return wrong;
  return to_am(unet_am_reply_short(static_cast<unet_am_token*>(token), static_cast<unsigned>(handler), words_of(words),
                                   static_cast<unsigned>(count)));
}

int unet_am2_reply_medium(void* token, handler_t handler, const void* source, size_t bytes, const int* words, int count) {
  if (const int wrong = check_reply(token, handler, source, bytes, AM_MaxMedium()); wrong != AM_OK) return wrong;
  return to_am(unet_am_reply_medium(static_cast<unet_am_token*>(token), static_cast<unsigned>(handler), source, bytes, words_of(words),
                                    static_cast<unsigned>(count)));
}

int unet_am2_reply_long(void* token, uintptr_t offset, handler_t handler, const void* source, size_t bytes, const int* words, int count) {
  if (const int wrong = check_reply(token, handler, source, bytes, AM_MaxLong()); wrong != AM_OK) return wrong;
  return to_am(unet_am_reply_long(static_cast<unet_am_token*>(token), static_cast<unsigned>(handler), offset, source, bytes,
                                  words_of(words), static_cast<unsigned>(count)));
}

}  // extern "C"
