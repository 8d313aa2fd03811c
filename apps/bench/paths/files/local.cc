// local.cc - the paths `file-local*`: blocks are read into and written from the memory of a local channel.
#include "apps/bench/frame/environment.h"
#include "apps/bench/paths/files/file_path.h"
#include "apps/bench/paths/unet/local_pair.h"

namespace unet::bench {

namespace {

class FileLocal final : public FilePath {
 public:
  FileLocal(PathInfo info, bool one_core) : FilePath(std::move(info), one_core), pair_(info_.name) {}

  Status set_up(const RunContext& run, Environment&) override { return pair_.set_up(run); }
  std::vector<int> service_processes() const override { return pair_.service_processes(); }
  void tear_down(const RunContext&) override { pair_.tear_down(); }

 private:
  bool sleeps() const { return info_.can(Ability::sleeps); }
  Status prepare_way(Environment& environment) override { return pair_.prepare(environment); }
  template <typename Ready>
  bool wait(const RunContext& context, Ready ready, bool for_room) {
    if (!sleeps()) return spin_until(context.stop, ready);
    Endpoint& endpoint = pair_.endpoint();
    while (!ready()) {
      if (context.stop.raised()) return false;
      if (for_room) endpoint.wait_room(pair_.channel(), LocalPair::kLook, 0);
      else endpoint.wait(LocalPair::kLook, 0);
    }
    return true;
  }
  bool send_block(size_t size, const RunContext& context) override {
    MutableBytes room;
    const auto has_room = [&] { return !(room = pair_.endpoint().reserve(pair_.channel(), static_cast<uint32_t>(size))).empty(); };
    if (!wait(context, has_room, true) || !read_block(room.data(), size, context)) return false;
    return pair_.endpoint().post(pair_.channel(), static_cast<uint32_t>(size)) == SendOutcome::sent;
  }
  bool take_block(size_t size, const RunContext& context) override {
    Message message;
    if (!wait(context, [&] { return pair_.endpoint().receive(message); }, false)) return false;
    const bool written = message.length == size && write_block(message.data, size, context);
    pair_.endpoint().release(message);
    return written;
  }

  LocalPair pair_;
};

}  // namespace

void add_unet_files(Paths& paths) {
  const auto add = [&](const char* name, const char* how, Set<Ability> abilities, const char* setting, bool one_core) {
    paths.push_back(std::make_unique<FileLocal>(PathInfo{.name = name,
                                                         .kind = Kind::ours,
                                                         .what = std::string("a file by a local channel of U-Net, likewise") + how,
                                                         .setting = setting,
                                                         .workloads = {Workload::bandwidth},
                                                         .abilities = abilities,
                                                         .only = {"pipe"}},
                                                one_core));
  };
  add("file-local", ", polling", {Ability::messages}, "blocks read and written in place; both sides poll", false);
  const char* const sleeping = "blocks read and written in place; both sides sleep without polling first";
  add("file-local-sleep", "", {Ability::messages, Ability::sleeps}, sleeping, false);
  add("file-local-one-core", ", both on one core", {Ability::messages, Ability::sleeps}, sleeping, true);
}

}  // namespace unet::bench
