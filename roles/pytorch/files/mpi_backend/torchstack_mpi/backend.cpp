// PyTorch's ProcessGroupMPI in a namespace of its own, for a torch that has been built without it, or with another MPI.
// Copyright (c) the hpcml.torchstack contributors
// SPDX-License-Identifier: Apache-2.0
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>
// All that the source includes comes first, so that nothing of torch itself is renamed below.
#include <mpi.h>
#if defined(OPEN_MPI) && OPEN_MPI
#include <mpi-ext.h>
#endif
#include "includes.h"

namespace {

std::mutex calls_mutex;

std::map<std::string, long>& calls() {
  static std::map<std::string, long> counted;
  return counted;
}

void count_call(const char* function) {
  const std::lock_guard<std::mutex> lock(calls_mutex);
  ++calls()[function];
}

// The file that answers the MPI calls of this library, as the dynamic linker bound them.
std::string library_path() {
  Dl_info found;
  if (dladdr(reinterpret_cast<void*>(&MPI_Init_thread), &found) == 0 || found.dli_fname == nullptr) {
    return "";
  }
  return found.dli_fname;
}

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) {
    return "";
  }
  return std::string(text, length);
}

#ifdef OPEN_MPI
constexpr bool compiled_with_open_mpi = true;
#else
constexpr bool compiled_with_open_mpi = false;
#endif

} // namespace

// The names of torch are seen from here; those of the source are declared here, and hide what a built-in backend has.
namespace torchstack_mpi {
using namespace c10d;
}

#define USE_C10D_MPI
#define c10d torchstack_mpi
#include "counted.h"
#include "ProcessGroupMPI.cpp"
#include "uncounted.h"
#undef c10d

namespace {

using torchstack_mpi::ProcessGroupMPI;
using Groups = std::vector<c10::intrusive_ptr<ProcessGroupMPI>>;

// The end of a group waits for its worker thread, and that one for the interpreter's lock, if it is the last owner of a tensor.
// torch lets go of groups with the lock held, and Python ends threads that ask for the lock while it ends. So the last owner
// of each group is here, where neither is the case.
std::mutex groups_mutex;

Groups& groups() {
  static auto* made = new Groups;
  return *made;
}

c10::intrusive_ptr<ProcessGroupMPI> create(std::vector<int> ranks) {
  Groups unused;
  {
    const std::lock_guard<std::mutex> lock(groups_mutex);
    const auto in_use = [](const auto& group) { return group.use_count() > 1; };
    const auto rest = std::stable_partition(groups().begin(), groups().end(), in_use);
    unused.assign(rest, groups().end());
    groups().erase(rest, groups().end());
  }
  unused.clear();
  auto group = ProcessGroupMPI::createProcessGroupMPI(std::move(ranks));
  if (group) {
    const std::lock_guard<std::mutex> lock(groups_mutex);
    groups().push_back(group);
  }
  return group;
}

struct Ending : ProcessGroupMPI {
  static void end(ProcessGroupMPI& group) {
    (group.*&Ending::destroy)();
  }
};

// Groups that have ended stay: their destructor would wait for the worker thread once more.
void end() {
  const std::lock_guard<std::mutex> lock(groups_mutex);
  const auto* ending = new Groups(std::move(groups()));
  groups().clear();
  for (const auto& group : *ending) {
    Ending::end(*group);
  }
}

} // namespace

PYBIND11_MODULE(_backend, module) {
  using WithoutLock = pybind11::call_guard<pybind11::gil_scoped_release>;
  pybind11::module_::import("torch.distributed");

  pybind11::class_<ProcessGroupMPI, ::c10d::Backend, c10::intrusive_ptr<ProcessGroupMPI>>(module, "ProcessGroupMPI");
  module.def("create", &create, WithoutLock());
  module.def("end", &end, WithoutLock());
  module.def("library", [] { return std::make_pair(library_path(), library_version()); });
  module.def("calls", [] {
    const std::lock_guard<std::mutex> lock(calls_mutex);
    return calls();
  });
  module.attr("compiled_with_open_mpi") = compiled_with_open_mpi;
}
