#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "backend/metal/context.h"
#include "backend/metal/msl.h"
#include "runtime/backend.h"

namespace rota::mtl {

class ComputePipeline final : public runtime::Pipeline {
 public:
  ComputePipeline(Owned<id<MTLComputePipelineState>> state, std::uint32_t group_size) noexcept
      : state_(std::move(state)), group_size_(group_size) {}

  id<MTLComputePipelineState> state() const noexcept { return state_.get(); }
  std::uint32_t group_size() const noexcept { return group_size_; }

 private:
  Owned<id<MTLComputePipelineState>> state_;
  std::uint32_t group_size_;
};

// Makes pipelines from MSL text.
//
//   text + macros (constants that bound arrays) --> library     the newest kMaxLibraries are kept
//   library + function constants (the others)   --> function --> pipeline, with the archive's help
class Pipelines {
 public:
  // `path` names a binary archive, or is empty. A missing file starts an empty one.
  static Result<std::unique_ptr<Pipelines>> create(std::shared_ptr<Context> context, std::string path);

  Result<std::shared_ptr<ComputePipeline>> build(const runtime::Kernel& kernel, const runtime::Constants& constants);
  Status save() const;

 private:
  struct Library {
    const MslKernel* kernel;
    runtime::Constants macros;  // others are 0
    Owned<id<MTLLibrary>> library;
  };
  static constexpr std::size_t kMaxLibraries = 32;

  Pipelines(std::shared_ptr<Context> context, std::string path) noexcept
      : context_(std::move(context)), path_(std::move(path)) {}
  Result<Owned<id<MTLLibrary>>> library(const MslKernel& msl, const runtime::Constants& constants);
  Result<Owned<id<MTLFunction>>> function(const MslKernel& msl, const runtime::Constants& constants);

  std::shared_ptr<Context> context_;
  std::string path_;
  Owned<id<MTLBinaryArchive>> archive_;  // none without a path
  mutable std::mutex mutex_;             // of the archive and the libraries
  std::list<Library> libraries_;         // the last one used first
};

}  // namespace rota::mtl
