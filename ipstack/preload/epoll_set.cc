// epoll_set.cc - who is in an epoll set.
#include "ipstack/preload/epoll_set.h"

#include <algorithm>
#include <cerrno>

#include "ipstack/preload/host.h"

namespace unet::preload {

EpollSet::~EpollSet() {
  for (const auto& each : all_) std::erase(each->file->registrations, each.get());
}

const Registration* EpollSet::find(const File& file, int fd) const noexcept {
  for (const Registration* each : file.registrations) {
    if (each->set == this && each->fd == fd) return each;
  }
  return nullptr;
}

int EpollSet::add(File& file, int fd, const epoll_event& event) {
  if (find(file, fd) != nullptr) return EEXIST;
  all_.push_back(std::make_unique<Registration>(Registration{.set = this, .file = &file, .fd = fd, .wanted = event}));
  file.registrations.push_back(all_.back().get());
  mark(*all_.back());
  return 0;
}

int EpollSet::modify(File& file, int fd, const epoll_event& event) {
  auto* const registration = const_cast<Registration*>(find(file, fd));
  if (registration == nullptr) return ENOENT;
  if (((registration->wanted.events | event.events) & EPOLLEXCLUSIVE) != 0) return EINVAL;
  registration->wanted = event;
  registration->spent = false;
  mark(*registration);
  return 0;
}

int EpollSet::remove(File& file, int fd) {
  auto* const registration = const_cast<Registration*>(find(file, fd));
  if (registration == nullptr) return ENOENT;
  drop(*registration);
  return 0;
}

std::vector<File*> EpollSet::files() const {
  std::vector<File*> found;
  for (const auto& each : all_) {
    if (std::find(found.begin(), found.end(), each->file) == found.end()) found.push_back(each->file);
  }
  return found;
}

void EpollSet::drop(Registration& registration) noexcept {
  std::erase(registration.file->registrations, &registration);
  const auto at = std::find_if(all_.begin(), all_.end(), [&](const auto& each) { return each.get() == &registration; });
  std::swap(*at, all_.back());
  registration.gone = true;
  if (registration.listed) gone_.push_back(std::move(all_.back()));
  all_.pop_back();
}

void EpollSet::forget(File& file) noexcept {
  while (!file.registrations.empty()) file.registrations.back()->set->drop(*file.registrations.back());
}

void EpollSet::list(Registration& registration) {
  if (registration.listed) return;
  registration.listed = true;
  ready_.push_back(&registration);
}

// Of several threads that wait for the set one is woken, as Linux does.
void EpollSet::mark(Registration& registration) {
  list(registration);
  for (Sleeper* each : sleepers) {
    if (each->wake()) return;
  }
}

}  // namespace unet::preload
