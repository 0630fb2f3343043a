#include "backend/metal/pipeline.h"

#include <algorithm>

#include "core/error.h"

namespace rota::mtl {
namespace {

const MslKernel* msl_of(std::string_view kernel) noexcept {
  const auto kernels = msl_kernels();
  const auto found = std::ranges::find(kernels, kernel, &MslKernel::name);
  return found == kernels.end() ? nullptr : &*found;
}

runtime::Constants macros_among(const MslKernel& msl, const runtime::Constants& constants) {
  runtime::Constants macros;
  macros.count = constants.count;
  for (const MslConstant& each : msl.constants) {
    if (each.kind == MslConstantKind::macro) macros.values.at(each.index) = constants.values.at(each.index);
  }
  return macros;
}

// As SPIRV-Cross names them.
NSDictionary* macros_of(const MslKernel& msl, const runtime::Constants& constants) {
  NSMutableDictionary* const macros = [NSMutableDictionary dictionary];
  for (const MslConstant& each : msl.constants) {
    if (each.kind != MslConstantKind::macro) continue;
    [macros setObject:string_of(core::text("{}u", constants.values.at(each.index)))
               forKey:string_of(core::text("SPIRV_CROSS_CONSTANT_ID_{}", each.index))];
  }
  return macros;
}

// NaN, infinities and the sign of zero are promised, so nothing is assumed about them.
Owned<MTLCompileOptions*> compile_options(NSDictionary* macros) {
  Owned<MTLCompileOptions*> options([[MTLCompileOptions alloc] init]);
  [options.get() setFastMathEnabled:NO];
  [options.get() setLanguageVersion:MTLLanguageVersion2_3];
  [options.get() setPreprocessorMacros:macros];
  return options;
}

NSURL* url_of(const std::string& path) { return [NSURL fileURLWithPath:string_of(path)]; }

}  // namespace

Result<std::unique_ptr<Pipelines>> Pipelines::create(std::shared_ptr<Context> context, std::string path) {
  @autoreleasepool {
    std::unique_ptr<Pipelines> made(new Pipelines(std::move(context), std::move(path)));
    if (made->path_.empty()) return made;
    const Owned<MTLBinaryArchiveDescriptor*> descriptor([[MTLBinaryArchiveDescriptor alloc] init]);
    if ([[NSFileManager defaultManager] fileExistsAtPath:string_of(made->path_)]) {
      [descriptor.get() setUrl:url_of(made->path_)];
    }
    NSError* error = nil;
    made->archive_ =
        Owned<id<MTLBinaryArchive>>([made->context_->device() newBinaryArchiveWithDescriptor:descriptor.get()
                                                                                       error:&error]);
    if (!made->archive_) {
      return Error{Errc::io, core::text("open: pipeline_cache: {} is no binary archive of this device: {}", made->path_,
                                        words_of(error))};
    }
    return made;
  }
}

Result<Owned<id<MTLLibrary>>> Pipelines::library(const MslKernel& msl, const runtime::Constants& constants) {
  const runtime::Constants macros = macros_among(msl, constants);
  {
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find_if(
        libraries_, [&](const Library& each) { return each.kernel == &msl && each.macros == macros; });
    if (known != libraries_.end()) {
      libraries_.splice(libraries_.begin(), libraries_, known);
      return retained(known->library.get());
    }
  }
  NSError* error = nil;
  const Owned<MTLCompileOptions*> options = compile_options(macros_of(msl, constants));
  Owned<id<MTLLibrary>> made([context_->device() newLibraryWithSource:[NSString stringWithUTF8String:msl.text]
                                                              options:options.get()
                                                                error:&error]);
  if (!made) {
    return Error{Errc::pipeline_failed,
                 core::text("{}: Metal does not compile the kernel: {}", msl.name, words_of(error))};
  }
  const std::lock_guard lock(mutex_);
  libraries_.push_front({&msl, macros, retained(made.get())});
  if (libraries_.size() > kMaxLibraries) libraries_.pop_back();
  return made;
}

Result<Owned<id<MTLFunction>>> Pipelines::function(const MslKernel& msl, const runtime::Constants& constants) {
  auto from = library(msl, constants);
  if (!from) return from.error();
  const Owned<MTLFunctionConstantValues*> values([[MTLFunctionConstantValues alloc] init]);
  for (const MslConstant& each : msl.constants) {
    if (each.kind != MslConstantKind::function) continue;
    const std::uint32_t value = constants.values.at(each.index);
    const bool flag = value != 0;
    if (each.type == MslConstantType::boolean) {
      [values.get() setConstantValue:&flag type:MTLDataTypeBool atIndex:each.index];
    } else {
      [values.get() setConstantValue:&value type:MTLDataTypeUInt atIndex:each.index];
    }
  }
  NSError* error = nil;
  Owned<id<MTLFunction>> made([from->get() newFunctionWithName:string_of(std::string(msl.name))
                                                constantValues:values.get()
                                                         error:&error]);
  if (made) return made;
  return Error{Errc::pipeline_failed,
               core::text("{}: Metal does not specialize the kernel: {}", msl.name, words_of(error))};
}

Result<std::shared_ptr<ComputePipeline>> Pipelines::build(const runtime::Kernel& kernel,
                                                          const runtime::Constants& constants) {
  @autoreleasepool {
    const MslKernel* const msl = msl_of(kernel.name);
    if (msl == nullptr) {
      return Error{Errc::unsupported, core::text("{}: this build has no Metal kernel of that name", kernel.name)};
    }
    auto compute = function(*msl, constants);
    if (!compute) return compute.error();
    const Owned<MTLComputePipelineDescriptor*> descriptor([[MTLComputePipelineDescriptor alloc] init]);
    [descriptor.get() setComputeFunction:compute->get()];
    [descriptor.get() setMaxTotalThreadsPerThreadgroup:msl->group_size];
    if (archive_) [descriptor.get() setBinaryArchives:[NSArray arrayWithObject:archive_.get()]];
    NSError* error = nil;
    Owned<id<MTLComputePipelineState>> state([context_->device()
        newComputePipelineStateWithDescriptor:descriptor.get()
                                      options:MTLPipelineOptionNone
                                   reflection:nil
                                        error:&error]);
    if (!state) {
      return Error{Errc::pipeline_failed,
                   core::text("{}: Metal refuses the pipeline: {}", kernel.name, words_of(error))};
    }
    if ([state.get() maxTotalThreadsPerThreadgroup] < msl -> group_size) {
      return Error{Errc::unsupported,
                   core::text("{}: Metal runs at most {} threads of it in a threadgroup; wanted {}", kernel.name,
                              std::uint64_t{[state.get() maxTotalThreadsPerThreadgroup]}, msl->group_size)};
    }
    if (archive_) {
      const std::lock_guard lock(mutex_);
      // One that cannot be added is compiled again next time: nothing is lost but that time.
      [archive_.get() addComputePipelineFunctionsWithDescriptor:descriptor.get() error:nullptr];
    }
    return std::make_shared<ComputePipeline>(std::move(state), msl->group_size);
  }
}

Status Pipelines::save() const {
  if (!archive_) return {};
  @autoreleasepool {
    const std::lock_guard lock(mutex_);
    NSError* error = nil;
    if ([archive_.get() serializeToURL:url_of(path_) error:&error]) return {};
    return Error{Errc::io, core::text("save_pipelines: {}: {}", path_, words_of(error))};
  }
}

}  // namespace rota::mtl
